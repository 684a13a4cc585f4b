"""ONNX's operator tests on the host's kernels; a kernel runs every node that it supports.

The module has no accelerator, as with `--device host`, and even the smallest kernels are used.
Machine code is generated once for all cases with the same kernel description.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...compiler.cpu import compile_kernel
from ...compiler.cpu.execution.kernel import key_of
from ...compiler.frontend import recognise_layers
from ...compiler.graph import Graph
from ...compiler.host import host_target, plan_host
from ...compiler.module import Module
from ...errors import CompileError
from ...isa.configuration import PRESETS
from ...runtime.device import Device
from ...runtime.devices import open_device
from ...runtime.profile import GPU, HOST
from ...runtime.session import HOST_DEVICE, Session

MACHINE = PRESETS["4x4"]
"""Configuration that the module must have, although nothing runs on it."""


@dataclass(slots=True)
class KernelRunner:
    """Runs graphs with kernels, and with NumPy if there is no kernel.

    Attributes
    ----------
    code
        Machine code by `key_of`, shared by all graphs.
    refused
        Descriptions that could not be compiled, by `key_of`, with the reason.
    device
        What runs the kernels: `host`, or another device without an accelerator, which compiles its
        own.
    """

    code: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    device: Device = field(default_factory=lambda: open_device("host", MACHINE))

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], int]:
        """Run a graph behind the front end.

        Parameters
        ----------
        graph
            As imported.
        inputs
            Name of each input -> its value.

        Returns
        -------
        Outputs by name, and the number of kernels that ran.
        """
        graph = recognise_layers(graph)
        steps = tuple(node.outputs[0].name for node in graph.nodes)
        self._compile(graph, steps)
        module = Module(graph.name, MACHINE, graph, steps, (), {}, code=self.code)
        session = Session(module, self.device, threads=1, least_work=0)
        run = session.run(inputs)
        own, targets = HOST if self.device.name == HOST_DEVICE else GPU, run.host.targets
        return run.outputs, sum(targets.get(k.output, HOST) == own for k in run.host.kernels)

    def _compile(self, graph: Graph, steps: tuple[str, ...]) -> None:
        """Generate missing machine code."""
        target = host_target() if self.device.name == HOST_DEVICE else None
        if target is None:
            return
        for description in plan_host(graph, steps, (), target, least_work=0).descriptions():
            key = key_of(description, target)
            if key in self.code or key in self.refused:
                continue
            try:
                self.code[key] = compile_kernel(description, target).to_bytes()
            except CompileError as problem:
                self.refused[key] = str(problem)

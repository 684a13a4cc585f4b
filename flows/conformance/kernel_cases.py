"""ONNX's operator tests through the host's kernels: every node that a kernel can take, it takes.

A module without an accelerator, run as `--device cpu` does, except that no kernel is too small to
be worth while. Machine code is made once for all cases whose kernels have one description.
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
from ...runtime.session import Session

MACHINE = PRESETS["4x4"]
"""Every module has one; nothing runs on it."""


@dataclass(slots=True)
class KernelRunner:
    """Runs graphs by kernels, and NumPy where there is none.

    Attributes
    ----------
    code
        Machine code by `key_of`, kept between graphs.
    refused
        Descriptions that could not be compiled, by `key_of`, with the reason.
    """

    code: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _device: Device = field(default_factory=lambda: open_device("cpu", MACHINE))

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
        Outputs by name, and how many kernels computed them.
        """
        graph = recognise_layers(graph)
        steps = tuple(node.outputs[0].name for node in graph.nodes)
        self._compile(graph, steps)
        module = Module(graph.name, MACHINE, graph, steps, (), {}, self.code)
        session = Session(module, self._device, threads=1, least_work=0)
        run = session.run(inputs)
        refused = session.host.refused
        return run.outputs, sum(kernel.output not in refused for kernel in run.host.kernels)

    def _compile(self, graph: Graph, steps: tuple[str, ...]) -> None:
        """Make the machine code that is not known yet."""
        target = host_target()
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

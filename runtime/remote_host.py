"""The processor of another machine, which an agent lends: `remote://AGENT/host`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from ..compiler.graph import Node
from ..compiler.graph.types import DTYPES
from ..compiler.module import Module
from .arrays import from_npy, to_npy
from .artifact import artifact_bytes
from .benchmark import Benchmark
from .device import NetworkDevice, NetworkRun, Repetitions
from .profile import HostRun
from .remote import RemoteDevice
from .wire import Message, WireError


@dataclass(frozen=True, slots=True)
class RemoteKernel:
    """Nodes that a kernel of another machine computed; see `compiler.host.HostStep`."""

    nodes: tuple[Node, ...]
    exact: bool
    reads: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        return self.nodes[-1].outputs[0].name

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output as a tuple, as for all steps of the host."""
        return (self.output,)

    def descriptions(self) -> tuple[()]:
        """Return nothing: the kernel is the other machine's."""
        return ()


class RemoteHost(RemoteDevice, NetworkDevice):
    """The processor of another machine, which runs whole networks.

    Machine code never travels: the agent compiles the network's kernels for its own processor.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._module: Module | None = None
        self._artifact = b""

    @override
    def run_network(
        self,
        module: Module,
        inputs: Mapping[str, np.ndarray],
        *,
        keep_all: bool = False,
        timing: Repetitions | None = None,
    ) -> NetworkRun:
        if self._module is not module:
            self._module, self._artifact = module, artifact_bytes(replace(module, code={}), level=1)
        parts = [to_npy(array) for array in inputs.values()]
        answer = self.job(
            "network", parts, "network", self._artifact,
            keep_all=keep_all, inputs=list(inputs), timing=asdict(timing) if timing else {},
        )  # fmt: skip
        try:
            return self._network_run(answer, module, timed=timing is not None)
        except (WireError, ValueError, KeyError, TypeError) as problem:
            raise self.connected().false(problem) from None

    def _network_run(self, answer: Message, module: Module, *, timed: bool) -> NetworkRun:
        """Read an answer; raises `WireError` and others for one that cannot be right."""
        graph = module.graph
        names = answer.take("outputs", list)
        shown = dict(zip(names, map(from_npy, answer.parts), strict=True))
        outputs = {}
        for output in graph.outputs:
            array, kind = shown.pop(output.name), graph.types[output.value]
            if array.dtype != DTYPES[kind.dtype] or array.shape != kind.shape:
                raise WireError(f"output `{output.name}` as {array.dtype}{list(array.shape)}")
            outputs[output.name] = array.copy()
        kernels = []
        for each in answer.take("kernels", list):
            kernel = Message("kernel", each)
            nodes = tuple(node for name in kernel.take("nodes", list)
                          if (node := graph.producer(name)) is not None)  # fmt: skip
            if not nodes or nodes[-1].outputs[0].name != kernel.take("output", str):
                raise WireError("a kernel of nodes that the network lacks")
            kernels.append(RemoteKernel(nodes, kernel.take("exact", bool)))
        steps = Message("seconds", answer.take("seconds", dict))
        seconds = {name: steps.take(name, float) for name in steps.fields}
        self.times.run_s += answer.take("run_s", float)
        self.times.runs += 1
        found = None
        if timed:
            told = Message("benchmark", answer.take("benchmark", dict))
            each = tuple(float(value) for value in told.take("seconds", list))
            figures = (told.take("processor_s", float), told.take("waiting", float))
            found = Benchmark(each, told.take("number", int), *figures)
            if not each or min(each) <= 0:
                raise WireError("times that are none")
        return NetworkRun(outputs, shown, HostRun(tuple(kernels), seconds), found)

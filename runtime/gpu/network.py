"""The host's part of a run on a GPU: kernels in memory that is planned once, queued together.

The GPU takes over the plan of the host. Steps for which it has no kernel, such as concatenations
and recurrent layers, run on this processor, between copies. `unsuited` names them.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from ...aligned import round_up
from ...compiler.cpu import CpuTarget
from ...compiler.gpu import (
    GpuKernel,
    GpuModule,
    compile_copy,
    compile_kernel,
    planned_for,
    with_device_choice,
)
from ...compiler.graph import Node
from ...compiler.host import Alias, Event, HostKernel, HostStep, RunKernel, host_target
from ...compiler.host.movements import Movement
from ...compiler.host.order import reads_of
from ...compiler.module import Module
from ...compiler.tensor import Tensor
from ...errors import CompileError, warn_of_kernel
from ..batch import checked_array
from ..host import HostSide, Values
from ..profile import GPU
from ..step_times import BatchTime
from .dlpack import GpuTensor, adopt
from .driver import ALIGNED_BYTES, GpuBuffer, GpuDriver, GpuFunction
from .memory import GpuMemory

TIMED_RUN = 1
"""The run in which each step is timed: in the first, the driver still loads code."""


@dataclass(frozen=True, slots=True)
class GpuLaunch:
    """A kernel with its arrays."""

    function: GpuFunction
    arguments: tuple[GpuBuffer, ...]


class GpuBatch:
    """Kernels that run one after another on a GPU, between copies in and out.

    Parameters
    ----------
    driver, memory
        The GPU.
    launches
        Kernels of each step, by the value that it computes, in order.
    views
        Nodes between them that show a value in another shape.
    copied
        Values that are copied to the GPU.
    computed
        Values that are copied from it.
    shown
        Nodes that show values from elsewhere in another shape.
    places
        Arrays in which kernels of this processor expect values.
    leaving
        Computed values that only the network's caller reads.
    """

    def __init__(
        self,
        driver: GpuDriver,
        memory: GpuMemory,
        launches: Mapping[str, Sequence[GpuLaunch]],
        views: Sequence[Node],
        copied: Sequence[str],
        computed: Sequence[str],
        shown: Sequence[Node],
        places: Mapping[str, np.ndarray],
        leaving: set[str],
    ) -> None:
        self.stays = False
        """True for a run whose outputs stay in memory of the GPU."""
        self._leaving = leaving
        self._driver, self._memory, self._launches = driver, memory, launches
        self.names, self.new = tuple(launches), set(computed)
        self._shown = [
            (n.output.name, memory.origin(n.output.name), n.output.type.shape) for n in shown
        ]
        self.views = tuple(node.output.name for node in views)
        self._in = [(name, memory.of(name), memory.staged(name)) for name in copied]
        self._out = [(name, memory.of(name), memory.staged(name)) for name in computed]
        self._places = {name: places[name] for name in computed if name in places}
        self._events: list[Any] = [driver.event() for _ in range(len(launches) + 1)]
        self._ticks = np.arange(len(launches) + 1, dtype=np.uint64)
        self._runs = 0
        self._repeat: Callable[[], None] | None = None
        self._given: dict[str, GpuTensor] = {}
        """Values of this run that are in memory of the GPU already."""
        self._repeated: Any = None
        """The memory outside of the session that `_repeat` uses."""

    def _queue_all(self) -> None:
        others: dict[tuple[int, int], GpuBuffer] = {}
        place = self._driver.address_of
        for name, buffer, array in self._in:
            if name in self._given:
                others[place(buffer)] = self._given[name].buffer
            else:
                self._driver.copy_in(buffer, array)
        for index, launches in enumerate(self._launches.values()):
            if self._runs == TIMED_RUN:
                self._driver.record(self._events[index])
            for launch in launches:
                kernel, arguments = launch.function.kernel, launch.arguments
                if others:
                    arguments = [others.get(place(buffer), buffer) for buffer in arguments]
                self._driver.launch(launch.function, kernel.grid, kernel.threads, arguments)
        if self._runs == TIMED_RUN:
            self._driver.record(self._events[-1])
        for name, buffer, array in self._out:
            if not self._remains(name):
                self._driver.copy_out(buffer, array)

    def _remains(self, name: str) -> bool:
        return self.stays and name in self._leaving

    def run(self, values: Values) -> BatchTime:
        """Run all kernels, and add the values that are read outside."""
        began = time.perf_counter()
        self._given = {name: t for name, *_ in self._in if isinstance(t := values[name], GpuTensor)}
        for name, buffer, array in self._in:
            if name not in self._given:
                given = checked_array(name, values[name], buffer.size_bytes)
                array[...] = given.reshape(array.shape)
        key = self.stays, [(n, self._driver.address_of(t.buffer)) for n, t in self._given.items()]
        if key != self._repeated:
            self._repeated, self._repeat = key, None
        elif self._runs > TIMED_RUN and self._repeat is None:
            self._repeat = self._driver.capture(self._queue_all)
        (self._repeat or self._queue_all)()
        self._driver.synchronise()
        self._given = {}
        if self._runs == TIMED_RUN:
            first = self._events[0]
            ends = [self._driver.elapsed_s(first, event) for event in self._events[1:]]
            self._ticks = np.array([0, *np.multiply(ends, 1e9)], np.uint64)
        self._runs += 1
        there: dict[str, Any] = values
        for name, buffer, array in self._out:
            if self._remains(name):
                there[name] = GpuTensor(self._driver, buffer, array.dtype, array.shape)
            elif (place := self._places.get(name)) is None:
                values[name] = array.copy()
            else:
                place[...] = array
                values[name] = place
        for name, source, shape in self._shown:
            values[name] = values[source].reshape(shape)
        return BatchTime(self.names, self.views, self._ticks, time.perf_counter() - began)


class GpuSide(HostSide):
    """The host's steps of a module, with a GPU that runs the kernels.

    Parameters
    ----------
    module, options
        As for `HostSide`; even the smallest kernel runs on the GPU.
    driver
        The GPU; the caller closes it.

    Attributes
    ----------
    unsuited : dict
        Reasons why steps do not run on the GPU but on this processor, by the value that each one
        computes.
    """

    def __init__(
        self, module: Module, driver: GpuDriver, *, least_work: int | None = 0, **options: Any
    ) -> None:
        self.driver, self._segments = driver, module.segments
        self.unsuited: dict[str, str] = {}
        self._launched: frozenset[str] = frozenset()
        super().__init__(module, least_work=None if least_work is None else 0, **options)

    # Tensors in memory of the GPU ----------------------------------------------------------------

    @override
    def adopt(self, name: str, given: Any) -> GpuTensor | None:
        return adopt(name, given, self.driver)

    @override
    def begin(self, values: Values, *, on_device: bool) -> None:
        given: dict[str, Any] = values
        for name in self._read_elsewhere:
            if isinstance(given.get(name), GpuTensor):
                values[name] = given[name].numpy()
        for stage in self.stages:
            if isinstance(stage.work, GpuBatch):
                stage.work.stays = on_device

    @override
    def _target(self) -> CpuTarget:
        return planned_for()

    @override
    def _allocate(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        aliases = (event.node for event in self.plan.events if isinstance(event, Alias))
        views = {node.output.name: node.inputs[0] for node in aliases}
        self._memory = GpuMemory(self.driver, self._graph, views)
        return super()._allocate()

    @override
    def _prepare(self, module: Module) -> None:
        memory, self._choices = self.plan.memory, module.choices
        self._memory.plan(memory.offsets, memory.arena_bytes)
        loaded: dict[str, tuple[GpuKernel | GpuModule, tuple[GpuFunction, ...]]] = {}
        ready: dict[str, str] = {}
        for step in self.plan.kernels:
            try:
                if (key := _key(step)) not in loaded:
                    code = self._compile(step)
                    if code is None:
                        self.unsuited[step.output] = f"{type(step).__name__}: no kernel for a GPU"
                        continue
                    loaded[key] = code, self.driver.load(_module(code))
                ready[step.output] = key
            except CompileError as problem:
                self.unsuited[step.output] = str(problem)
                warn_of_kernel(step.output, problem)
        self._launched = frozenset(ready)
        used = [_workspace_bytes(_module(code)) for code, _ in loaded.values()]
        self._workspace = self.driver.allocate(max(used, default=0))
        for step in self.plan.kernels:
            if step.output in ready:
                code, functions = loaded[ready[step.output]]
                self._calls[step.output] = tuple(self._launches(step, code, functions))
        others = [step for step in self.plan.kernels if step.output in self.unsuited]
        if (processor := host_target()) is not None:
            self._prepare_native(module, processor, others)
        else:
            self.refused |= self.unsuited

    def _compile(self, step: HostStep) -> GpuKernel | GpuModule | None:
        """The code of a step; None if there is none."""
        if isinstance(step, HostKernel):
            target, description = self.driver.target, step.description
            tuned = with_device_choice(description, target, self.driver.digest, self._choices)
            if tuned != description:
                with suppress(CompileError):  # of decisions that this version cannot compile
                    return compile_kernel(tuned, target)
            return compile_kernel(description, target)
        if isinstance(step, Movement) and step.fill is None and len(step.boxes) == 1:
            elements = self._graph.types[step.reads[0]].elements
            return compile_copy(step.boxes[0], elements, step.itemsize, self.driver.target)
        return None

    def _launches(
        self, step: HostStep, code: GpuKernel | GpuModule, functions: Sequence[GpuFunction]
    ) -> list[GpuLaunch]:
        """The kernels of a step, with their arrays; all steps share one workspace."""
        module, memory = _module(code), self._memory
        constants = dict(module.constants)
        if isinstance(step, HostKernel) and isinstance(code, GpuKernel):
            constants |= code.prepare(step.constants)
            inputs = step.inputs
        else:
            inputs = {f"in{place}": name for place, name in enumerate(step.reads)}
        wanted = {name for launch in module.kernels for name in launch.tensors}
        buffers = {name: memory.of(value) for name, value in inputs.items()}
        buffers |= {name: memory.upload(constants[name]) for name in wanted & constants.keys()}
        place = 0
        for tensor in module.buffers:
            size = _tensor_bytes(tensor)
            buffers[tensor.name] = self._workspace.part(place, size)
            place += round_up(size, ALIGNED_BYTES)
        buffers[module.kernels[-1].tensors[-1]] = memory.of(step.output)
        return [
            GpuLaunch(function, tuple(buffers[name] for name in function.kernel.tensors))
            for function in functions
        ]

    @override
    def _targets(self) -> Mapping[str, str]:
        return {**super()._targets(), **dict.fromkeys(self._launched, GPU)}

    @override
    def _batched_on(self, event: Event) -> str | None:
        launched = isinstance(event, RunKernel) and event.kernel.output in self._launched
        return GPU if launched or isinstance(event, Alias) else super()._batched_on(event)

    @override
    def _batch(self, kernels: Sequence[HostStep], views: Sequence[Node], shown: set[str]) -> Any:
        if kernels[0].output not in self._launched:
            return super()._batch(kernels, views, shown)
        launches = {kernel.output: self._calls[kernel.output] for kernel in kernels}
        inside = {node.output.name: node.inputs[0] for node in views}
        copied: dict[str, str] = {}
        for name in (name for kernel in kernels for name in kernel.reads):
            while name in inside:
                name = inside[name]
            # A view from before may be all that is left of what it shows.
            origin = self._memory.origin(name)
            if origin not in self._launched and not self._graph.is_constant(origin):
                copied.setdefault(origin, name)
        names = [*launches, *(node.output.name for node in views)]
        computed = [n for n in names if n in shown and self._memory.origin(n) in self._launched]
        others = [n for n in views if n.output.name in shown - set(computed)]
        given = tuple(copied.values())
        leaving = {output.value for output in self._graph.outputs} - self._read_elsewhere
        memory, places = self._memory, self._places
        return GpuBatch(
            self.driver, memory, launches, views, given, computed, others, places, leaving
        )

    @cached_property
    def _read_elsewhere(self) -> set[str]:
        """Values that are read outside of the GPU in a run."""
        events = [one for one in self.plan.events if self._batched_on(one) != GPU]
        return set().union(*(reads_of(one, self._segments) for one in events))


def _key(step: HostStep) -> str:
    """A text that only steps with equal code share."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(step.description if isinstance(step, HostKernel) else step)


def _module(code: GpuKernel | GpuModule) -> GpuModule:
    return code.module if isinstance(code, GpuKernel) else code


def _tensor_bytes(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize


def _workspace_bytes(module: GpuModule) -> int:
    return sum(round_up(_tensor_bytes(tensor), ALIGNED_BYTES) for tensor in module.buffers)

"""The host's part of a run: kernels that share one arena, and NumPy for all other nodes.

Consecutive kernels run as one batch. The module contains machine code. If it was made for another
processor, or this user's key has not signed it, loading compiles it again, or takes it from the
cache.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ..aligned import aligned_empty
from ..compiler.graph import Graph, Node, evaluate_node
from ..compiler.graph.types import DTYPES
from ..compiler.host import (
    MIN_WORK,
    Alias,
    Event,
    Finish,
    HostStep,
    RunKernel,
    Start,
    host_nodes,
    host_target,
    may_have_kernels,
    plan_host,
)
from ..compiler.host.order import reads_of, writes_of
from ..compiler.module import Module, Segment
from ..errors import CompileError, DeviceError, InputError, warn_of_kernel
from ..quoting import printable
from .kernel_cache import keep_kernels, kept_kernel
from .profile import HOST, NUMPY
from .step_times import StepTimes

if TYPE_CHECKING:
    from ..compiler.cpu import CpuTarget
    from .batch import Batch

Values = dict[str, np.ndarray]
"""Arrays, by the names of the graph's values."""

Step = Callable[[Values], None]
"""A function that computes values and adds them to the given ones."""

MARGIN = 1 << 16
"""Bytes before and after the arena, more than a row of most images."""


@dataclass(frozen=True, slots=True)
class RunStage:
    """A part of a run.

    Parameters
    ----------
    work : Start, Finish, Batch or tuple
        An event of a segment, kernels that run together, or the first value and the function of
        another step.
    dying : tuple of str
        Values that no later stage reads.
    """

    work: "Start | Finish | Batch | tuple[str, Step]"
    dying: tuple[str, ...]


class HostSide:
    """The host's steps of a module, ready to run.

    Parameters
    ----------
    module : Module
        A module, compiled or loaded.
    threads : int or None
        Threads that share a kernel's loops; None for all processors available to this process.
    keep_all : bool
        Whether to keep every value that the host computes until the next run.
    least_work : int or None
        Fewest operations of the largest kernel, without which none is used; None to compute
        everything in NumPy, by its definition.

    Attributes
    ----------
    plan : HostPlan
        Kernels, order and memory.
    stages : tuple of RunStage
        The run, in order.
    reads : set of str
        Values that a run reads or returns, constants included.
    new : set of str
        Values in memory that each run allocates and nothing else shares.
    times : StepTimes
        Times of the current run; the caller replaces it before each run.
    targets : mapping
        What runs each step of the plan, unless it is a kernel of this processor.
    refused : dict
        Reasons why kernels could not be compiled, by the value that each computes; NumPy computes
        their nodes instead.
    distrusted : dict
        Reasons why machine code of the module was not used, by the kernel's key; a line on stderr
        has the first, unless the cache has all these kernels.
    """

    def __init__(
        self,
        module: Module,
        *,
        threads: int | None = None,
        keep_all: bool = False,
        least_work: int | None = MIN_WORK,
    ) -> None:
        self._name, self._graph = module.name, module.graph
        nodes = host_nodes(module.graph, module.steps)
        kernels = least_work is not None and may_have_kernels(module.graph, nodes, least_work)
        self.plan = plan_host(
            module.graph,
            module.steps,
            module.segments,
            self._target() if kernels else None,
            keep_all=keep_all,
            least_work=least_work or 0,
        )
        if threads is not None and threads < 1:
            raise InputError(
                f"host: expected `threads` of 1 or more, or None for all, got {threads}; correct it"
            )
        self.threads = threads or len(os.sched_getaffinity(0))
        self.times = StepTimes()
        self.refused: dict[str, str] = {}
        self.distrusted: dict[str, str] = {}
        self._arena, self._places = self._allocate()
        self._calls: dict[str, tuple[Any, ...]] = {}
        if self.plan.target is not None:
            self._prepare(module)
        self.targets = self._targets()
        self.stages = tuple(self._stages(module.segments, keep_all=keep_all))
        self.reads = {output.value for output in self._graph.outputs}.union(
            *(reads_of(event, module.segments) for event in self.plan.events),
            *(n.inputs for k in self.plan.kernels if k.output in self.refused for n in k.nodes),
        )
        self.new: set[str] = set().union(*(getattr(s.work, "new", ()) for s in self.stages))

    def adopt(self, name: str, given: Any) -> Any:
        """Take an input in the device's memory without a copy; return None for any other."""
        del name, given

    def begin(self, values: Values, *, on_device: bool) -> None:
        """Prepare a run.

        Raises
        ------
        DeviceError
            Outputs are to stay on a device that has no memory of its own.
        """
        del values
        if on_device:
            raise DeviceError(
                "`on_device`: no GPU computes this network; leave it out, or open a device `gpu`"
            )

    def _target(self) -> "CpuTarget | None":
        """Return the processor for which the plan's kernels are chosen."""
        return host_target()

    def _allocate(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return memory of the plan's size, and the array of each value in it."""
        memory = self.plan.memory
        arena = _arena(memory.arena_bytes)
        places = {
            name: _placed(arena, offset, self._graph, name)
            for name, offset in memory.offsets.items()
        }
        return arena, places

    def _targets(self) -> Mapping[str, str]:
        return dict.fromkeys(self.refused, NUMPY)

    def _batch(
        self, kernels: Sequence[HostStep], views: Sequence[Node], shown: set[str]
    ) -> "Batch":
        """Return steps that run together; `shown` are values that are read outside."""
        from .batch import Batch

        steps = [call for kernel in kernels for call in self._calls[kernel.output]]
        return Batch(self._graph, steps, views, self._places, shown)

    def run(self, stage: RunStage, values: Values) -> None:
        """Run a stage of the host, add its results to the values, and note its time."""
        work = stage.work
        if isinstance(work, tuple):
            name, step = work
            began = time.perf_counter()
            step(values)
            self.times.add((name, time.perf_counter() - began))
        else:
            assert not isinstance(work, Start | Finish)
            self.times.add(work.run(values))

    def _stages(self, segments: Sequence[Segment], *, keep_all: bool) -> Iterator[RunStage]:
        """Yield the plan's events; those in machine code that follow one another are one stage."""
        events, dying = self.plan.events, self.plan.memory.dying
        ends = {output.value for output in self._graph.outputs}
        readers: dict[str, set[int]] = {}
        for index, event in enumerate(events):
            for name in reads_of(event, segments):
                readers.setdefault(name, set()).add(index)
        for target, group in groupby(range(len(events)), lambda i: self._batched_on(events[i])):
            members = list(group)
            kernels = [e.kernel for i in members if isinstance(e := events[i], RunKernel)]
            if target and kernels:
                own = set(members)
                written = {name for i in members for name in writes_of(events[i], segments)}
                shown = {name for name in written if keep_all or readers.get(name, set()) - own}
                views = [e.node for i in members if isinstance(e := events[i], Alias)]
                batch = self._batch(kernels, views, shown | written & ends)
                inside = written - shown - ends - batch.new
                gone = (name for i in members for name in dying[i] if name not in inside)
                yield RunStage(batch, tuple(gone))
            else:
                yield from (RunStage(self._work(events[i]), dying[i]) for i in members)

    def _batched_on(self, event: Event) -> str | None:
        """Return what runs an event as part of a batch; None for an event of its own."""
        is_native = isinstance(event, Alias) or (
            isinstance(event, RunKernel) and event.kernel.output in self._calls
        )
        return HOST if is_native else None

    def _work(self, event: Event) -> "Start | Finish | tuple[str, Step]":
        """Return an event that is not part of a batch as the work of a stage."""
        if isinstance(event, Start | Finish):
            return event
        if isinstance(event, RunKernel):
            return event.kernel.output, partial(self._evaluate_all, event.kernel)
        if isinstance(event, Alias):
            return event.node.output.name, partial(_view, event.node)
        return event.node.outputs[0].name, partial(self._evaluate, event.node)

    def _evaluate(self, node: Node, values: Values) -> None:
        arrays = evaluate_node(node, [values[name] for name in node.inputs])
        for value, array in zip(node.outputs, arrays, strict=True):
            if array.base is not None and np.may_share_memory(array, self._arena):
                # Copied, as the arena is reused; in the same layout, as sums depend on it.
                array = array.copy(order="K")
            values[value.name] = array

    def _prepare(self, module: Module) -> None:
        """Load the machine code and bind constants; NumPy replaces a kernel without code."""
        assert self.plan.target is not None
        self._prepare_native(module, self.plan.target, self.plan.kernels)

    def _prepare_native(
        self, module: Module, target: "CpuTarget", kernels: Iterable[HostStep]
    ) -> None:
        from ..compiler.host.kernel_store import KernelStore
        from .native_steps import native_steps

        store = KernelStore(
            target, module.code, self.threads, module.trust_code, module.choices, kept_kernel
        )
        for step in kernels:
            try:
                steps = native_steps(self._graph, step, self._places, store.get, self.threads)
                self._calls[step.output] = tuple(steps)
            except CompileError as problem:
                self.refused[step.output] = str(problem)
                warn_of_kernel(step.output, problem)
        self.distrusted = store.distrusted
        keep_kernels(store.compiled)
        anew = [reason for key, reason in self.distrusted.items() if key in store.compiled]
        if anew:
            say_compiled_anew(self._name, len(anew), anew[0])

    def _evaluate_all(self, step: HostStep, values: Values) -> None:
        """Compute a kernel's nodes in NumPy, in place of the kernel."""
        inside = dict(values)
        for node in step.nodes:
            self._evaluate(node, inside)
        for name in step.outputs:
            place = self._places.get(name)
            if place is not None:  # where other kernels expect it
                place[...] = inside[name]
                inside[name] = place
            values[name] = inside[name]


@cache
def say_compiled_anew(network: str, kernels: int, reason: str) -> None:
    """Print one line on stderr about machine code that was not used; once for a network."""
    print(
        f"host: compiled {kernels} kernel{'s'[: kernels > 1]} of `{printable(network):.60}` anew: "
        f"{printable(reason)}",
        file=sys.stderr,
    )


def _view(node: Node, values: Values) -> None:
    """Give a value a new shape."""
    values[node.output.name] = values[node.inputs[0]].reshape(node.output.type.shape)


def _arena(size: int) -> np.ndarray:
    """Allocate memory for values, with mapped pages before and after it.

    Kernels read the lanes at a border with masked loads. Masked loads from unmapped pages do not
    fault, but they are hundreds of times slower.
    """
    room = aligned_empty((MARGIN + size + MARGIN,), "uint8")
    room[:MARGIN] = room[MARGIN + size :] = 0
    return room[MARGIN : MARGIN + size]


def _placed(arena: np.ndarray, offset: int, graph: Graph, name: str) -> np.ndarray:
    """Return a value's array in the arena."""
    kind = graph.types[name]
    dtype = np.dtype(DTYPES[kind.dtype])
    room = arena[offset : offset + kind.elements * dtype.itemsize]
    return room.view(dtype).reshape(kind.shape)

"""The host's part of a network: kernels, order and memory.

The plan depends only on the module's graph and steps, so it is made again when a module is loaded.
Machine code takes long to compile, so it is stored with the module (`compile_host`).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ...errors import CompileError, ProcessorError
from ..cpu import CompiledKernel, CpuTarget, Description, compile_kernel, host, load_kernel
from ..cpu.execution.kernel import key_of
from ..graph import Graph
from ..module import Segment
from .kernel import HostKernel
from .memory import HostMemory, plan_host_memory
from .order import Evaluate, Event, order_events
from .recurrence import Recurrence, find_recurrences
from .select import LEAST_WORK, select_kernels, work_of

SHARED_WORK = 1 << 15
"""Fewest operations for which threads share a kernel's loops."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The host's part of a run: kernels, events in order, and memory.

    Parameters
    ----------
    target : CpuTarget or None
        Processor that kernels are compiled for; None if NumPy computes everything.
    """

    target: CpuTarget | None
    kernels: tuple[HostKernel, ...]
    recurrences: tuple[Recurrence, ...]
    events: tuple[Event, ...]
    memory: HostMemory

    def descriptions(self) -> Iterator[Description]:
        """All kernels; equal ones repeat."""
        yield from (kernel.description for kernel in self.kernels)
        for recurrence in self.recurrences:
            yield from recurrence.descriptions()


def plan_host(
    graph: Graph,
    steps: Sequence[str | int],
    segments: Sequence[Segment],
    target: CpuTarget | None,
    *,
    keep_all: bool = False,
    least_work: int = LEAST_WORK,
) -> HostPlan:
    """Choose the host's kernels, their order and their memory.

    Parameters
    ----------
    graph : Graph
        The module's graph.
    steps : sequence of str or int
        The module's steps.
    segments : sequence of Segment
        The module's segments.
    target : CpuTarget or None
        Processor that kernels are compiled for, as in `HostPlan`; see `host_target`.
    keep_all : bool
        Whether every value is kept until after the run.
    least_work : int
        See `select_kernels`.
    """
    nodes = [
        node
        for step in steps
        if isinstance(step, str) and (node := graph.producer(step)) is not None
    ]
    kernels: tuple[HostKernel, ...] = ()
    recurrences: tuple[Recurrence, ...] = ()
    if target is not None:
        kernels = select_kernels(graph, nodes, target, least_work)
        recurrences = find_recurrences(graph, nodes)
    events = order_events(graph, steps, segments, kernels, recurrences)
    memory = plan_host_memory(graph, events, segments, keep_all=keep_all)
    return HostPlan(target, kernels, recurrences, events, memory)


def host_target() -> CpuTarget | None:
    """Return this machine's processor; None if the CPU target has no schedules for it."""
    try:
        return host()
    except ProcessorError:
        return None


def compile_host(
    plan: HostPlan, progress: Callable[[str], None] = lambda line: None
) -> dict[str, bytes]:
    """Compile the kernels to machine code, by `key_of`; equal descriptions share it.

    A kernel that cannot be compiled is omitted, and NumPy computes its nodes. `progress` is called
    with one line for each kernel.
    """
    code: dict[str, bytes] = {}
    for description in plan.descriptions():
        assert plan.target is not None
        key = key_of(description, plan.target)
        if key not in code:
            with contextlib.suppress(CompileError):
                code[key] = compile_kernel(description, plan.target).to_bytes()
        progress(f"{type(description).__name__} for the host")
    return code


def report_of_host(plan: HostPlan) -> dict[str, object]:
    """Return the host's figures for reports, as JSON values.

    `kernels` and `numpy` count the steps of each kind. `peak_bytes` is the largest memory of
    values at any time, and `least_bytes` its lower bound for any placement.
    """
    return {
        "kernels": len(plan.kernels) + len(plan.recurrences),
        "numpy": sum(isinstance(event, Evaluate) for event in plan.events),
        "arena_bytes": plan.memory.arena_bytes,
        "peak_bytes": plan.memory.peak_bytes,
        "least_bytes": plan.memory.least_bytes,
        "target": None if plan.target is None else asdict(plan.target),
    }


@dataclass(slots=True)
class KernelStore:
    """The kernels of a module; each one is loaded or compiled once.

    Parameters
    ----------
    target : CpuTarget
        Processor that runs the kernels.
    code : mapping
        Machine code from `compile_host`, possibly for another processor; missing kernels are
        compiled.
    threads : int
        Threads that share a kernel's parallel loops.
    """

    target: CpuTarget
    code: Mapping[str, bytes]
    threads: int
    _loaded: dict[str, CompiledKernel] = field(default_factory=dict)

    def get(self, description: Description) -> CompiledKernel:
        """Return the machine code of a kernel; small kernels use one thread.

        Raises
        ------
        CompileError
            If it cannot be compiled, or the code was changed.
        """
        key = key_of(description, self.target)
        if key not in self._loaded:
            known = self.code.get(key)
            threads = self.threads if work_of(description) >= SHARED_WORK else 1
            self._loaded[key] = (
                compile_kernel(description, self.target, threads)
                if known is None
                else load_kernel(known, description, self.target, threads)
            )
        return self._loaded[key]

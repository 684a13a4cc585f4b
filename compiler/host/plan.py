"""The host's part of a network: kernels, order and memory.

The plan depends only on the module's graph and steps, so it is made again when a module is loaded.
`kernel_store` makes its machine code. Without kernels, nothing of `compiler.cpu` is loaded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...errors import ProcessorError, ToolError
from ..cpu_level import LEVEL_VARIABLE, NO_LEVEL, level_cap
from ..graph import Graph, Node
from ..module import Segment
from .kernel import HostStep
from .memory import HostMemory, plan_host_memory
from .order import Evaluate, Event, order_events
from .work import MIN_WORK

if TYPE_CHECKING:
    from ..cpu import CpuTarget, Description


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The host's part of a run: kernels, events in order, and memory.

    Parameters
    ----------
    target : CpuTarget or None
        Processor that kernels are compiled for; None if NumPy computes everything.
    """

    target: "CpuTarget | None"
    kernels: tuple[HostStep, ...]
    events: tuple[Event, ...]
    memory: HostMemory

    def descriptions(self) -> "Iterator[Description]":
        """Descriptions of all kernels; equal ones repeat."""
        for kernel in self.kernels:
            yield from kernel.descriptions()


def plan_host(
    graph: Graph,
    steps: Sequence[str | int],
    segments: Sequence[Segment],
    target: "CpuTarget | None",
    *,
    keep_all: bool = False,
    least_work: int = MIN_WORK,
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
    nodes = host_nodes(graph, steps)
    kernels: tuple[HostStep, ...] = ()
    if target is not None:
        from .select import select_steps

        kernels = select_steps(graph, nodes, target, least_work)
    events = order_events(graph, steps, segments, kernels)
    memory = plan_host_memory(graph, events, segments, keep_all=keep_all)
    return HostPlan(target, kernels, events, memory)


def host_nodes(graph: Graph, steps: Sequence[str | int]) -> list[Node]:
    """Return the nodes that the host runs, in order."""
    names = (step for step in steps if isinstance(step, str))
    return [node for name in names if (node := graph.producer(name)) is not None]


def host_target() -> "CpuTarget | None":
    """Return this machine's processor; None if the CPU target has no schedules for it.

    Raises
    ------
    ToolError
        If the package `llvmlite` is missing, and `TILEWRIGHT_CPU_LEVEL` does not do without it.
    """
    if level_cap() == NO_LEVEL:
        return None
    try:
        from ..cpu import host
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.partition(".")[0] != "llvmlite":
            raise
        raise ToolError(
            "kernels for this processor: the Python package `llvmlite` is not installed; run "
            f"`pip install llvmlite`, or set `{LEVEL_VARIABLE}={NO_LEVEL}` to run them in NumPy"
        ) from None
    try:
        return host()
    except ProcessorError:
        return None


def report_of_host(plan: HostPlan) -> dict[str, object]:
    """Return the host's figures for reports, as JSON values.

    `kernels` and `numpy` count the steps of each kind. `peak_bytes` is the largest memory of
    values at any time, and `least_bytes` its lower bound for any placement.
    """
    return {
        "kernels": len(plan.kernels),
        "numpy": sum(isinstance(event, Evaluate) for event in plan.events),
        "arena_bytes": plan.memory.arena_bytes,
        "peak_bytes": plan.memory.peak_bytes,
        "least_bytes": plan.memory.least_bytes,
        "target": None if plan.target is None else asdict(plan.target),
    }

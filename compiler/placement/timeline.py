"""Estimated makespan of a network, with host and accelerator working at the same time.

The host processes its events in the order of `host.order` and transfers the values itself. Both
sides work between a segment's start and its finish. A value that passes between segments goes
through the host's memory, as in a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..graph import Graph, Node, Value
from ..graph.boundary import boundary
from ..host import Event, Finish, HostStep, Start
from ..host.order import HostEvent, SegmentEnds, kernel_of, nodes_of, order_events
from .costs import Costs
from .partition import partition
from .problem import Problem, ns_of

FindKernels = Callable[[Sequence[Node]], Sequence[HostStep]]

KERNEL_VISITS = 1000
"""Node visits that take about as long as the search for one node's kernel."""


@dataclass(frozen=True, slots=True)
class SegmentValues:
    """The values that enter and leave a segment."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.inputs, *self.outputs)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times of a run, in nanoseconds.

    Parameters
    ----------
    total_ns : int
        Time from the first event to the last.
    host_ns, accelerator_ns : int
        Time that each side computes.
    transfer_ns : int
        The host's time for transfers and for starting segments.
    """

    total_ns: int
    host_ns: int
    accelerator_ns: int
    transfer_ns: int


def segment_values(graph: Graph, nodes: Sequence[Node]) -> SegmentValues:
    """Find the values that enter and leave a segment of these nodes."""
    inputs, outputs = boundary(graph, nodes)
    return SegmentValues(
        tuple(Value(name, graph.types[name]) for name in inputs),
        tuple(Value(name, graph.types[name]) for name in outputs),
    )


def timeline(
    events: Sequence[Event],
    ends: Sequence[SegmentEnds],
    host_ns: Callable[[HostEvent], int],
    accelerator_ns: Sequence[int],
    transfer_ns: Callable[[str], int],
    start_ns: int,
) -> Timeline:
    """Add up the events of a run.

    Parameters
    ----------
    events : sequence of Event
        Events of the run, from `order_events`.
    ends : sequence of SegmentEnds
        Inputs and outputs of every segment.
    host_ns : callable
        Time of an event of the host.
    accelerator_ns : sequence of int
        Time of every segment.
    transfer_ns : callable
        Time to transfer a value, by name.
    start_ns : int
        Time to start a segment.
    """
    now = hosted = moved = 0
    ready: dict[int, int] = {}
    for event in events:
        if isinstance(event, Start):
            moving = start_ns + sum(transfer_ns(v.name) for v in ends[event.segment].inputs)
            moved += moving
            now += moving
            ready[event.segment] = now + accelerator_ns[event.segment]
        elif isinstance(event, Finish):
            moving = sum(transfer_ns(v.name) for v in ends[event.segment].outputs)
            moved += moving
            now = max(now, ready[event.segment]) + moving
        else:
            own = host_ns(event)
            hosted += own
            now += own
    return Timeline(now, hosted, sum(accelerator_ns), moved)


class Evaluator:
    """An estimator of the makespan for assignments of a network's nodes.

    Parameters
    ----------
    graph : Graph
        The network.
    problem : Problem
        Times of its nodes on each side.
    costs : Costs
        Costs of transfers and kernels.
    kernels : FindKernels or None
        Finds the kernels of nodes that the host runs in this order; None if the problem's times
        apply to every assignment.

    Attributes
    ----------
    visits : int
        Approximate number of node visits so far; each group of nodes counts a visit of all nodes.
    """

    def __init__(
        self,
        graph: Graph,
        problem: Problem,
        costs: Costs,
        kernels: FindKernels | None = None,
    ) -> None:
        self.graph, self.problem = graph, problem
        self._costs, self._kernels = costs, kernels
        self._transfer_ns = {name: ns_of(costs.transfer_us(graph, name)) for name in graph.types}
        self._start_ns = ns_of(costs.link.start_us)
        self._known: dict[frozenset[str], Timeline] = {}
        self.visits = 0

    def rough(self, accelerated: frozenset[str]) -> Timeline:
        """Estimate without fused host kernels; too low if a fused kernel has to wait."""
        return self._timeline(accelerated, None)

    def exact(self, accelerated: frozenset[str]) -> Timeline:
        """Estimate with the kernels that the host would use."""
        if self._kernels is None:
            return self.rough(accelerated)
        if accelerated not in self._known:
            self.visits += KERNEL_VISITS * len(self.graph.nodes)
            self._known[accelerated] = self._timeline(accelerated, self._kernels)
        return self._known[accelerated]

    def _timeline(self, accelerated: frozenset[str], find: FindKernels | None) -> Timeline:
        """Estimate with the kernels of `find`, or with the problem's times of single nodes."""
        graph, problem = self.graph, self.problem
        steps: list[str | int] = []
        hosted: list[Node] = []
        ends: list[SegmentValues] = []
        there: list[int] = []
        groups = partition(graph, lambda node: node.outputs[0].name in accelerated)
        self.visits += len(groups) * len(graph.nodes)
        for group in groups:
            names = [node.outputs[0].name for node in group]
            if names[0] not in accelerated:
                steps += names
                hosted += group
                continue
            steps.append(len(ends))
            ends.append(segment_values(graph, group))
            there.append(sum(problem.accelerator_ns[name] or 0 for name in names))
        kernels = find(hosted) if find else ()

        def host_ns(event: HostEvent) -> int:
            if find is None:
                return sum(problem.host_ns[node.outputs[0].name] or 0 for node in nodes_of(event))
            return ns_of(
                sum(self._costs.host_us(graph, n, kernel_of(event)) for n in nodes_of(event))
            )

        events = order_events(graph, steps, ends, kernels)
        return timeline(events, ends, host_ns, there, self._transfer_ns.__getitem__, self._start_ns)

"""A lower bound on the work of a network, for every program that may be compiled for it.

The search decides by time which nodes are fused into one kernel. Here, every node that may be fused
is. This grouping has the least work for each unit: a fused value is neither stored nor loaded, and
its unused parts are not computed.
"""

import math
from collections.abc import Iterator, Sequence

from ...isa.configuration import Configuration
from ..accelerator.lower_bound import Demand, chained, demand_of
from ..accelerator.search import Candidate
from ..graph import Graph, Node
from ..main_memory.segment_layout import between_kernels, lay_out_segment
from ..options import DEFAULT_OPTIONS, Options
from ..placement import DEFAULT_COSTS, STRICT_PLACEMENT, Costs, Placement
from ..placement.node_cycles import Estimator
from ..scheduling.fusion import Group, MovementGroup, form_groups
from ..scheduling.given_schedules import Part
from ..scheduling.program_bound import ProgramWork, program_work
from ..tensor import Kernel
from .place import place
from .request import CompileRequest


class _FusesAll(Estimator):
    """A timer that searches no schedules and rates every fused kernel as fast as its parts."""

    def choose(self, kernel: Kernel, options: Options, rival: float = math.inf) -> Candidate:
        """A schedule without tiles."""
        return Candidate((), channels_outer=False, estimated_cycles=0)

    def cycles(self, *parts: Part) -> int:
        """The same for all kernels."""
        return 0


def network_work(
    graph: Graph,
    configuration: Configuration,
    *,
    options: Options = DEFAULT_OPTIONS,
    placement: Placement = STRICT_PLACEMENT,
    costs: Costs = DEFAULT_COSTS,
) -> tuple[ProgramWork, ...]:
    """Return the least work of each segment, for every program that the compiler may choose.

    Segments are separate programs that run one after the other. The arguments are those of
    `compile_graph`. Layers that do not fit the configuration count as layers of the accelerator, so
    only a strict placement has programs for all of them.

    Raises
    ------
    CompileError
        If the placement is impossible.
    """
    request = CompileRequest(
        graph=graph,
        configuration=configuration,
        options=options,
        placement=placement,
        costs=costs,
    )
    placed = place(request)
    return tuple(
        _segment_work(placed.graph, nodes, configuration, options)
        for nodes in placed.parts
        if placed.is_segment(nodes)
    )


def _segment_work(
    graph: Graph, nodes: Sequence[Node], configuration: Configuration, options: Options
) -> ProgramWork:
    layout = lay_out_segment(graph, nodes, configuration, options)
    groups = form_groups(layout, _FusesAll(configuration))
    # Fused kernels may run apart, too, and leave in ACT what would be kept.
    parts = [
        part
        for group in groups
        for kernel, _ in group.work
        for part in (group.parts if isinstance(group, Group) else (kernel,))
    ]
    on_chip = between_kernels(parts, layout)
    demands = [
        chained([demand_of(kernel, configuration, on_chip) for kernel, _ in group.work])
        for group in groups
    ]
    whole = chained(demands)
    # Without fusion, another group may come first: take the least of those that can.
    firsts = [
        demand
        for group, demand in zip(groups, demands, strict=True)
        if _may_begin(group, set(layout.inputs), graph)
    ]
    tile = min((demand.before[0] for demand in demands if demand.busy[0]), default=0)
    before = (tile, *(min(column) for column in zip(*map(_counted, firsts), strict=True)))
    demand = Demand(before, whole.busy, whole.after, whole.traffic, whole.bursts)
    stores = sum(demand.traffic[1] > 0 for demand in demands)
    return program_work(groups, demand, configuration, stores)


def _counted(demand: Demand) -> Iterator[int]:
    """Cycles before VECTOR, LOAD and STORE can start, 0 for a unit without work."""
    pairs = zip(demand.before, demand.busy, strict=True)
    return (before if busy else 0 for before, busy in list(pairs)[1:])


def _may_begin(group: Group | MovementGroup, entering: set[str], graph: Graph) -> bool:
    """Whether some node of a group reads no result of another node."""
    return any(
        all(name in entering or graph.is_constant(name) for name in node.inputs)
        for node in group.nodes
    )

"""Estimated cycles of single nodes on the accelerator, before placement is decided.

The compiler's best estimate is used; no program is timed. Equal layers are estimated once.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from typing_extensions import override

from ...errors import CompileError, UnfitError
from ...isa.configuration import Configuration
from ..accelerator.lower_bound import demand_of
from ..accelerator.search import Candidate, choose_candidate
from ..graph import Graph, Node, accelerated_nodes
from ..main_memory.segment_layout import lay_out_segment
from ..options import Options
from ..scheduling.candidate_timer import CandidateTimer
from ..scheduling.fusion import MovementGroup, form_groups
from ..scheduling.given_schedules import Part, estimated_cycles
from ..scheduling.kernel_programs import KernelPrograms
from ..tensor import Kernel
from .partition import partition

Cycles = Mapping[str, int | str]
"""First output of a node -> its cycles on the accelerator, or the reason why it does not fit."""


class Estimator(CandidateTimer):
    """A timer that returns the compiler's estimates."""

    def __init__(self, configuration: Configuration) -> None:
        programs = KernelPrograms({}, 0, configuration)
        super().__init__(programs, configuration, lambda program, _: (len(program), None))

    def choose(self, kernel: Kernel, options: Options, rival: float = math.inf) -> Candidate:
        """Return the schedule with the lowest estimate; the rival is ignored."""
        return super().choose(kernel, options)

    def _fastest(self, kernel: Kernel, options: Options, rival: float) -> Candidate:
        return choose_candidate(kernel, self.configuration, options.pipeline_depth)

    @override
    def cycles(self, *parts: Part) -> int:
        return sum(one.estimated_cycles for _, one in parts if isinstance(one, Candidate))


@lru_cache(maxsize=2)
def estimator_of(configuration: Configuration) -> Estimator:
    """Return a configuration's estimator, with its earlier estimates."""
    return Estimator(configuration)


def cycles_by_node(
    graph: Graph, configuration: Configuration, options: Options
) -> dict[str, int | str]:
    """Estimate the cycles of each node if the accelerator runs all nodes that fit.

    Nodes of one kernel share its cycles in proportion to their own estimates.
    """
    estimator = estimator_of(configuration)
    try:
        return _cycles_together(graph, {}, estimator, options)
    except CompileError:
        alone = cycles_alone(graph, accelerated_nodes(graph), configuration, options)
    refused = {name: text for name, text in alone.items() if isinstance(text, str)}
    return refused | _cycles_together(graph, refused, estimator, options)


def _cycles_together(
    graph: Graph, refused: Mapping[str, str], estimator: Estimator, options: Options
) -> dict[str, int | str]:
    able = {node.output.name for node in accelerated_nodes(graph)} - refused.keys()

    def fits(node: Node) -> bool:
        return node.outputs[0].name in able

    found: dict[str, int | str] = {}
    for nodes in partition(graph, fits):
        if fits(nodes[0]):
            found |= _segment_cycles(graph, nodes, estimator, options)
    return found


def cycles_alone(
    graph: Graph, nodes: Iterable[Node], configuration: Configuration, options: Options
) -> dict[str, int | str]:
    """Estimate the cycles of each node in its own segment, or return why it does not fit."""
    estimator = estimator_of(configuration)
    found: dict[str, int | str] = {}
    for node in nodes:
        try:
            found |= _segment_cycles(graph, [node], estimator, options)
        except CompileError as refusal:
            found[node.output.name] = str(refusal)
    return found


def misfits(
    graph: Graph,
    nodes: Sequence[Node],
    configuration: Configuration,
    options: Options,
    *,
    timed: bool = True,
) -> dict[str, str]:
    """Return why nodes of a segment do not fit the configuration, by first output.

    Unlike an estimate, this makes the instructions of each node, without fusion.

    Parameters
    ----------
    timed
        Whether the compiler times several schedules. If not, only the likeliest one has to fit.
    """
    layout = lay_out_segment(graph, nodes, configuration, options)
    programs = KernelPrograms(*layout.placements.apart(), configuration)
    timer = CandidateTimer(programs, configuration, lambda program, _: (len(program), None))
    found = {}
    for node in nodes:
        try:
            for group in form_groups(layout, timer if timed else None, [node]):
                programs.lowered(group.work)
        except UnfitError as refusal:
            found[node.output.name] = str(refusal)
    return found


def _segment_cycles(
    graph: Graph, nodes: list[Node], estimator: Estimator, options: Options
) -> dict[str, int]:
    """Estimate the cycles of each node of a segment."""
    configuration = estimator.configuration
    layout = lay_out_segment(graph, nodes, configuration, options)
    found: dict[str, int] = {}
    for group in form_groups(layout, estimator):
        cycles = sum(estimated_cycles(choice) for _, choice in group.work)
        if isinstance(group, MovementGroup):
            found[group.output] = cycles
            continue
        needs = [demand_of(part, configuration).cycles for part in group.parts]
        whole = sum(needs) or 1  # the sum is 0 if there are no samples
        for node, need in zip(group.nodes, needs, strict=True):
            found[node.output.name] = round(cycles * need / whole)
    return found

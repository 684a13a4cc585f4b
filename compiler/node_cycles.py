"""About what single nodes take on the accelerator, before it is decided who runs them."""

from collections.abc import Mapping

from ..errors import CompileError
from ..isa.configuration import Configuration
from .accelerator.bounds import demand_of
from .fusion import Movement, form_groups
from .graph import Graph, Node, is_accelerated
from .options import Options
from .segments import draft, partition

Cycles = Mapping[str, int | str]
"""What a node takes on the accelerator, by its first output, or why it does not fit there."""


def cycles_by_node(
    graph: Graph, configuration: Configuration, options: Options
) -> dict[str, int | str]:
    """About what each node takes on the accelerator, beside all others that fit there.

    Nodes that run as one kernel share its cycles, in proportion to what each of them needs.
    """
    try:
        return _cycles_together(graph, {}, configuration, options)
    except CompileError:
        alone = {
            node.output.name: cycles_alone(graph, node, configuration, options)
            for node in graph.nodes
            if is_accelerated(node)
        }
    refused = {name: text for name, text in alone.items() if isinstance(text, str)}
    return refused | _cycles_together(graph, refused, configuration, options)


def _cycles_together(
    graph: Graph, refused: Mapping[str, str], configuration: Configuration, options: Options
) -> dict[str, int | str]:
    def fits(node: Node) -> bool:
        return is_accelerated(node) and node.output.name not in refused

    found: dict[str, int | str] = {}
    for nodes in partition(graph, fits):
        if fits(nodes[0]):
            found |= _segment_cycles(graph, nodes, configuration, options)
    return found


def cycles_alone(
    graph: Graph, node: Node, configuration: Configuration, options: Options
) -> int | str:
    """About what a node takes in a segment of its own, or why it does not fit."""
    try:
        return _segment_cycles(graph, [node], configuration, options)[node.output.name]
    except CompileError as refusal:
        return str(refusal)


def _segment_cycles(
    graph: Graph, nodes: list[Node], configuration: Configuration, options: Options
) -> dict[str, int]:
    """Estimated cycles of the nodes of a segment."""
    drafted = draft(graph, nodes, configuration, options)
    groups = form_groups(
        graph, nodes, drafted.outputs, drafted.images, configuration, options,
        copies=drafted.homes.copies,
    )  # fmt: skip
    found: dict[str, int] = {}
    for group in groups:
        cycles = sum(schedule.estimated_cycles for _, schedule in group.work)
        if isinstance(group, Movement):
            found[group.output] = cycles
            continue
        needs = [demand_of(part, configuration).cycles for part in group.parts]
        for node, need in zip(group.nodes, needs, strict=True):
            found[node.output.name] = round(cycles * need / sum(needs))
    return found

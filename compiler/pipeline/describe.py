"""The stages of a compilation as text, down to instructions.

Every stage is a list of blocks: a title, and the lines below it. The text of two stages in a row is
alike where the stages are, so that a line-by-line comparison shows what the second one changed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...isa.assembly import format_instruction
from ..graph import Graph, Node, print_graph
from ..graph.short_names import short_name
from ..placement.float_reasons import float_reasons
from ..scheduling.fusion import Group, MovementGroup
from ..scheduling.given_schedules import joined
from .request import Compilation, Linked, PlacedGraph

Wanted = Callable[[Node], bool]
"""Filter of nodes; a layer is shown if one of its nodes passes."""


@dataclass(frozen=True, slots=True)
class StagePart:
    """A piece of a stage.

    Parameters
    ----------
    nodes
        The nodes that it is about; none for what belongs to the whole network.
    """

    nodes: tuple[Node, ...]
    lines: tuple[str, ...]


def describe_graph(graph: Graph, wanted: Wanted | None = None) -> list[str]:
    """Return the lines of a graph; with `wanted`, those of some nodes alone."""
    lines = print_graph(graph).splitlines()
    if wanted is None:
        return lines
    first = 1 + len(graph.inputs) + len(graph.constants)
    return [
        line.strip() for node, line in zip(graph.nodes, lines[first:], strict=False) if wanted(node)
    ]


def describe(compilation: Compilation, stage: str, wanted: Wanted | None = None) -> list[str]:
    """Return the lines of a stage.

    Parameters
    ----------
    stage
        One of `STAGES`.
    wanted
        Which layers to show: those with one of these nodes. All, if None.
    """
    if stage == "placed":
        blocks = _placed(compilation.placed, wanted)
    else:
        blocks = (block for linked in compilation.segments for block in FORMS[stage](linked))
    return [
        line
        for block in blocks
        if wanted is None or any(map(wanted, block.nodes))
        for line in block.lines
    ]


def _placed(placed: PlacedGraph, wanted: Wanted | None) -> Iterator[StagePart]:
    """Each part with its side; the nodes are in execution order."""
    graph = placed.graph
    texts = dict(zip(graph.nodes, describe_graph(graph, lambda node: True), strict=True))
    unfit = {name: why for name, why in placed.decision.cycles.items() if isinstance(why, str)}
    reasons = float_reasons(graph) | unfit
    for number, part in enumerate(placed.parts):
        lines = [f"# part {number}: {'accelerator' if placed.is_segment(part) else 'host'}"]
        for node in part:
            if wanted is None or wanted(node):
                why = reasons.get(node.outputs[0].name)
                lines.append(texts[node] + (f"  # {why}" if why else ""))
        yield StagePart(part, tuple(lines))


def _title(group: Group | MovementGroup) -> str:
    names = ", ".join(f"`{node.name}`" for node in group.nodes)
    return f"# layer {short_name(group.name)} ({group.op}): {names}"


def _grouped(linked: Linked) -> Iterator[StagePart]:
    """Each layer with the steps that are fastest for it alone."""
    grouped = linked.lowered.scheduled.grouped
    for group in grouped.groups:
        schedules = [choice.schedule(kernel, grouped.searched) for kernel, choice in group.work]
        yield StagePart(group.nodes, (_title(group), *joined(schedules).splitlines()))


def _scheduled(linked: Linked) -> Iterator[StagePart]:
    """Each layer with its final steps, its cycles alone, and the address of its result."""
    scheduled = linked.lowered.scheduled
    for layer in scheduled.layers:
        place = scheduled.bound.get(layer.group.output)
        yield StagePart(
            layer.group.nodes,
            (
                _title(layer.group),
                *joined(layer.schedules).splitlines(),
                f"# {layer.gap}",
                f"# result at {place.offset:#x}, int8{list(place.stored_shape)}"
                if place
                else "# its result stays on chip",
            ),
        )


def _lowered(linked: Linked) -> Iterator[StagePart]:
    """The instructions of each layer in the order of its loops, without tokens."""
    first = 0
    for layer, end in zip(linked.layers, linked.lowered.ends, strict=True):
        stream = linked.lowered.stream[first:end]
        lines = (format_instruction(emitted.instruction) for emitted in stream)
        yield StagePart(layer.group.nodes, (_title(layer.group), *lines))
        first = end


def _linked(linked: Linked) -> Iterator[StagePart]:
    """The program in issue order with its tokens."""
    segment = linked.segment
    runs = sorted(
        (first, last, number)
        for number, layer in enumerate(segment.layers)
        for first, last in layer.runs
    )
    titled: set[int] = set()
    for first, last, number in runs:
        group = linked.layers[number].group
        again = f"# layer {short_name(group.name)}, continued"
        title = again if number in titled else _title(group)
        titled.add(number)
        lines = map(format_instruction, segment.program[first:last])
        yield StagePart(group.nodes, (title, *lines))
    yield StagePart((), (format_instruction(segment.program[-1]),))


FORMS: Mapping[str, Callable[[Linked], Iterator[StagePart]]] = {
    "grouped": _grouped,
    "scheduled": _scheduled,
    "lowered": _lowered,
    "linked": _linked,
}
"""The text of a segment at each stage."""

STAGES = ("placed", *FORMS)
"""Stages of a compilation in order; the graphs of the front end come before them."""

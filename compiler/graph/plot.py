"""A picture of a graph as SVG: nodes in ranks from top to bottom, as Netron draws them.

Edges over several ranks pass through an empty place in each rank between, so that they go round the
nodes. Places are sorted by the mean position of their neighbours, a few times down and up.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...atomic_write import write_output
from .evaluate import is_accelerated
from .ir import Graph, Node

NODE_WIDTH, LINE_HEIGHT, PADDING = 190, 16, 8
EMPTY_WIDTH = 16
"""Width of a place that only an edge passes through."""

GAP, RANK_GAP = 24, 36
"""Pixels between neighbours, and between ranks."""

SORTED_TIMES = 4
MAX_CHARACTERS = 28
"""Maximum text of a line; the whole name is shown when the mouse is over the node."""

FILLS = {"input": "#e8e8e8", "accelerator": "#d6e6fb", "host": "#fdf0d5", "output": "#e8e8e8"}
"""Colours of boxes; black text has a contrast of more than 16 on each."""

STYLE = (
    "text{font:12px sans-serif;fill:#111}.op{font-weight:bold}rect{stroke:#555}"
    "path{fill:none;stroke:#555}"
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG, which notebooks show."""

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which any browser opens."""
        write_output(Path(path), self.svg.encode(), f"picture `{path}`")

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg):,} bytes; `save(PATH)` writes it as SVG>"


@dataclass(slots=True)
class _Box:
    """A node, an input or an output; or an empty place, which has no lines."""

    key: str
    rank: int
    lines: tuple[str, ...] = ()
    title: str = ""
    fill: str = ""
    x: float = 0.0

    @property
    def width(self) -> int:
        return NODE_WIDTH if self.lines else EMPTY_WIDTH

    @property
    def height(self) -> int:
        return 2 * PADDING + LINE_HEIGHT * len(self.lines) if self.lines else 0


def plot(graph: Graph) -> Picture:
    """Draw a graph; constants are lines of the nodes that read them."""
    boxes = {box.key: box for box in _boxes(graph)}
    edges = [(start, end) for start, end in _edges(graph) if start in boxes]
    steps = list(_split(boxes, edges))
    ranks: list[list[_Box]] = [[] for _ in range(1 + max(box.rank for box in boxes.values()))]
    for box in boxes.values():
        ranks[box.rank].append(box)
    _arrange(ranks, steps)
    return Picture(_svg(graph.name, boxes, ranks, steps))


def _boxes(graph: Graph) -> Iterator[_Box]:
    """Yield inputs, nodes and outputs, each one rank below the lowest that it reads."""
    rank_of: dict[str, int] = {}
    for value in graph.inputs:
        rank_of[value.name] = 0
        yield _Box(value.name, 0, (_cut(value.name), str(value.type)), value.name, FILLS["input"])
    for node in graph.nodes:
        rank = 1 + max((rank_of.get(name, -1) for name in node.inputs), default=-1)
        rank_of |= {value.name: rank for value in node.outputs}
        side = "accelerator" if is_accelerated(node) else "host"
        title = f"{node.name} ({side})"
        yield _Box(node.outputs[0].name, rank, tuple(_lines(graph, node)), title, FILLS[side])
    for output in graph.outputs:
        rank = 1 + rank_of.get(output.value, -1)
        lines = (_cut(output.name), str(graph.types[output.value]))
        yield _Box(f"output {output.name}", rank, lines, output.name, FILLS["output"])


def _lines(graph: Graph, node: Node) -> Iterator[str]:
    yield node.op
    yield _cut(node.name)
    for name in node.inputs:
        if graph.is_constant(name) and graph.types[name].shape:
            yield _cut(f"constant {graph.types[name]}")
    yield f"→ {_cut(str(node.outputs[0].type))}"


def _edges(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield pairs of boxes; several outputs of a node share its box."""
    box_of = {value.name: value.name for value in graph.inputs}
    for node in graph.nodes:
        key = node.outputs[0].name
        box_of |= {value.name: key for value in node.outputs}
        for name in dict.fromkeys(node.inputs):
            if not graph.is_constant(name):
                yield box_of[name], key
    for output in graph.outputs:
        yield box_of.get(output.value, ""), f"output {output.name}"


def _split(
    boxes: dict[str, _Box], edges: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, bool]]:
    """Yield edges between neighbouring ranks, adding empty places; True at the end of an arrow."""
    for number, (start, end) in enumerate(edges):
        before = start
        for rank in range(boxes[start].rank + 1, boxes[end].rank):
            place = f"edge {number} at {rank}"
            boxes[place] = _Box(place, rank)
            yield before, place, False
            before = place
        yield before, end, True


def _arrange(ranks: list[list[_Box]], steps: Sequence[tuple[str, str, bool]]) -> None:
    """Set the centre of every box."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for start, end, _ in steps:
        above.setdefault(end, []).append(start)
        below.setdefault(start, []).append(end)
    boxes = {box.key: box for rank in ranks for box in rank}
    for rank in ranks:
        _place(rank, {box.key: 0.0 for box in rank})
    for turn in range(SORTED_TIMES):
        near, order = (above, ranks) if turn % 2 == 0 else (below, ranks[::-1])
        for rank in order:
            wanted = {}
            for box in rank:
                others = [boxes[key].x for key in near.get(box.key, ())]
                wanted[box.key] = sum(others) / len(others) if others else box.x
            rank.sort(key=lambda box: wanted[box.key])
            _place(rank, wanted)


def _place(rank: list[_Box], wanted: Mapping[str, float]) -> None:
    """Set boxes side by side, around the mean of where they want to be."""
    total = sum(box.width for box in rank) + GAP * (len(rank) - 1)
    x = sum(wanted[box.key] for box in rank) / len(rank) - total / 2
    for box in rank:
        box.x = x + box.width / 2
        x += box.width + GAP


def _svg(
    name: str,
    boxes: Mapping[str, _Box],
    ranks: Sequence[Sequence[_Box]],
    steps: Sequence[tuple[str, str, bool]],
) -> str:
    left = min(box.x - box.width / 2 for box in boxes.values()) - GAP
    right = max(box.x + box.width / 2 for box in boxes.values()) + GAP
    tops: list[float] = []
    bottom: float = GAP
    for rank in ranks:
        tops.append(bottom)
        bottom += max(box.height for box in rank) + RANK_GAP
    parts = []
    for start, end, last in steps:
        one, other = boxes[start], boxes[end]
        x1, y1 = one.x, tops[one.rank] + one.height
        x2, y2 = other.x, tops[other.rank]
        middle = (y1 + y2) / 2
        arrow = ' marker-end="url(#arrow)"' if last else ""
        parts.append(
            f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} '
            f'{x2:.0f} {y2:.0f}"{arrow}/>'
        )
    for box in boxes.values():
        parts += _drawn(box, tops[box.rank])
    width, height = right - left, bottom - RANK_GAP + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{left:.0f} 0 {width:.0f} {height:.0f}">'
        f"<title>{escape(name)}</title><style>{STYLE}</style>"
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#555"/></marker>'
        f"{''.join(parts)}</svg>\n"
    )


def _drawn(box: _Box, top: float) -> Iterator[str]:
    if not box.lines:
        return
    left = box.x - box.width / 2
    yield (
        f'<g><title>{escape(box.title)}</title><rect x="{left:.0f}" y="{top:.0f}" rx="4" '
        f'width="{box.width}" height="{box.height}" fill="{box.fill}"/>'
    )
    for number, line in enumerate(box.lines):
        y = top + PADDING + LINE_HEIGHT * (number + 0.75)
        kind = ' class="op"' if number == 0 else ""
        yield f'<text{kind} x="{left + PADDING:.0f}" y="{y:.0f}">{escape(line)}</text>'
    yield "</g>"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"…{text[1 - MAX_CHARACTERS :]}"

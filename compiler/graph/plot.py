"""A picture of a graph as SVG."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...atomic_write import write_output
from .evaluate import is_accelerated
from .ir import Graph, Node
from .layout import DrawnBox, DrawnEdges, arrange

NODE_WIDTH, LINE_HEIGHT, PADDING = 190, 16, 8
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


@dataclass(frozen=True, slots=True)
class _Label:
    """A node, an input or an output as text."""

    lines: tuple[str, ...]
    title: str
    fill: str


def plot(graph: Graph) -> Picture:
    """Draw a graph; constants are lines of the nodes that read them."""
    boxes, labels = {}, {}
    for key, rank, label in _boxes(graph):
        boxes[key] = DrawnBox(key, rank, NODE_WIDTH, 2 * PADDING + LINE_HEIGHT * len(label.lines))
        labels[key] = label
    edges = [(start, end) for start, end in _edges(graph) if start in boxes]
    layout = arrange(boxes.values(), edges)
    return Picture(_svg(graph.name, [(boxes[key], labels[key]) for key in boxes], layout))


def _boxes(graph: Graph) -> Iterator[tuple[str, int, _Label]]:
    """Yield key, rank and label of inputs, nodes and outputs; ranks are below what they read."""
    rank_of: dict[str, int] = {}
    for value in graph.inputs:
        rank_of[value.name] = 0
        label = _Label((_cut(value.name), str(value.type)), value.name, FILLS["input"])
        yield value.name, 0, label
    for node in graph.nodes:
        rank = 1 + max((rank_of.get(name, -1) for name in node.inputs), default=-1)
        rank_of |= {value.name: rank for value in node.outputs}
        side = "accelerator" if is_accelerated(node) else "host"
        title = f"{node.name} ({side})"
        label = _Label(tuple(_lines(graph, node)), title, FILLS[side])
        yield node.outputs[0].name, rank, label
    for output in graph.outputs:
        rank = 1 + rank_of.get(output.value, -1)
        lines = (_cut(output.name), str(graph.types[output.value]))
        label = _Label(lines, output.name, FILLS["output"])
        yield f"output {output.name}", rank, label


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


def _svg(name: str, boxes: list[tuple[DrawnBox, _Label]], layout: DrawnEdges) -> str:
    parts = []
    for path, last in layout.paths:
        arrow = ' marker-end="url(#arrow)"' if last else ""
        parts.append(f'<path d="{path}"{arrow}/>')
    for box, label in boxes:
        parts += _drawn(box, label)
    left, width, height = layout.left, layout.width, layout.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{left:.0f} 0 {width:.0f} {height:.0f}">'
        f"<title>{escape(name)}</title><style>{STYLE}</style>"
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#555"/></marker>'
        f"{''.join(parts)}</svg>\n"
    )


def _drawn(box: DrawnBox, label: _Label) -> Iterator[str]:
    left = box.x - box.width / 2
    yield (
        f'<g><title>{escape(label.title)}</title><rect x="{left:.0f}" y="{box.top:.0f}" rx="4" '
        f'width="{box.width:.0f}" height="{box.height:.0f}" fill="{label.fill}"/>'
    )
    for number, line in enumerate(label.lines):
        y = box.top + PADDING + LINE_HEIGHT * (number + 0.75)
        kind = ' class="op"' if number == 0 else ""
        yield f'<text{kind} x="{left + PADDING:.0f}" y="{y:.0f}">{escape(line)}</text>'
    yield "</g>"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"…{text[1 - MAX_CHARACTERS :]}"

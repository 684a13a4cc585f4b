"""The network as boxes and edges for the page: layers, host steps, inputs and outputs."""

from collections.abc import Iterator
from typing import Any

from ....compiler.graph.layout import DrawnBox, arrange
from ....compiler.module import Module
from ....runtime.names import layer_names, layer_nodes

WIDTH, HEIGHT, OTHER_HEIGHT, RANK_GAP = 250, 48, 38, 22
"""Pixels of a box, and between ranks; layers have a bar below their text."""


def network_graph(module: Module) -> dict[str, Any]:
    """Return boxes with their places, and edges as SVG path data.

    Each box has its `kind` (layer, host, input or output); a layer's `layer` is its place in the
    order in which layers run.
    """
    rank_of: dict[str, int] = {}
    owner: dict[str, str] = {}
    boxes: dict[str, DrawnBox] = {}
    facts: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str], None] = {}

    def add(key: str, read: list[str], made: list[str], **about: Any) -> None:
        starts = dict.fromkeys(owner[name] for name in read if name in owner)
        rank_of[key] = 1 + max((rank_of[start] for start in starts), default=-1)
        height = HEIGHT if about["kind"] == "layer" else OTHER_HEIGHT
        boxes[key] = DrawnBox(key, rank_of[key], WIDTH, height)
        facts[key] = {"layer": None, **about}
        owner.update(dict.fromkeys(made, key))
        edges.update(dict.fromkeys((start, key) for start in starts))

    graph = module.graph
    for value in graph.inputs:
        text = str(value.type)
        add(f"input {value.name}", [], [value.name], kind="input", name=value.name, text=text)
    for about in _steps(module):
        add(**about)
    for output in graph.outputs:
        text = str(graph.types[output.value])
        key = f"output {output.name}"
        add(key, [output.value], [], kind="output", name=output.name, text=text)
    layout = arrange(boxes.values(), list(edges), RANK_GAP)
    return {
        "boxes": [
            {
                **facts[key],
                **{name: round(getattr(box, name)) for name in ("x", "top", "width", "height")},
            }
            for key, box in boxes.items()
        ],
        "paths": layout.paths,
        **{name: round(getattr(layout, name)) for name in ("left", "width", "height")},
    }


def _steps(module: Module) -> Iterator[dict[str, Any]]:
    """Yield what is known of each step, in execution order."""
    names, nodes_of = layer_names(module), layer_nodes(module)
    count = 0
    for step in module.steps:
        if isinstance(step, str):
            node = module.graph.producer(step)
            if node is not None:
                yield {
                    "key": step, "read": list(node.inputs), "kind": "host", "name": names[step],
                    "made": [value.name for value in node.outputs], "text": f"{node.op}, host",
                }  # fmt: skip
            continue
        for layer in module.segments[step].layers:
            nodes = nodes_of[layer.output]
            yield {
                "key": layer.output,
                "read": [name for node in nodes for name in node.inputs],
                "made": [value.name for node in nodes for value in node.outputs],
                "kind": "layer", "name": names[layer.output], "text": layer.op, "layer": count,
            }  # fmt: skip
            count += 1

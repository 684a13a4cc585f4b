"""Let windows pad for themselves: a Pad with the window's own padding value becomes its pads."""

from dataclasses import replace

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops

LOWEST = -128
"""What a QMaxPool pads with."""


def absorb_padding(graph: Graph) -> Graph:
    """Merge Pad into the convolutions and pools below."""
    return rewrite(graph, _absorb)


def _absorb(builder: Builder, node: Node, graph: Graph) -> str | None:
    """window(Pad(x, padding value)) -> window with larger pads(x)."""
    window = node.attributes
    if not isinstance(window, (ops.QConv, ops.QAvgPool, ops.QMaxPool)):
        return None
    inner = builder.producer(node.inputs[0])
    if inner is None or not isinstance(inner.attributes, ops.Pad):
        return None
    pad = inner.attributes
    value = LOWEST if isinstance(window, ops.QMaxPool) else window.zero_point_x
    if pad.value != value or any(pad.before[axis] or pad.after[axis] for axis in (0, 3)):
        return None
    more = (pad.before[1], pad.before[2], pad.after[1], pad.after[2])
    top, left, bottom, right = (a + b for a, b in zip(window.pads, more, strict=True))
    merged = replace(window, pads=(top, left, bottom, right))
    operands = [inner.inputs[0], *node.inputs[1:]]
    return builder.emit(merged, operands, node.name, quantisation=node.output.type.quantisation)

"""Let windows pad for themselves: a Pad with the window's own padding value becomes its pads."""

from dataclasses import replace

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops

LOWEST = -128
"""What a QMaxPool pads with."""

INTEGER = (ops.QConv, ops.QAvgPool, ops.QMaxPool)
"""Windows of [N, H, W, C]; those of floats have either layout."""


def absorb_padding(graph: Graph) -> Graph:
    """Merge Pad into the convolutions and pools below."""
    return rewrite(graph, _absorb)


def _absorb(builder: Builder, node: Node, graph: Graph) -> str | None:
    """window(Pad(x, padding value)) -> window with larger pads(x)."""
    window = node.attributes
    if not isinstance(window, (*INTEGER, ops.Conv, ops.AveragePool)):
        return None
    inner = builder.producer(node.inputs[0])
    if inner is None or not isinstance(inner.attributes, ops.Pad):
        return None
    pad = inner.attributes
    high, wide = (1, 2) if isinstance(window, INTEGER) or window.channels_last else (2, 3)
    moved = any(pad.before[axis] or pad.after[axis] for axis in {0, 1, 2, 3} - {high, wide})
    if moved or pad.value != _padding(window):
        return None
    more = (pad.before[high], pad.before[wide], pad.after[high], pad.after[wide])
    top, left, bottom, right = (a + b for a, b in zip(window.pads, more, strict=True))
    merged = replace(window, pads=(top, left, bottom, right))
    if isinstance(merged, ops.AveragePool):
        if any(window.pads) and not merged.count_include_pad:
            return None
        merged = replace(merged, count_include_pad=True)
    operands = [inner.inputs[0], *node.inputs[1:]]
    return builder.emit(merged, operands, node.name, quantisation=node.output.type.quantisation)


def _padding(window: ops.Operator) -> float:
    """What a window's own padding counts as."""
    if isinstance(window, (ops.QConv, ops.QAvgPool)):
        return window.zero_point_x
    return LOWEST if isinstance(window, ops.QMaxPool) else 0

"""Recognise slices of integers: Slice of int8 images -> QSlice, channels last."""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .patterns import TO_FIRST, TO_LAST

CHANNELS = 1
"""Axis of the channels in [N, C, H, W]."""


def recognise_slices(graph: Graph) -> Graph:
    """Replace Slice of int8 images by QSlice, where it takes neighbouring channels."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Slice(x) -> QSlice(x)."""
    cut, kind = node.attributes, node.output.type
    if not isinstance(cut, ops.Slice) or kind.dtype != "int8" or 0 in kind.shape:
        return None
    if len(kind.shape) != len(TO_LAST) or cut.steps[CHANNELS] != 1:
        return None
    image = builder.emit(ops.Transpose(TO_LAST), node.inputs, node.name)
    starts, stops, steps = (
        (values[0], values[2], values[3], values[1])
        for values in (cut.starts, cut.stops, cut.steps)
    )
    result = builder.emit(ops.QSlice(starts, stops, steps), [image], node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)

"""Recognise concatenations of integers: Concat of int8 -> QConcat.

Dequantize, Concat, Quantize has become Concat of integers before (`sink_dequantize`), with a
Quantize behind each Dequantize; where the two differ, they become a table of all 256 values.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .patterns import TO_FIRST, TO_LAST, from_image, to_image

CHANNELS = 3
"""Axis of a QConcat along channels."""


def recognise_concats(graph: Graph) -> Graph:
    """Replace Concat of int8 images, and of int8 vectors, by QConcat."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Concat(x, ...) -> QConcat(x, ...), channels last; vectors are images of one pixel."""
    concat, kind = node.attributes, node.output.type
    if not isinstance(concat, ops.Concat) or kind.dtype != "int8" or 0 in kind.shape:
        return None
    if any(builder.is_constant(name) for name in node.inputs):
        return None
    if len(kind.shape) == len(TO_LAST):
        images = [builder.emit(ops.Transpose(TO_LAST), [x], node.name) for x in node.inputs]
        operator = ops.QConcat(TO_LAST.index(concat.axis))
        result = builder.emit(operator, images, node.name, quantisation=kind.quantisation)
        return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)
    if len(kind.shape) == 2 and concat.axis == 1:
        images = [to_image(builder, x, node.name) for x in node.inputs]
        operator = ops.QConcat(CHANNELS)
        result = builder.emit(operator, images, node.name, quantisation=kind.quantisation)
        return from_image(builder, result, kind.shape, node.name)
    return None

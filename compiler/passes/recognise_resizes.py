"""Recognise resizing by copies: Gather that repeats each row or column of int8 -> QResize.

The importer has worked out which element each one of the result takes, whatever the model calls
the mode; only where that is a copy of each pixel as often as any other is it a QResize.
"""

import numpy as np

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from ..graph.operator import Pair
from .patterns import TO_FIRST, TO_LAST

ROWS = 2
"""Axis of the rows in [N, C, H, W]; the columns follow."""


def recognise_resizes(graph: Graph) -> Graph:
    """Replace Gather of int8 images that repeats pixels by QResize."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Gather(x, each row or column several times) -> QResize(x), together with one above."""
    found = _repeats(builder, node)
    if found is None:
        return None
    rows, columns = found
    above = builder.producer(node.inputs[0])
    inner = None if above is None else builder.producer(above.inputs[0])
    if inner is not None and isinstance(inner.attributes, ops.QResize):
        (image,) = inner.inputs
        rows, columns = rows * inner.attributes.factors[0], columns * inner.attributes.factors[1]
    else:
        image = builder.emit(ops.Transpose(TO_LAST), node.inputs[:1], node.name)
    result = builder.emit(ops.QResize((rows, columns)), [image], node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)


def _repeats(builder: Builder, node: Node) -> Pair | None:
    """Return how often a Gather repeats each row and each column; None where it does not."""
    gather = node.attributes
    if not isinstance(gather, ops.Gather) or gather.axis not in (ROWS, ROWS + 1):
        return None
    if node.output.type.dtype != "int8":
        return None
    x, indices = node.inputs
    shape = builder.types[x].shape
    if len(shape) != len(TO_LAST) or not builder.is_constant(indices) or builder.is_constant(x):
        return None
    size, data = shape[gather.axis], builder.data(indices)
    factor = data.size // max(size, 1)
    if data.ndim != 1 or factor < 2:
        return None
    if not np.array_equal(data, np.arange(size).repeat(factor)):
        return None
    return (factor, 1) if gather.axis == ROWS else (1, factor)

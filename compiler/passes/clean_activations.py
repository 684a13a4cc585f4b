"""Bring clamps into one form, Relu or one Clip, directly behind the layer that they can join.

A clamp next to its layer costs nothing on the accelerator, and it tells the quantiser which part of
the layer's range matters.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .fold_batch_normalisation import variable_operand
from .patterns import Clamp, clamp_limits, private, strip_clamps

LARGEST = 3.4028234663852886e38
"""Largest finite binary32 number: a Clip's limit that limits nothing."""

MOVES = (ops.MaxPool, ops.Reshape, ops.Transpose, ops.Slice)
"""Operators that pick elements of one tensor by order or place, so that clamps commute."""


def clean_activations(graph: Graph) -> Graph:
    """Merge clamps and move them above pools and changes of shape."""
    return rewrite(graph, _name_limits, _merge, _hoist)


def _is_clamp(node: Node | None) -> bool:
    return (
        node is not None
        and clamp_limits(node.attributes) is not None
        and node.output.type.dtype == "float32"
    )


def _clamp(low: float, high: float) -> ops.Unary:
    """Return the operator of two limits; infinite ones are written as the largest numbers."""
    if low == 0 and high >= LARGEST:
        return ops.Unary("Relu")
    return ops.Unary("Clip", (max(low, -LARGEST), min(high, LARGEST)))


def _name_limits(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Max(x, scalar) or Min(x, scalar) -> Clip or Relu."""
    x = variable_operand(builder, node)
    operator = node.attributes
    if x is None or not isinstance(operator, ops.Binary) or operator.kind not in ("Max", "Min"):
        return None
    constant = builder.data(next(name for name in node.inputs if name != x))
    if constant.size != 1 or builder.types[x].shape != node.output.type.shape:
        return None
    limit = float(constant.ravel()[0])
    limits = (limit, LARGEST) if operator.kind == "Max" else (-LARGEST, limit)
    return builder.emit(_clamp(*limits), [x], node.name)


def _merge(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Clamps in a row -> one; limits that limit nothing -> none."""
    limits = clamp_limits(node.attributes)
    if not _is_clamp(node) or limits is None:
        return None
    name, inner = strip_clamps(builder, node.inputs[0])
    both = Clamp(*limits).after((inner.low, inner.high))
    if both.low <= -LARGEST and both.high >= LARGEST:
        return name
    merged = _clamp(both.low, both.high)
    if merged == node.attributes and name == node.inputs[0]:
        return None
    return builder.emit(merged, [name], node.name)


def _hoist(builder: Builder, node: Node, graph: Graph) -> str | None:
    """clamp(move(x)) -> move(clamp(x)), where nothing else reads x or the moved x."""
    if not _is_clamp(node) or not private(graph, node.inputs[0]):
        return None
    move = builder.producer(node.inputs[0])
    if move is None or not isinstance(move.attributes, MOVES) or not private(graph, move.inputs[0]):
        return None
    clamped = builder.emit(node.attributes, [move.inputs[0]], node.name)
    return builder.emit(move.attributes, [clamped], move.name)

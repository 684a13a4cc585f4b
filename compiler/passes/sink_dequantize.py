"""Move elements as integers: Dequantize goes below what moves, Quantize above.

All rules are exact: both are elementwise and monotone. They bring Dequantize and Quantize next to
the operator that computes, so that patterns need no exceptions for moves in between.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops

MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Gather, ops.MaxPool)
"""Operators that pick elements and compute nothing."""


def sink_dequantize(graph: Graph) -> Graph:
    """Swap Dequantize with moves below it, and Quantize with moves above it."""
    return rewrite(
        graph, _sink, _sink_below_pad, _hoist, _hoist_above_concat, _hoist_function_above_concat
    )


def _dequantize(builder: Builder, name: str) -> tuple[str, ops.Dequantize] | None:
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Dequantize):
        return None
    return node.inputs[0], node.attributes


def _sink(builder: Builder, node: Node, graph: Graph) -> str | None:
    """move(Dequantize(x)) -> Dequantize(move(x))."""
    move = node.attributes
    found = _dequantize(builder, node.inputs[0]) if isinstance(move, MOVES) else None
    if found is None:
        return None
    x, attributes = found
    axis = attributes.axis
    if axis is not None:
        old, new = builder.types[x].shape, node.output.type.shape
        if isinstance(move, ops.Transpose):
            axis = move.permutation.index(axis)
        elif not isinstance(move, ops.Reshape) or old[: axis + 1] != new[: axis + 1]:
            return None
    moved = builder.emit(move, [x, *node.inputs[1:]], node.name)
    sunk = ops.Dequantize(attributes.scales, attributes.zero_points, axis)
    return builder.emit(sunk, [moved], node.name)


def _sink_below_pad(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Pad(Dequantize(x), 0) -> Dequantize(Pad(x, zero point))."""
    pad = node.attributes
    if not isinstance(pad, ops.Pad) or pad.value != 0:
        return None
    found = _dequantize(builder, node.inputs[0])
    if found is None or found[1].axis is not None:
        return None
    x, attributes = found
    integer = ops.Pad(pad.before, pad.after, float(attributes.zero_points[0]))
    moved = builder.emit(integer, [x], node.name)
    return builder.emit(attributes, [moved], node.name)


def _hoist(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(move(x)) -> move(Quantize(x))."""
    target = node.attributes
    if not isinstance(target, ops.Quantize) or target.axis is not None:
        return None
    move = builder.producer(node.inputs[0])
    if move is None or not isinstance(move.attributes, MOVES):
        return None
    quantised = builder.emit(target, move.inputs[:1], node.name)
    return builder.emit(move.attributes, [quantised, *move.inputs[1:]], move.name)


def _of_integers(builder: Builder, name: str) -> bool:
    """Tell whether a value is a Dequantize, or functions of one, element by element."""
    node = builder.producer(name)
    while node is not None and isinstance(node.attributes, ops.Unary):
        node = builder.producer(node.inputs[0])
    return node is not None and isinstance(node.attributes, ops.Dequantize)


def _hoist_function_above_concat(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(Concat(Dequantize(x), ...)) -> Concat(f(Dequantize(x)), ...)."""
    concat = builder.producer(node.inputs[0])
    if not isinstance(node.attributes, ops.Unary) or concat is None:
        return None
    if not isinstance(concat.attributes, ops.Concat):
        return None
    if not all(_of_integers(builder, name) for name in concat.inputs):
        return None
    parts = [builder.emit(node.attributes, [name], node.name) for name in concat.inputs]
    return builder.emit(concat.attributes, parts, concat.name)


def _hoist_above_concat(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(Concat(f(Dequantize(x)), ...)) -> Concat(Quantize(f(Dequantize(x))), ...)."""
    target = node.attributes
    if not isinstance(target, ops.Quantize) or target.axis is not None:
        return None
    concat = builder.producer(node.inputs[0])
    if concat is None or not isinstance(concat.attributes, ops.Concat):
        return None
    if not all(_of_integers(builder, name) for name in concat.inputs):
        return None
    parts = [builder.emit(target, [name], node.name) for name in concat.inputs]
    return builder.emit(concat.attributes, parts, concat.name)

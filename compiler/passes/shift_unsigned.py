"""Make every quantised tensor int8: uint8 minus 128, its zero point minus 128; nothing is rounded.

The graph's uint8 inputs and outputs keep their type through a Shift on the host.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .sink_dequantize import MOVES

OFFSET = 128
"""uint8 value of what int8 calls 0."""


def shift_unsigned(graph: Graph) -> Graph:
    """Replace uint8 by int8 wherever it is quantised, moved or dequantised."""
    return rewrite(graph, _shift_quantize, _shift_dequantize, _cancel, *SINKS, _shift_pool)


def _shift_quantize(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize to uint8 -> Shift(Quantize to int8)."""
    old = node.attributes
    if not isinstance(old, ops.Quantize) or old.dtype != "uint8":
        return None
    zero_points = tuple(point - OFFSET for point in old.zero_points)
    signed = ops.Quantize(old.scales, zero_points, "int8", old.axis)
    value = builder.emit(signed, node.inputs, node.name)
    return builder.emit(ops.Shift(), [value], node.name)


def _shift_dequantize(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Dequantize(uint8) -> Dequantize(Shift(uint8)); a constant is shifted at once."""
    old = node.attributes
    x = node.inputs[0]
    if not isinstance(old, ops.Dequantize) or builder.types[x].dtype != "uint8":
        return None
    if builder.is_constant(x):
        shifted = builder.constant((builder.data(x) ^ 0x80).view("int8"), f"{x}.int8")
    else:
        shifted = builder.emit(ops.Shift(), [x], node.name)
    zero_points = tuple(point - OFFSET for point in old.zero_points)
    return builder.emit(ops.Dequantize(old.scales, zero_points, old.axis), [shifted], node.name)


def _shift_pool(builder: Builder, node: Node, graph: Graph) -> str | None:
    """MaxPool(uint8) -> Shift(MaxPool(Shift(uint8)))."""
    if not isinstance(node.attributes, ops.MaxPool) or node.output.type.dtype != "uint8":
        return None
    signed = builder.emit(ops.Shift(), node.inputs, node.name)
    pooled = builder.emit(node.attributes, [signed], node.name)
    return builder.emit(ops.Shift(), [pooled], node.name)


def _shifted(builder: Builder, name: str, dtype: str = "int8") -> str | None:
    """Return what a Shift reads, if that is of `dtype`: only Shifts to uint8 sink."""
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Shift):
        return None
    return node.inputs[0] if builder.types[node.inputs[0]].dtype == dtype else None


def _cancel(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Shift(Shift(x)) -> x."""
    if not isinstance(node.attributes, ops.Shift):
        return None
    return _shifted(builder, node.inputs[0], node.output.type.dtype)


def _sink(builder: Builder, node: Node, graph: Graph) -> str | None:
    """move(Shift(x)) -> Shift(move(x))."""
    if not isinstance(node.attributes, MOVES):
        return None
    x = _shifted(builder, node.inputs[0])
    if x is None:
        return None
    moved = builder.emit(node.attributes, [x, *node.inputs[1:]], node.name)
    return builder.emit(ops.Shift(), [moved], node.name)


def _sink_below_concat(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Concat(Shift(x), ...) -> Shift(Concat(x, ...))."""
    if not isinstance(node.attributes, ops.Concat):
        return None
    parts = [_shifted(builder, name) for name in node.inputs]
    present = [part for part in parts if part is not None]
    if len(present) != len(parts):
        return None
    joined = builder.emit(node.attributes, present, node.name)
    return builder.emit(ops.Shift(), [joined], node.name)


def _sink_below_pad(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Pad(Shift(x), value) -> Shift(Pad(x, shifted value))."""
    pad = node.attributes
    x = _shifted(builder, node.inputs[0]) if isinstance(pad, ops.Pad) else None
    if x is None or not isinstance(pad, ops.Pad):
        return None
    moved = builder.emit(ops.Pad(pad.before, pad.after, pad.value - OFFSET), [x], node.name)
    return builder.emit(ops.Shift(), [moved], node.name)


SINKS = (_sink, _sink_below_concat, _sink_below_pad)

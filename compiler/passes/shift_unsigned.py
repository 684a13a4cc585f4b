"""Make every quantised tensor int8: subtract 128 from uint8 and zero point, without rounding.

The graph's uint8 inputs and outputs keep their type through a Shift on the host.
"""

from dataclasses import replace

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, each, op, rewrite, rule, value
from .patterns import is_int8, is_uint8
from .sink_dequantize import MOVES

OFFSET = 128
"""The uint8 value that corresponds to 0 in int8."""

SHIFT = ops.Shift()

TO_UNSIGNED = op(ops.Shift, value("x", where=is_int8))
"""A Shift to uint8; only these sink."""


def _moved(points: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(point - OFFSET for point in points)


@rule(op(ops.Quantize, value("x"), capture="target", where=lambda q: q.dtype == "uint8"))
def shift_quantize(site: Site, target: ops.Quantize, x: str) -> str | None:
    """Quantize to uint8 -> Shift(Quantize to int8)."""
    signed = replace(target, zero_points=_moved(target.zero_points), dtype="int8")
    return site.emit(SHIFT, site.emit(signed, x))


@rule(op(ops.Dequantize, value("x", where=is_uint8), capture="scaling"))
def shift_dequantize(site: Site, scaling: ops.Dequantize, x: str) -> str | None:
    """Dequantize(uint8) -> Dequantize(Shift(uint8)); a constant is shifted at compile time."""
    if site.is_constant(x):
        signed = site.constant((site.data(x) ^ 0x80).view("int8"), f"{x}.int8")
    else:
        signed = site.emit(SHIFT, x)
    return site.emit(replace(scaling, zero_points=_moved(scaling.zero_points)), signed)


@rule(op(ops.Shift, op(ops.Shift, value("x"))))
def cancel(site: Site, x: str) -> str | None:
    """Shift(Shift(x)) -> x."""
    return x


@rule(op(MOVES, TO_UNSIGNED, ..., capture="move"))
def sink(site: Site, move: ops.Operator, x: str) -> str | None:
    """move(Shift(x)) -> Shift(move(x))."""
    return site.emit(SHIFT, site.emit(move, x, *site.root.inputs[1:]))


@rule(op(ops.Concat, each(TO_UNSIGNED), capture="concat"))
def sink_below_concat(site: Site, concat: ops.Concat, x: tuple[str, ...]) -> str | None:
    """Concat(Shift(x), ...) -> Shift(Concat(x, ...))."""
    return site.emit(SHIFT, site.emit(concat, *x))


@rule(op(ops.Pad, TO_UNSIGNED, capture="pad"))
def sink_below_pad(site: Site, pad: ops.Pad, x: str) -> str | None:
    """Pad(Shift(x), value) -> Shift(Pad(x, shifted value))."""
    return site.emit(SHIFT, site.emit(replace(pad, value=pad.value - OFFSET), x))


@rule(op(ops.MaxPool, value("x"), capture="pool", result=is_uint8, where=lambda p: p.is_image))
def shift_pool(site: Site, pool: ops.MaxPool, x: str) -> str | None:
    """MaxPool(uint8) -> Shift(MaxPool(Shift(uint8)))."""
    return site.emit(SHIFT, site.emit(pool, site.emit(SHIFT, x)))


@rule(op(*(ops.IntegerMatMul, value("x", where=is_uint8), value("w")), value("zero")))
def shift_product(site: Site, x: str, w: str, zero: str) -> str | None:
    """IntegerMatMul of uint8 and its zero point -> IntegerMatMul of both as int8."""
    return site.emit(ops.IntegerMatMul(), site.emit(SHIFT, x), w, site.emit(SHIFT, zero))


def shift_unsigned(graph: Graph) -> Graph:
    """Replace uint8 by int8 wherever values are quantised, moved or dequantised."""
    return rewrite(
        *(graph, shift_quantize, shift_dequantize, cancel),
        *(sink, sink_below_concat, sink_below_pad, shift_pool, shift_product),
    )

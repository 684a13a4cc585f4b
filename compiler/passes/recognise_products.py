"""Recognise products of quantised values that are read in float -> their sums, as int32.

The accelerator multiplies, and the sums leave as they are. The host dequantises them: it adds the
bias, or goes on with any other step. This runs after all that requantises a product on chip.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..graph.accumulators import accumulator_bounds
from ..graph.evaluate import evaluate_operator
from ..rewriting import GraphPattern, Site, computed, constant, op, rewrite, rule, value
from .patterns import is_int8, known_data, reshaped, scale_of, to_image
from .recognise_convolutions import (
    DENSE,
    LAYERS,
    OF_CHANNELS,
    as_given,
    image_of,
    output_scale,
    scales_of_groups,
    weights_of,
)
from .recognise_matmuls import operands_of

MAX_DEPTH = 2**17
"""From this number of products on, sums may leave int32."""


def _shift(weights: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Return what to take from the weights of each output, so that all of them fit int8.

    The sums of the inputs make up for that.
    """
    lowest, highest = weights.min(axis=axis, initial=0), weights.max(axis=axis, initial=0)
    return np.where((lowest < -128) | (highest > 127), lowest + 128, 0)


@rule(*LAYERS)
def recognise_layer(
    site: Site, layer: ops.Conv | ops.MatMul, x: str, w: str, w_scale: ops.Dequantize
) -> str | None:
    """Conv | MatMul of dequantised values, read in float -> QSums, Dequantize and the bias.

    The products of the input's zero point are subtracted from the sums.
    """
    weighted = weights_of(site, layer, w, w_scale)
    if weighted is None or site.view.is_constant(x):
        return None
    whole, scales = weighted
    given = scale_of(site, "x")
    points = given.zero_point * whole.astype(np.int64).sum(axis=(0, 1, 2))
    unit = output_scale(given.scale, scales, 1.0)
    if unit is None:
        return None
    return _emit_layer(site, layer, x, whole, unit, given.zero_point, points)


@rule(OF_CHANNELS)
def recognise_channels(
    site: Site,
    layer: ops.Conv,
    x: str,
    x_scale: ops.Dequantize,
    w: str,
    w_scale: ops.Dequantize,
) -> str | None:
    """Conv of channels with scales and zero points of their own -> QSums, less constant sums.

    The array pads with one number. So the products of the zero points are subtracted at each pixel.
    """
    weighted, outputs = weights_of(site, layer, w, w_scale), site.shape_of(w)[0]
    unit = scales_of_groups(layer, x_scale, w_scale, outputs)
    if weighted is None or unit is None or site.view.is_constant(x):
        return None
    zeros = np.array(x_scale.zero_points, np.float64).reshape(-1, 1, 1)
    image = np.broadcast_to(zeros, (1, *site.shape_of(x)[1:]))
    taps = weighted[0].transpose(3, 2, 0, 1).astype(np.float64)
    known = evaluate_operator(replace(layer, channels_last=False), [image, taps])
    return _emit_layer(site, layer, x, weighted[0], unit, 0, known.transpose(0, 2, 3, 1))


def _emit_layer(
    site: Site,
    layer: ops.Conv | ops.MatMul,
    x: str,
    whole: np.ndarray,
    unit: np.ndarray,
    zero_point: int,
    known: np.ndarray,
) -> str | None:
    """Emit a layer's sums minus known sums by channel or pixel, then the scale and the bias."""
    made = site.root
    bias = known_data(site.view, made.inputs[2]) if len(made.inputs) > 2 else None
    low, high = accumulator_bounds(whole, np.zeros(len(unit), np.int64))
    widest = max(-low.min(initial=0), high.max(initial=0)) + np.abs(known).max(initial=0)
    if widest >= 2**31 or (bias is None and len(made.inputs) > 2):
        return None
    window, image = image_of(site, layer, x, made.name)
    depth = math.prod(whole.shape[:3])
    dense = window[-1] == 1 and depth < MAX_DEPTH
    shift = _shift(whole, axis=(0, 1, 2)) if dense else np.zeros(1)

    def sums_of(part: np.ndarray, spare: int = 0) -> str:
        kernel = site.constant(part.astype(np.int8), f"{made.name}.weights")
        operator = ops.QSums(*window, zero_point, spare=spare)
        sums = site.emit(operator, image, kernel, label=made.name)
        return site.emit(ops.FromBytes(), sums, label=made.name)

    if shift.any():
        ones = sums_of(np.ones((*whole.shape[:3], 1)), depth)
        row = site.constant(shift.astype(np.int32), f"{made.name}.shift")
        more = site.emit(ops.Binary("Mul"), ones, row, label=made.name)
        result = site.emit(ops.Binary("Add"), sums_of(whole - shift), more, label=made.name)
    else:  # weights of nine bits are sums of int8 weights
        first = whole.clip(-128, 127)
        result = sums_of(first)
        while (whole := whole - first).any():
            first = whole.clip(-128, 127)
            more = sums_of(first, depth)
            result = site.emit(ops.Binary("Add"), result, more, label=made.name)
    if known.any():
        less = site.constant(known.astype(np.int32), f"{made.name}.known")
        result = site.emit(ops.Binary("Sub"), result, less, label=made.name)
    scaling = ops.Dequantize(tuple(map(float, unit)), (0,) * len(unit), 3)
    result = site.emit(scaling, result, label=made.name)
    if bias is not None:
        addend = site.constant(bias, f"{made.name}.bias")
        result = site.emit(ops.Binary("Add"), result, addend, label=made.name)
    return as_given(site, layer, result, site.shape, made.name)


def _read(name: str) -> GraphPattern:
    """Describe a Dequantize of an int8 value, per tensor or by channel."""
    return op(ops.Dequantize, value(name, where=is_int8), capture=f"{name}_scale")


@rule(op(ops.MatMul, _read("a"), _read("b")))
def recognise_product(
    site: Site, a: str, b: str, a_scale: ops.Dequantize, b_scale: ops.Dequantize
) -> str | None:
    """MatMul of two dequantised values, read in float -> QMatMulSums, Dequantize.

    Rows of the first operand, columns of the second one, or heads may have scales of their own.
    """
    label, pair = site.root.name, (a_scale, b_scale)
    own = {
        (side, scaling.axis - len(site.shape_of(x)))
        for side, (x, scaling) in enumerate(zip((a, b), pair, strict=True))
        if scaling.axis is not None and len(scaling.scales) > 1
    }
    by_row, by_column, by_head = (
        own == {(0, -2)},
        own == {(1, -1)},
        {axis for _, axis in own} == {-3},
    )
    if own and not (by_row or by_column or by_head):
        return None
    points = [np.array(scaling.zero_points, np.int64) for scaling in pair]
    depth, (widest_a, widest_b) = site.shape_of(a)[-1], (128 + abs(z).max() for z in points)
    scales = [np.array(scaling.scales, np.float32) for scaling in pair]
    unit = output_scale(1.0, np.multiply(*scales), 1.0)
    if unit is None or 2 * depth * widest_a * widest_b >= 2**31:
        return None
    heads, operands = operands_of(site, a, b, label)
    if by_row:  # the rows of several heads may be those of one
        count = site.shape_of(operands[0])[2] // len(points[0])
        points[0], unit = np.tile(points[0], count)[:, None], np.tile(unit, count)
    elif by_head:
        if heads != len(unit):
            return None
        points = [one.reshape(-1, 1, 1) for one in points]
    sums = site.emit(ops.QMatMulSums(heads), *operands, label=label)
    sums = site.emit(ops.FromBytes(), sums, label=label)
    for border in _borders(site, operands, points, depth, label):
        sums = site.emit(ops.Binary("Sub"), sums, border, label=label)
    axis = 2 if by_row else 3 if by_column else 1 if by_head else None
    scaling = ops.Dequantize(tuple(map(float, unit)), (0,) * len(unit), axis)
    return reshaped(site, site.emit(scaling, sums, label=label), site.shape, label)


def _borders(
    site: Site, operands: Sequence[str], points: Sequence[np.ndarray], depth: int, label: str
) -> Iterator[str]:
    """Emit int32 row sums of `a` times zb, less a constant, and column sums of `b` times za.

    They are to be subtracted from the product. On chip, zero points of a product that is not
    requantised would double or triple its cycles; the host passes over all its sums anyway.
    """
    known = depth * points[0] * points[1]
    for x, axis, point, less in zip(
        operands, (3, 2), reversed(points), (known, known * 0), strict=True
    ):
        if not point.any():
            continue
        border = _sums_along(site, x, axis, label)
        for kind, numbers in ("Mul", point), ("Sub", less):
            if numbers.any():
                held = site.constant(numbers.astype(np.int32), f"{label}.{kind}")
                border = site.emit(ops.Binary(kind), border, held, label=label)
        yield border


def _sums_along(site: Site, x: str, axis: int, label: str) -> str:
    """Emit the int32 sums of int8 elements along an axis, which stays with extent 1."""
    # Sums of bytes are exact in float32, whose kernels are faster.
    real = site.emit(ops.Cast("float32"), x, label=label)
    total = site.emit(ops.Reduce("ReduceSum", (axis,), keep=True), real, label=label)
    return site.emit(ops.Cast("int32"), total, label=label)


@rule(op(*(ops.IntegerMatMul, computed("x", where=is_int8), constant("w")), value("zero")))
def recognise_integers(site: Site, x: str, w: str, zero: str) -> str | None:
    """IntegerMatMul -> QSums, less the products of a zero point, perhaps known only at run time.

    Weights beyond int8 are shifted into it; the sums of the rows make up for that.
    """
    whole, label = site.data(w).astype(np.int64), site.root.name
    shift = _shift(whole, axis=0)
    if not 0 < len(whole) < MAX_DEPTH or not site.root.output.type.elements:
        return None
    weights = site.constant((whole - shift).astype(np.int8)[None, None], f"{label}.weights")
    sums = site.emit(ops.QSums(*DENSE, 0), to_image(site, x, label), weights, label=label)
    sums = reshaped(site, site.emit(ops.FromBytes(), sums, label=label), site.shape, label)
    if shift.any():
        row = site.constant(shift.astype(np.int32), f"{label}.shift")
        more = site.emit(
            ops.Binary("Mul"), _sums_along(site, x, len(site.shape) - 1, label), row, label=label
        )
        sums = site.emit(ops.Binary("Add"), sums, more, label=label)
    if site.is_constant(zero) and not site.data(zero).any():
        return sums
    columns = site.constant(whole.sum(axis=0).astype(np.int32), f"{label}.columns")
    point = reshaped(site, site.emit(ops.Cast("int32"), zero, label=label), (1,), label)
    less = site.emit(ops.Binary("Mul"), point, columns, label=label)
    return site.emit(ops.Binary("Sub"), sums, less, label=label)


def recognise_products(graph: Graph) -> Graph:
    """Replace products of quantised values with wide results by QSums and QMatMulSums."""
    return rewrite(
        graph, recognise_layer, recognise_channels, recognise_product, recognise_integers
    )

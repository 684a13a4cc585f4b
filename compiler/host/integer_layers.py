"""Quantised layers that compute, bit-exact to the accelerator."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...isa.numbers import EXACT_LIMIT, INT8_MAX, INT8_MIN
from ..cpu import (
    BytePooling,
    ByteProduct,
    ByteSum,
    ByteTable,
    Convolution,
    Requantisation,
    Residual,
    has_small_pairs,
)
from ..cpu.kernels.byte_winograd import LIMIT
from ..graph import Node
from ..graph.operator import Quad
from ..graph.operators import (
    FromBytes,
    QAdd,
    QAvgPool,
    QConv,
    QLut,
    QMatMul,
    QMatMulSums,
    QMaxPool,
    QSums,
)
from ..rewriting import op, value
from .integer_bounds import are_narrow, fits, is_plain, largest_sums
from .kernel import HERE, HostKernel, HostScope, matcher

TAPS = 4
"""Elements of one dot product; adjacent heads are read in groups of this size."""

X = value("x", constant=False)

ADDED = op(QAdd, HERE, value("other", constant=False), capture="add", commutative=True)
"""The residual sum that a convolution's kernel may include."""

AS_SUMS = op(FromBytes, HERE)

AS_INT32 = Requantisation("int8", "int32", folded=True)
"""The end of a kernel whose sums are the result."""


def _quantised(layer: QConv | QAdd | QAvgPool | QMatMul, zero_point_in: int = 0) -> Requantisation:
    points = (zero_point_in, layer.zero_point_y, layer.low, layer.high)
    return Requantisation("int8", "int8", *points, folded=True)


# Convolutions and dense layers -------------------------------------------------------------------


@matcher(
    op(
        *(QConv, X, value("w", constant=True), value("bias", constant=True)),
        value("scale", constant=True),
        capture="layer",
    )
)
def match_layer(
    scope: HostScope, node: Node, layer: QConv, x: str, w: str, bias: str, scale: str
) -> HostKernel | None:
    """Match a QConv, and the QAdd that reads it."""
    kernel, addends, factors = map(scope.data, (w, bias, scale))
    sizes = largest_sums(kernel, addends)
    if not fits(sizes):
        return None
    plain = is_plain(sizes, factors)
    quantised = replace(_quantised(layer, layer.zero_point_x), guarded=not plain)
    shape = scope.image(x)
    constants = {"w": kernel, "bias": addends, "scale": factors}
    window: dict[str, Any] = {
        "kernel": kernel.shape[:2],
        "strides": layer.strides,
        "pads": layer.pads,
        "dilations": layer.dilations,
        "quantised": quantised,
    }
    if layer.groups == 1:
        described, constants["w"] = _dense(layer, shape, kernel, window)
        narrow, pairs = bool(np.all(sizes < LIMIT)), has_small_pairs(constants["w"])
        described = replace(described, narrow=narrow, small_pairs=pairs)
        inputs, nodes = {"x": x}, (node,)
        own, found = node.output.name, scope.behind(node, ADDED)
        if found is not None and found["other"] != own:
            added = _residual(found["add"], found.nodes[-1].inputs, own)
            if added is not None:
                described = replace(described, added=added)
                inputs["residual"], nodes = found["other"], (node, *found.nodes)
        return HostKernel(described, inputs, constants, nodes, exact=True)
    described = Convolution(*shape, kernel.shape[3], groups=layer.groups, **window)
    if described.is_depthwise:
        described = replace(described, narrow=plain and are_narrow(kernel, addends))
    else:
        described = replace(described, small_pairs=has_small_pairs(kernel))
    return HostKernel(described, {"x": x}, constants, (node,), exact=True)


@matcher(op(QSums, X, value("w", constant=True), capture="layer"))
def match_sums(scope: HostScope, node: Node, layer: QSums, x: str, w: str) -> HostKernel | None:
    """Match a QSums whose result is read as int32."""
    found, kernel = scope.behind(node, AS_SUMS), scope.data(w)
    channels = kernel.shape[3]
    if found is None or not fits(largest_sums(kernel, np.zeros(channels, np.int32))):
        return None
    quantised = replace(AS_INT32, zero_point_in=layer.zero_point_x)
    constants = {"w": kernel, "bias": np.zeros(channels, np.int32)}
    window: dict[str, Any] = {
        "kernel": kernel.shape[:2],
        "strides": layer.strides,
        "pads": layer.pads,
        "dilations": layer.dilations,
        "quantised": quantised,
    }
    described = Convolution(*scope.image(x), channels, groups=layer.groups, **window)
    described = replace(described, small_pairs=has_small_pairs(kernel))
    return HostKernel(described, {"x": x}, constants, (node, *found.nodes), exact=True)


def _dense(
    layer: QConv, shape: Quad, w: np.ndarray, window: Mapping[str, Any]
) -> tuple[Convolution, np.ndarray]:
    """Return the description and its weights; a window of the whole image is a single tap."""
    samples, rows, columns, depth = shape
    height, width, _, channels = w.shape
    if (height, width) == (rows, columns) and not any(layer.pads):
        taps = rows * columns * depth
        described = Convolution(1, 1, samples, taps, channels, quantised=window["quantised"])
        return described, w.reshape(1, 1, taps, channels)
    return Convolution(*shape, channels, **window), w


# Element by element ------------------------------------------------------------------------------


def _residual(layer: QAdd, inputs: tuple[str, ...], own: str) -> Residual | None:
    """Describe the addition of `own` to the other input; None if binary32 is too narrow.

    The sum is computed in binary32, which is exact while every part of it stays below 2**24.
    """
    place = inputs.index(own)
    first, second = layer.multipliers[place], layer.multipliers[1 - place]
    size = -INT8_MIN * (abs(first) + abs(second)) + abs(layer.constant)
    scale = float(np.float32(layer.scale))
    if size >= EXACT_LIMIT or not is_plain(size, scale):
        return None
    return Residual((first, second), layer.constant, scale, _quantised(layer))


@matcher(op(QAdd, value("a", constant=False), value("b", constant=False), capture="layer"))
def match_sum(scope: HostScope, node: Node, layer: QAdd, a: str, b: str) -> HostKernel | None:
    """Match a QAdd on its own."""
    added = _residual(layer, node.inputs, a)
    if added is None or scope.shape(a) != scope.shape(b):
        return None
    described = ByteSum(math.prod(scope.shape(a)), added)
    inputs = dict(zip(described.operands, node.inputs, strict=True))
    return HostKernel(described, inputs, {}, (node,), exact=True)


@matcher(op(QLut, X, value("table", constant=True)))
def match_table(scope: HostScope, node: Node, x: str, table: str) -> HostKernel | None:
    """Match a QLut."""
    described = ByteTable(math.prod(scope.shape(x)))
    return HostKernel(described, {"x": x}, {"table": scope.data(table)}, (node,), exact=True)


# Pools -------------------------------------------------------------------------------------------


@matcher(op((QAvgPool, QMaxPool), X, capture="layer"))
def match_pool(
    scope: HostScope, node: Node, layer: QAvgPool | QMaxPool, x: str
) -> HostKernel | None:
    """Match a QAvgPool or QMaxPool."""
    window: dict[str, Any] = {"kernel": layer.kernel, "strides": layer.strides, "pads": layer.pads}
    if isinstance(layer, QMaxPool):
        limits = Requantisation("int8", "int8", low=layer.low, high=layer.high, folded=True)
        window |= {"quantised": limits, "dilations": layer.dilations}
    else:
        size = -INT8_MIN * layer.kernel[0] * layer.kernel[1] + abs(layer.constant)
        scale = float(np.float32(layer.scale))
        if not fits(size) or not is_plain(size, scale):
            return None
        quantised = _quantised(layer, layer.zero_point_x)
        window |= {"quantised": quantised, "constant": layer.constant, "scale": scale}
    described = BytePooling(*scope.image(x), **window)
    return HostKernel(described, {"x": x}, {}, (node,), exact=True)


# Products of two activations ---------------------------------------------------------------------


@matcher(op((QMatMul, QMatMulSums), *(value(n, constant=False) for n in "ab"), capture="layer"))
def match_product(
    scope: HostScope, node: Node, layer: QMatMul | QMatMulSums, a: str, b: str
) -> HostKernel | None:
    """Match a QMatMul, or a QMatMulSums whose result is read as int32."""
    left, right, heads = scope.shape(a), scope.shape(b), layer.heads
    first, second, result = (together and heads > 1 for together in layer.joined)
    rows, inner = left[2], left[3] // heads if first else left[3]
    apart = right[3] // heads if second else right[3]
    columns = right[2] if layer.transposed else apart
    if (first or (second and layer.transposed)) and inner % TAPS:
        return None
    points = (layer.zero_point_a, layer.zero_point_b)
    size = inner * math.prod(max(INT8_MAX - z, z - INT8_MIN) for z in points)
    nodes, scale, quantised = (node,), 1.0, AS_INT32
    if isinstance(layer, QMatMul):
        scale, quantised = float(np.float32(layer.scale)), _quantised(layer)
    elif found := scope.behind(node, AS_SUMS):
        nodes = (node, *found.nodes)
    else:
        return None
    if not fits(size) or not is_plain(size, scale):
        return None
    described = ByteProduct(
        *(left[0], heads, rows, inner, columns),
        zero_points=points,
        scale=scale,
        quantised=quantised,
        transposed=layer.transposed,
        joined=(first, second, result),
    )
    inputs = dict(zip(described.operands, node.inputs, strict=True))
    return HostKernel(described, inputs, {}, nodes, exact=True)


MATCHERS = (match_layer, match_sums, match_sum, match_table, match_pool, match_product)

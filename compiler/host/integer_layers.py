"""Quantised layers that compute, bit-exact to the accelerator."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...isa.numbers import EXACT_LIMIT, INT8_MAX, INT8_MIN
from ..cpu import (
    BytePooling,
    ByteTable,
    Convolution,
    Epilogue,
    HeadProduct,
    MatrixProduct,
    Requantisation,
    Residual,
    dequantised,
    has_small_pairs,
)
from ..cpu.kernels.byte_winograd import LIMIT
from ..cpu.kernels.epilogue import HEAD_SCALE
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
from ..rewriting import computed, constant, op
from .integer_bounds import are_narrow, fits, is_plain, largest_sums
from .kernel import HERE, HostKernel, HostScope, matcher, matcher_of

X = computed("x")

ADDED = op(QAdd, HERE, computed("other"), capture="add", commutative=True)
"""The residual sum that a convolution's kernel may include."""

AS_SUMS = op(FromBytes, HERE)


def _quantised(layer: QConv | QAdd | QAvgPool | QMatMul) -> Requantisation:
    return Requantisation("int8", layer.zero_point_y, layer.low, layer.high)


# Convolutions and dense layers -------------------------------------------------------------------


@matcher(op(*(QConv, X, constant("w"), constant("bias")), constant("scale"), capture="layer"))
def match_layer(
    scope: HostScope, node: Node, layer: QConv, x: str, w: str, bias: str, scale: str
) -> HostKernel | None:
    """Match a QConv, and the QAdd that reads it."""
    kernel, addends, factors = map(scope.data, (w, bias, scale))
    sizes = largest_sums(kernel, addends)
    if not fits(sizes):
        return None
    plain = is_plain(sizes, factors)
    inputs, nodes, added = {"x": x}, (node,), None
    found = scope.behind(node, ADDED)
    shape = scope.shape(node.output.name)
    if found is not None and {*map(scope.shape, found.nodes[-1].inputs)} != {shape}:
        found = None  # another operand is broadcast
    if found is not None and found["other"] != node.output.name:
        added = _residual(found["add"], found.nodes[-1].inputs, node.output.name)
        if added is not None:
            inputs["residual"], nodes = found["other"], (node, *found.nodes)
    epilogue = replace(_quantised(layer), guarded=not plain).epilogue(added)
    (height, width, _, channels), image = kernel.shape, scope.image(x)
    if layer.groups == 1 and (height, width) == image[1:3] and not any(layer.pads):
        kernel = kernel.reshape(-1, channels)  # a window of the whole image is a row
        extents, small = (image[0], *kernel.shape), has_small_pairs(kernel)
        described = MatrixProduct(*extents, "int8", epilogue, small_pairs=small)
    else:
        described = _convolution(layer, image, kernel, epilogue)
        narrow = np.all(sizes < LIMIT)
        if described.is_depthwise:
            narrow = plain and are_narrow(kernel, addends)
        described = replace(described, narrow=bool(narrow))
    constants = {"w": kernel, "bias": addends, "scale": factors}
    return HostKernel(described, inputs, constants, nodes, exact=True)


@matcher(op(QSums, X, constant("w"), capture="layer"))
def match_sums(scope: HostScope, node: Node, layer: QSums, x: str, w: str) -> HostKernel | None:
    """Match a QSums whose result is read as int32."""
    found, kernel = scope.behind(node, AS_SUMS), scope.data(w)
    bias = np.zeros(kernel.shape[3], np.int32)
    if found is None or not fits(largest_sums(kernel, bias)):
        return None
    described = _convolution(layer, scope.image(x), kernel, dequantised(has_row=False))
    constants = {"w": kernel, "bias": bias}
    return HostKernel(described, {"x": x}, constants, (node, *found.nodes), exact=True)


def _convolution(
    layer: QConv | QSums, image: Quad, w: np.ndarray, epilogue: Epilogue
) -> Convolution:
    window = (w.shape[0], w.shape[1]), layer.strides, layer.pads, layer.dilations
    return Convolution(
        *(*image, w.shape[3], *window, "int8", layer.zero_point_x, epilogue),
        small_pairs=has_small_pairs(w),
        groups=layer.groups,
    )


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


@matcher(op(QLut, X, constant("table")))
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
        limits = Requantisation("int8", low=layer.low, high=layer.high)
        window |= {"quantised": limits, "dilations": layer.dilations}
    else:
        size = -INT8_MIN * layer.kernel[0] * layer.kernel[1] + abs(layer.constant)
        scale = float(np.float32(layer.scale))
        if not fits(size) or not is_plain(size, scale):
            return None
        window |= {"quantised": _quantised(layer), "zero_point": layer.zero_point_x}
        window |= {"constant": layer.constant, "scale": scale}
    described = BytePooling(*scope.image(x), **window)
    return HostKernel(described, {"x": x}, {}, (node,), exact=True)


# Products of two activations ---------------------------------------------------------------------


@matcher_of(
    *((QMatMul, QMatMulSums), *(computed(n) for n in "ab")),
    capture="layer",
    where=lambda layer: layer.repeats == 1 or not (layer.joined[0] or layer.joined[2]),
)
def match_product(
    scope: HostScope, node: Node, layer: QMatMul | QMatMulSums, a: str, b: str
) -> HostKernel | None:
    """Match a QMatMul, or a QMatMulSums whose result is read as int32."""
    left, right, heads = scope.shape(a), scope.shape(b), layer.heads // layer.repeats
    first, second, result = (together and heads > 1 for together in layer.joined)
    # The rows of heads that share one of b lie one below the other.
    rows, inner = layer.repeats * left[2], left[3] // heads if first else left[3]
    apart = right[3] // heads if second else right[3]
    columns = right[2] if layer.transposed else apart
    points = (layer.zero_point_a, layer.zero_point_b)
    size = inner * math.prod(max(INT8_MAX - z, z - INT8_MIN) for z in points)
    if not fits(size):
        return None
    nodes, epilogue, constants = (node,), Epilogue("sum", "int32"), {}
    if isinstance(layer, QMatMul):
        scales = np.array(layer.scale, np.float32)
        if not all(is_plain(size, float(scale)) for scale in scales.flat):
            return None
        factor, operands = float(scales.flat[0]), ()
        if layer.by_head:
            factor, operands, constants = "scale", (HEAD_SCALE,), {"scale": scales}
        epilogue = Epilogue(_quantised(layer).requantised("sum", factor), "int8", operands)
    elif found := scope.behind(node, AS_SUMS):
        nodes = (node, *found.nodes)
    else:
        return None
    described = HeadProduct(
        *(left[0], heads, rows, inner, columns, layer.transposed, (first, second, result)),
        dtype="int8",
        zero_points=points,
        epilogue=epilogue,
    )
    return HostKernel(described, dict(zip("ab", (a, b), strict=True)), constants, nodes, exact=True)


MATCHERS = (match_layer, match_sums, match_table, match_pool, match_product)

"""Recognise quantised products of two activations: two Dequantize, MatMul, Quantize -> QMatMul.

A constant factor after the product, such as the inverse square root in attention, becomes part of
the scale; each head may have its own, such as the temperatures of SwinV2. A product stays on the
host if the machine might not requantise its sums exactly.
"""

from math import prod

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..graph import Quantisation
from ..graph import operators as ops
from ..graph.accumulators import SMALL_SCALE
from ..rewriting import GraphPattern, Site, either, op, rule
from .patterns import (
    dequantised,
    known,
    known_data,
    of_images,
    quantised,
    reshaped,
    result_of,
    scale_of,
)
from .recognise_convolutions import output_scale

PRODUCT = op(
    *(ops.MatMul, dequantised("a"), dequantised("b")),
    capture="product",
)


def _scaled(product: GraphPattern) -> GraphPattern:
    """Describe a value that may be multiplied or divided by a `factor`."""
    times = op(ops.Binary("Mul"), product, known("factor"), commutative=True)
    over = op(ops.Binary("Div"), product, known("factor"), capture="divides")
    return either(product, times, over)


@rule(quantised(_scaled(PRODUCT)))
def recognise_matmuls(
    site: Site, factor: str | None, divides: ops.Binary | None, a: str, b: str
) -> str | None:
    """Quantize(clamps(factor * MatMul(Dequantize(a), Dequantize(b)))) -> QMatMul(a, b).

    Replace quantised MatMul of two values computed at run time by QMatMul.
    """
    depth, label = site.shape_of(a)[-1], site.node("product").name
    shape, held = site.shape, np.ones((), np.float32)
    share = by_head(held if factor is None else known_data(site.view, factor), shape)
    if share is None:
        return None
    with np.errstate(divide="ignore"):
        share = np.float32(1) / share if divides else share
    if not ((share > 0) & (share < np.inf)).all():
        return None
    first, second, (y, limits) = scale_of(site, "a"), scale_of(site, "b"), result_of(site)
    with np.errstate(over="ignore", under="ignore"):
        second_scale = np.float32(second.scale) * share
    scales = output_scale(first.scale, second_scale, y.scale)
    if scales is None or not _exact(depth, first, second, float(scales.min())):
        return None
    heads, operands = operands_of(site, a, b, label)
    if len(scales) not in (1, heads):
        return None
    scale = tuple(map(float, scales)) if len(scales) > 1 else float(scales[0])
    operator = ops.QMatMul(
        *(heads, scale, first.zero_point, second.zero_point, y.zero_point),
        *(False, (False, False, False)),
        *limits,
    )
    return of_images(site, operator, *operands, label=label, quantisation=y)


def by_head(factor: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a factor of products of this shape, float32[1 or heads]; None if it has others."""
    if factor is None or factor.dtype != np.float32:
        return None
    sizes = (1,) * (len(shape) - factor.ndim) + factor.shape
    heads = sizes[-3] if len(sizes) > 2 else 1
    fits = len(sizes) == len(shape) and heads == factor.size and heads in (1, *shape[-3:-2])
    if not fits:
        return None
    values = factor.reshape(-1)
    return values[:1] if (values == values[:1]).all() else values


def operands_of(site: Site, a: str, b: str, label: str) -> tuple[int, list[str]]:
    """Return the number of heads, and emit the operands as int8[N, heads, rows, channels].

    All rows that multiply one matrix are those of one head. Other operands that several images or
    heads share are repeated; see `absorb_repeats`.
    """
    first, second = site.shape_of(a), site.shape_of(b)
    if prod(second[:-2]) == 1:
        first, second = (prod(first[:-1]), first[-1]), second[-2:]
    outer = np.broadcast_shapes(first[:-2], second[:-2])
    operands = []
    for x, shape in (a, first), (b, second):
        if prod(shape[:-2]) < prod(outer):
            x = site.emit(ops.Expand((*outer, *shape[-2:])), x, label=label)
        image = prod(outer[:-1]), prod(outer[-1:]), *shape[-2:]
        operands.append(reshaped(site, x, image, label))
    return prod(outer[-1:]), operands


def widest_sum(depth: int, a: Quantisation, b: Quantisation) -> int:
    """Return the largest magnitude of a sum of `depth` products."""
    widest = [max(127 - one.zero_point, 128 + one.zero_point) for one in (a, b)]
    return depth * widest[0] * widest[1]


def _exact(depth: int, a: Quantisation, b: Quantisation, scale: float) -> bool:
    """Whether every sum fits int32 and is requantised as in binary32; see `numbers`."""
    largest = widest_sum(depth, a, b)
    return largest < EXACT_LIMIT or (largest < 2**31 and scale >= SMALL_SCALE)

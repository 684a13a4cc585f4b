"""Recognise quantised products of two activations: two Dequantize, MatMul, Quantize -> QMatMul.

A constant factor after the product, such as the inverse square root in attention, becomes part of
the scale. A product stays on the host if it broadcasts one operand over images or heads, or if the
machine might not requantise its sums exactly.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..graph import Quantisation
from ..graph import operators as ops
from ..graph.accumulators import SMALL_SCALE
from ..rewriting import GraphPattern, Site, either, op, rule
from .patterns import (
    dequantised,
    known,
    known_number,
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
    left, right, label = site.shape_of(a), site.shape_of(b), site.node("product").name
    outer = left[:-2]
    share = np.float32(1) if factor is None else known_number(site.view, factor)
    if share is None or outer != right[:-2]:
        return None
    with np.errstate(divide="ignore"):
        share = np.float32(1) / share if divides else share
    if not 0 < share < np.inf:
        return None
    first, second, (y, limits) = scale_of(site, "a"), scale_of(site, "b"), result_of(site)
    with np.errstate(over="ignore", under="ignore"):
        second_scale = np.array([np.float32(second.scale) * share])
    scales = output_scale(first.scale, second_scale, y.scale)
    if scales is None or not _exact(left[-1], first, second, scale := float(scales[0])):
        return None
    heads, operands = operands_of(site, a, b, label)
    operator = ops.QMatMul(
        *(heads, scale, first.zero_point, second.zero_point, y.zero_point),
        *(False, (False, False, False)),
        *limits,
    )
    return of_images(site, operator, *operands, label=label, quantisation=y)


def operands_of(site: Site, a: str, b: str, label: str) -> tuple[int, list[str]]:
    """Return the number of heads, and emit the operands as int8[N, heads, rows, channels]."""
    *outer, _, _ = site.shape_of(a)
    heads = outer[-1] if outer else 1
    images = int(np.prod(outer[:-1], dtype=np.int64))
    return heads, [
        reshaped(site, one, (images, heads, *site.shape_of(one)[-2:]), label) for one in (a, b)
    ]


def widest_sum(depth: int, a: Quantisation, b: Quantisation) -> int:
    """Return the largest magnitude of a sum of `depth` products."""
    widest = [max(127 - one.zero_point, 128 + one.zero_point) for one in (a, b)]
    return depth * widest[0] * widest[1]


def _exact(depth: int, a: Quantisation, b: Quantisation, scale: float) -> bool:
    """Whether every sum fits int32 and is requantised as in binary32; see `numbers`."""
    largest = widest_sum(depth, a, b)
    return largest < EXACT_LIMIT or (largest < 2**31 and scale >= SMALL_SCALE)

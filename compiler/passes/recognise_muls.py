"""Recognise quantised elementwise products: two Dequantize, Mul, Quantize -> QMul.

The second operand may be broadcast, such as one factor for each channel of a squeeze-and-excite
block. Products of one value with itself or with a function of it are tables already.
"""

from ..graph import operators as ops
from ..graph.fit import fit_product
from ..rewriting import Site, op, rule
from .patterns import (
    channels_first,
    dequantised,
    of_images,
    quantised,
    reshaped,
    result_of,
    scale_of,
    to_image,
)

PRODUCT = op(ops.Binary("Mul"), dequantised("a"), dequantised("b"), capture="mul")

IMAGE = 4
"""Dimensions of an operand that QMul reads as it is."""


@rule(quantised(PRODUCT))
def recognise_muls(site: Site, a: str, b: str) -> str | None:
    """Quantize(clamps(Mul(Dequantize(a), Dequantize(b)))) -> QMul(a, b).

    Replace quantised products of two values by QMul.
    """
    shape, label = site.shape, site.node("mul").name
    first, second = scale_of(site, "a"), scale_of(site, "b")
    if site.shape_of(a) != shape:
        a, b, first, second = b, a, second, first
    small = site.shape_of(b)
    small = (1,) * (len(shape) - len(small)) + small
    broadcast = small != shape
    if site.shape_of(a) != shape or (broadcast and len(shape) > IMAGE) or max(small, default=1) < 2:
        return None
    y, (low, high) = result_of(site)
    fit = fit_product(first, second, y, low, high)
    operator = ops.QMul(
        *(fit.scale, first.zero_point, second.zero_point, y.zero_point),
        *(low, high, fit.mismatches),
    )
    images = to_image(site, a, label), to_image(site, reshaped(site, b, small, label), label)
    if broadcast and len(shape) == IMAGE and small[1] == shape[1] and small[3] == 1:
        return channels_first(site, operator, *images, label=label, quantisation=y)
    return of_images(site, operator, *images, label=label, quantisation=y)

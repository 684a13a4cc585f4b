"""Recognise quantised elementwise products: two Dequantize, Mul, Quantize -> QMul.

The second operand may be broadcast, such as one factor for each channel of a squeeze-and-excite
block. Products of one value with itself or with a function of it are tables already.
"""

from ..graph import operators as ops
from ..graph.fit import fit_product
from ..rewriting import Site, op, rule
from .patterns import dequantised, of_pair, quantised, result_of, scale_of

PRODUCT = op(ops.Binary("Mul"), dequantised("a"), dequantised("b"), capture="mul")


@rule(quantised(PRODUCT))
def recognise_muls(site: Site, a: str, b: str) -> str | None:
    """Quantize(clamps(Mul(Dequantize(a), Dequantize(b)))) -> QMul(a, b).

    Replace quantised products of two values by QMul.
    """
    label, first, second = site.node("mul").name, scale_of(site, "a"), scale_of(site, "b")
    if site.shape_of(a) != site.shape:
        a, b, first, second = b, a, second, first
    y, (low, high) = result_of(site)
    fit = fit_product(first, second, y, low, high)
    operator = ops.QMul(
        *(fit.scale, first.zero_point, second.zero_point, y.zero_point),
        *(low, high, fit.mismatches),
    )
    return of_pair(site, operator, a, b, label=label, quantisation=y)

"""Recognise residual adds: two Dequantize, Add or Sub, Quantize -> QAdd with fitted constants.

An operand may be constant, such as position embeddings; it is repeated to the result's shape. A
single number is left to the tables, which also hold what is computed before and after, as in GELU.
"""

import numpy as np

from ..graph import operators as ops
from ..graph.fit import fit_add
from ..rewriting import Site, op, rule
from .patterns import dequantised, of_images, quantised, result_of, scale_of

SIGNS = {"Add": 1, "Sub": -1}

SUM = op(
    tuple(ops.Binary(kind) for kind in SIGNS),
    *(dequantised("a"), dequantised("b")),
    capture="add",
)


@rule(quantised(SUM))
def recognise_adds(site: Site, add: ops.Binary, a: str, b: str) -> str | None:
    """Quantize(clamps(Add | Sub(Dequantize(a), Dequantize(b)))) -> QAdd(a, b).

    Replace quantised additions by QAdd. An operand may be smaller, such as a mask of keys.
    """
    shape, label = site.shape, site.node("add").name
    constants = [name for name in (a, b) if site.is_constant(name)]
    if len(constants) == 2 or any(site.data(name).size == 1 for name in constants):
        return None
    if shape not in (site.shape_of(name) for name in {a, b}.difference(constants)):
        return None
    y, (low, high) = result_of(site)
    fit = fit_add(scale_of(site, "a"), scale_of(site, "b"), y, low, high, SIGNS[add.kind])
    operator = ops.QAdd(
        fit.multipliers, fit.constant, fit.scale, y.zero_point, low, high, fit.mismatches
    )
    whole = [_repeated(site, operand) for operand in (a, b)]
    return of_images(site, operator, *whole, label=label, quantisation=y)


def _repeated(site: Site, operand: str) -> str:
    """Return an operand in the result's shape."""
    if site.shape_of(operand) == site.shape:
        return operand
    if not site.is_constant(operand):
        return site.emit(ops.Expand(site.shape), operand)
    return site.constant(np.broadcast_to(site.data(operand), site.shape), operand)

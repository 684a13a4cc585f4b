"""Recognise residual adds: two Dequantize, Add or Sub, Quantize -> QAdd with fitted constants.

An operand may be broadcast, such as one term for each channel, or constant, such as position
embeddings; a constant is repeated to the result's shape. A single number is left to the tables,
which also hold what is computed before and after, as in GELU.
"""

import numpy as np

from ..graph import operators as ops
from ..graph.fit import fit_add
from ..rewriting import Site, op, rule
from .patterns import dequantised, of_pair, quantised, result_of, scale_of

SIGNS = {"Add": 1, "Sub": -1}

SUM = op(
    tuple(ops.Binary(kind) for kind in SIGNS),
    *(dequantised("a"), dequantised("b")),
    capture="add",
)


@rule(quantised(SUM))
def recognise_adds(site: Site, add: ops.Binary, a: str, b: str) -> str | None:
    """Quantize(clamps(Add | Sub(Dequantize(a), Dequantize(b)))) -> QAdd(a, b).

    Replace quantised additions by QAdd.
    """
    shape, label = site.shape, site.node("add").name
    constants = [name for name in (a, b) if site.is_constant(name)]
    if len(constants) == 2 or any(site.data(name).size == 1 for name in constants):
        return None
    y, (low, high) = result_of(site)
    fit = fit_add(scale_of(site, "a"), scale_of(site, "b"), y, low, high, SIGNS[add.kind])
    (first, second), (by_a, by_b) = (_filled(site, name) for name in (a, b)), fit.multipliers
    if site.shape_of(first) != shape:
        first, second, by_a, by_b = second, first, by_b, by_a
    operator = ops.QAdd(
        (by_a, by_b), fit.constant, fit.scale, y.zero_point, low, high, fit.mismatches
    )
    return of_pair(site, operator, first, second, label=label, quantisation=y)


def _filled(site: Site, operand: str) -> str:
    """Return an operand; a constant is repeated to the result's shape."""
    if not site.is_constant(operand):
        return operand
    return site.constant(np.broadcast_to(site.data(operand), site.shape), operand)

"""Recognise residual adds: two Dequantize, Add or Sub, Quantize -> QAdd with fitted constants."""

from ..graph import Graph
from ..graph import operators as ops
from ..graph.fit import fit_add
from ..rewriting import Site, op, rewrite, rule
from .patterns import dequantised, quantised, reshaped, result_of, scale_of, to_image

SIGNS = {"Add": 1, "Sub": -1}

SUM = op(
    tuple(ops.Binary(kind) for kind in SIGNS),
    *(dequantised("a", constant=False), dequantised("b", constant=False)),
    capture="add",
)


@rule(quantised(SUM))
def recognise(site: Site, add: ops.Binary, a: str, b: str) -> str | None:
    """Quantize(clamps(Add | Sub(Dequantize(a), Dequantize(b)))) -> QAdd(a, b)."""
    shape, label = site.shape_of(a), site.node("add").name
    if shape != site.shape_of(b):
        return None
    y, (low, high) = result_of(site)
    fit = fit_add(scale_of(site, "a"), scale_of(site, "b"), y, low, high, SIGNS[add.kind])
    operator = ops.QAdd(
        fit.multipliers, fit.constant, fit.scale, y.zero_point, low, high, fit.mismatches
    )
    images = [to_image(site, operand, label) for operand in (a, b)]
    result = site.emit(operator, *images, label=label, quantisation=y)
    return reshaped(site, result, shape, label)


def recognise_adds(graph: Graph) -> Graph:
    """Replace quantised additions of two tensors of one shape by QAdd."""
    return rewrite(graph, recognise)

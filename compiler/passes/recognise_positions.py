"""Recognise sums with constants of one value for each element, such as position embeddings.

A constant of 8 bits may move a result by 1, as other meanings of machines with `row_statistics` do.
"""

import numpy as np

from ..graph import Graph, Quantisation, evaluate_operator
from ..graph import operators as ops
from ..graph.fit import fit_add
from ..rewriting import Site, constant, each, op, rewrite, rule, value
from .patterns import dequantised, is_float32, of_images, quantised, result_of, scale_of
from .recognise_concats import recognise_concats

ADD = ops.Binary("Add")
CONSTANT = constant("constant", where=is_float32)
JOINED = op(ops.Concat, each(value("parts")), capture="concat")


@rule(quantised(op(ADD, JOINED, CONSTANT, commutative=True)))
def quantise_parts(
    site: Site, concat: ops.Concat, parts: tuple[str, ...], constant: str
) -> str | None:
    """Quantize(Concat(x, ...) + c) -> Concat(Quantize(x + its part of c), ...)."""
    if site["clamps"] or len(site.shape) < 2:
        return None
    whole = np.broadcast_to(site.data(constant), site.shape)
    ends = np.cumsum([site.shape_of(part)[concat.axis] for part in parts])
    target, found = site["target"], []
    for part, added in zip(parts, np.split(whole, ends[:-1], concat.axis), strict=True):
        if site.is_constant(part):
            held = evaluate_operator(target, [site.data(part) + added])
            found.append(site.constant(held, f"{part}.quantised"))
        else:
            total = site.emit(ADD, part, site.constant(added, f"{constant}.part"))
            found.append(site.emit(target, total))
    y, _ = result_of(site)
    return site.emit(concat, *found, quantisation=y)


@rule(quantised(op(ADD, dequantised("x", constant=False), CONSTANT, commutative=True)))
def add_constant(site: Site, x: str, constant: str) -> str | None:
    """Quantize(Dequantize(x) + c) -> QAdd(x, c in 8 bits), if that moves a result by 1 at most."""
    given, (y, limits) = scale_of(site, "x"), result_of(site)
    data = np.broadcast_to(site.data(constant), site.shape)
    low, high = float(data.min(initial=0)), float(data.max(initial=0))
    scale = float(np.float32((high - low) / 255))
    if site.shape_of(x) != site.shape or data.size < 2 or not 0 < scale <= y.scale:
        return None
    held = Quantisation(scale, round(-128 - low / scale))
    fit = fit_add(given, held, y, *limits, 1)
    operator = ops.QAdd(
        fit.multipliers, fit.constant, fit.scale, y.zero_point, *limits, fit.mismatches
    )
    integers = evaluate_operator(ops.Quantize((scale,), (held.zero_point,), "int8"), [data])
    other = site.constant(integers, f"{constant}.integers")
    return of_images(site, operator, x, other, quantisation=y)


def recognise_positions(graph: Graph) -> Graph:
    """Replace sums with constants by QAdd, and those of joined values by sums of the parts."""
    return recognise_concats(rewrite(graph, quantise_parts, add_constant))

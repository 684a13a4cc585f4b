"""Recognise quantised pools: Dequantize, AveragePool, Quantize -> QAvgPool; MaxPool -> QMaxPool.

An average may be multiplied by a number, as Quark does for processors that divide by shifts.

Averages over varying numbers of elements (padding that does not count) stay on the host.
"""

import math

from ..graph import Graph
from ..graph import operators as ops
from ..graph.fit import fit_average
from ..rewriting import Site, either, op, rewrite, rule, value
from .patterns import (
    channels_first,
    dequantised,
    is_int8,
    known,
    known_number,
    quantised,
    result_of,
    scale_of,
)

MAX_WINDOW = 1 << 16
"""From this number of elements, a window's sum may leave the exactly requantised range."""


def is_even(pool: ops.AveragePool) -> bool:
    """Tell whether all windows of a pool of images average over the same block of elements."""
    even = not any(pool.overhang) and (not any(pool.pads) or pool.count_include_pad)
    return even and pool.dilations == (1, 1)


POOL = op(ops.AveragePool, dequantised("x"), capture="pool", where=is_even)


@rule(quantised(either(POOL, op(ops.Binary("Mul"), POOL, known("factor"), commutative=True))))
def recognise_average(site: Site, pool: ops.AveragePool, x: str, factor: str | None) -> str | None:
    """Quantize(clamps(AveragePool(Dequantize(x)) * factor?)) -> QAvgPool(x)."""
    count = math.prod(pool.kernel)
    times = 1.0 if factor is None else known_number(site.view, factor)
    if count >= MAX_WINDOW or times is None or not 0 < times < math.inf:
        return None
    given, (y, (low, high)) = scale_of(site, "x"), result_of(site)
    fit = fit_average(count, given, y, low, high, float(times))
    operator = ops.QAvgPool(
        *(pool.kernel, pool.strides, pool.pads, given.zero_point),
        *(-count * given.zero_point, fit.scale, y.zero_point, low, high, fit.mismatches),
    )
    return channels_first(site, operator, x, label=site.node("pool").name, quantisation=y)


@rule(op(ops.MaxPool, value("x", where=is_int8), capture="pool", where=lambda p: p.is_image))
def recognise_maximum(site: Site, pool: ops.MaxPool, x: str) -> str | None:
    """MaxPool of int8 -> QMaxPool."""
    operator = ops.QMaxPool(pool.kernel, pool.strides, pool.pads, pool.dilations)
    return channels_first(site, operator, x)


def recognise_pools(graph: Graph) -> Graph:
    """Replace quantised pools by QAvgPool and QMaxPool."""
    return rewrite(graph, recognise_average, recognise_maximum)

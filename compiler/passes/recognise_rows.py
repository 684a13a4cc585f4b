"""Recognise softmax between Dequantize and Quantize, for machines with `row_statistics`.

The integers of such a machine differ from the float operators in a few results, by 1 at most. So
other machines keep the float operators, and this is no part of the recipe.
"""

import math

from ...isa.configuration import Configuration
from ...isa.meanings.softmax import MAX_KEYS
from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import GraphPattern, Site, op, repeated, rewrite, rule, value
from .patterns import dequantised, quantised, reshaped, result_of, scale_of, to_image

USUAL_SCALES = 2.0**-60, 2.0**60
"""Between them, the scales of all rows are normal binary32 numbers."""


def _reshaped(inner: GraphPattern) -> GraphPattern:
    """Describe a value after any reshapes."""
    return repeated(op(ops.Reshape, value()), inner)


@rule(quantised(op(ops.Softmax, _reshaped(dequantised("x")), capture="softmax")))
def recognise_softmax(site: Site, softmax: ops.Softmax, x: str) -> str | None:
    """Quantize(Softmax(Dequantize(x))) -> QSoftmax(x), over the last axes."""
    made = site.node("softmax")
    shape = made.output.type.shape
    keys = math.prod(shape[softmax.axis :])
    given, (y, limits) = scale_of(site, "x"), result_of(site)
    least, most = USUAL_SCALES
    if softmax.log or softmax.stop != len(shape) or not keys <= MAX_KEYS:
        return None
    if not all(least <= scale <= most for scale in (given.scale, y.scale)):
        return None
    rows = (*shape[: softmax.axis], keys)
    image = to_image(site, reshaped(site, x, rows, made.name), made.name)
    operator = ops.QSoftmax(given.scale, y.scale, y.zero_point, *limits)
    result = site.emit(operator, image, label=made.name, quantisation=y)
    return reshaped(site, result, site.shape, made.name)


def recognise_rows(graph: Graph, configuration: Configuration) -> Graph:
    """Replace quantised softmax by QSoftmax if the machine has statistics over rows."""
    if configuration.row_statistics == "none":
        return graph
    return rewrite(graph, recognise_softmax)

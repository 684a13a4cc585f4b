"""Recognise concatenations of integers: Concat of int8 -> QConcat.

`sink_dequantize` already turned Dequantize, Concat, Quantize into a Concat of integers, with a
Quantize after each Dequantize. If the two differ, they become a table of all 256 values.
"""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, each, op, rewrite, rule, value
from .patterns import TO_LAST, channels_first, is_int8, reshaped, to_image

CHANNELS = 3
"""Axis of a QConcat along channels."""


@rule(op(ops.Concat, each(value("x", constant=False)), capture="concat", result=is_int8))
def recognise(site: Site, concat: ops.Concat, x: tuple[str, ...]) -> str | None:
    """Concat(x, ...) -> QConcat(x, ...), channels last; vectors are images of one pixel."""
    kind = site.root.output.type
    if 0 in kind.shape:
        return None
    if len(kind.shape) == len(TO_LAST):
        joined = ops.QConcat(TO_LAST.index(concat.axis))
        return channels_first(site, joined, *x, quantisation=kind.quantisation)
    if len(kind.shape) == 2 and concat.axis == 1:
        images = [to_image(site, part) for part in x]
        return reshaped(site, site.become(ops.QConcat(CHANNELS), *images), kind.shape)
    return None


def recognise_concats(graph: Graph) -> Graph:
    """Replace Concat of int8 images, and of int8 vectors, by QConcat."""
    return rewrite(graph, recognise)

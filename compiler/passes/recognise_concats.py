"""Recognise concatenations of integers: Concat of int8 -> QConcat.

`sink_dequantize` already turned Dequantize, Concat, Quantize into a Concat of integers, with a
Quantize after each Dequantize. If the two differ, they become a table of all 256 values.
"""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, each, op, rewrite, rule, value
from .patterns import TO_LAST, channels_first, is_int8, reshaped, to_image

IMAGE_AXES = {2: (0, 3), 3: (0, 2, 3)}
"""Rank of a tensor -> the axes of the image [N, 1, middle, C] that holds it; see `image_shape`."""


ROWS = 2
"""The axis along which past and present keys of heads [N, heads, rows, channels] are joined."""


@rule(op(ops.Concat, each(value("x")), capture="concat", result=is_int8))
def recognise(site: Site, concat: ops.Concat, x: tuple[str, ...]) -> str | None:
    """Concat(x, ...) -> QConcat(x, ...), channels last; some of the parts may be constant."""
    kind = site.root.output.type
    if 0 in kind.shape:
        return None
    if len(kind.shape) == len(TO_LAST):
        if concat.axis == ROWS and any(_has_channels_last(site, part) for part in x):
            return site.become(ops.QConcat(ROWS), *x)
        joined = ops.QConcat(TO_LAST.index(concat.axis))
        return channels_first(site, joined, *x, quantisation=kind.quantisation)
    if len(kind.shape) in IMAGE_AXES:
        images = [to_image(site, part) for part in x]
        joined = ops.QConcat(IMAGE_AXES[len(kind.shape)][concat.axis])
        return reshaped(site, site.become(joined, *images), kind.shape)
    return None


def _has_channels_last(site: Site, part: str) -> bool:
    """Tell whether a part comes from rows that were moved whole, as heads of attention are."""
    made = site.view.producer(part)
    match made.attributes if made else None:
        case ops.Transpose(permutation=order):
            return order[-1] == len(order) - 1
        case ops.Reshape():
            return True
    return False


def recognise_concats(graph: Graph) -> Graph:
    """Replace Concat of int8 by QConcat."""
    return rewrite(graph, recognise)

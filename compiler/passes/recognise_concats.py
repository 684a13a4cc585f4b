"""Recognise concatenations of integers: Concat of int8 -> QConcat.

`sink_dequantize` already turned Dequantize, Concat, Quantize into a Concat of integers, with a
Quantize after each Dequantize. If the two differ, they become a table of all 256 values.
"""

import math

from ..graph import operators as ops
from ..rewriting import Site, each, op, rule, value
from .patterns import TO_LAST, channels_first, is_int8, of_images, reshaped

IMAGE_AXES = {2: (0, 3), 3: (0, 2, 3)}
"""Rank of a tensor -> the axes of the image [N, 1, middle, C] that holds it; see `image_shape`."""


ROWS = 2
"""The axis along which past and present keys of heads [N, heads, rows, channels] are joined."""


@rule(op(ops.Concat, each(value("x")), capture="concat", result=is_int8))
def recognise_concats(site: Site, concat: ops.Concat, x: tuple[str, ...]) -> str | None:
    """Concat(x, ...) -> QConcat(x, ...), channels last; some of the parts may be constant."""
    kind = site.root.output.type
    if 0 in kind.shape:
        return None
    if len(kind.shape) == len(TO_LAST):
        if concat.axis == ROWS and any(_comes_from_rows(site, part, True) for part in x):
            return site.become(ops.QConcat(ROWS), *x)
        if concat.axis == 1 and any(_comes_from_rows(site, part, False) for part in x):
            shapes = [site.shape_of(part) for part in x]
            rows = [(n, 1, count, heads * size) for n, count, heads, size in shapes]
            parts = [reshaped(site, *each) for each in zip(x, rows, strict=True)]
            return reshaped(site, site.become(ops.QConcat(ROWS), *parts), kind.shape)
        joined = ops.QConcat(TO_LAST.index(concat.axis))
        return channels_first(site, joined, *x, quantisation=kind.quantisation)
    if len(kind.shape) in IMAGE_AXES:
        joined = ops.QConcat(IMAGE_AXES[len(kind.shape)][concat.axis])
        return of_images(site, joined, *x, quantisation=kind.quantisation)
    return None


def _comes_from_rows(site: Site, part: str, turned: bool) -> bool:
    """Tell whether a part is rows whose channels were reshaped to heads, perhaps `turned`."""
    made = site.view.producer(part)
    if made and turned and isinstance(made.attributes, ops.Transpose):
        return made.attributes.permutation == (0, 2, 1, 3)
    if made is None or not isinstance(made.attributes, ops.Reshape):
        return False
    given, (_, *counts, size) = site.shape_of(made.inputs[0]), site.shape_of(part)
    rows, heads = counts[::-1] if turned else counts
    if heads == 1 or len(given) < 2:
        return False
    if not turned:
        return given[-1] == heads * size
    runs = given[-1], math.prod(given[-2:])  # channels, perhaps in pairs
    return rows == 1 and any(run % size == 0 for run in runs)

"""Recognise resizing by copies: Gather that repeats each row or column of int8 -> QResize.

For every mode, the importer lists the source element of each result element. The node is a QResize
only if every pixel is copied the same number of times.
"""

import numpy as np

from ..graph import operators as ops
from ..rewriting import Site, computed, constant, either, op, rule_of, value
from .patterns import TO_FIRST, TO_LAST, is_int8

ROWS = 2
"""Axis of the rows in [N, C, H, W]; the columns follow."""

RESIZED = op(ops.Transpose(TO_FIRST), op(ops.QResize, value("image"), capture="inner"))


@rule_of(
    ops.Gather,
    *(either(RESIZED, computed("x")), constant("indices")),
    capture="gather",
    where=lambda gather: gather.axis in (ROWS, ROWS + 1),
    result=is_int8,
)
def recognise_resizes(
    site: Site,
    gather: ops.Gather,
    indices: str,
    x: str | None,
    image: str | None,
    inner: ops.QResize | None,
) -> str | None:
    """Gather(x, each row or column several times) -> QResize(x); merges with a QResize above.

    Replace Gather of int8 images that repeats pixels by QResize.
    """
    shape, data = site.shape_of(site.root.inputs[0]), site.data(indices)
    size = shape[gather.axis]
    factor = data.size // max(size, 1)
    if len(shape) != len(TO_LAST) or data.ndim != 1 or factor < 2:
        return None
    if not np.array_equal(data, np.arange(size).repeat(factor)):
        return None
    rows, columns = (factor, 1) if gather.axis == ROWS else (1, factor)
    if inner is not None:
        rows, columns = rows * inner.factors[0], columns * inner.factors[1]
    source = image or site.emit(ops.Transpose(TO_LAST), site.root.inputs[0])
    result = site.emit(ops.QResize((rows, columns)), source)
    return site.emit(ops.Transpose(TO_FIRST), result)

"""Memory layout of a transposed value: the stride of each axis.

Empty arrays stand in for the values, because NumPy tracks the strides of its views.
"""

import numpy as np


def joined_heads(
    view: np.ndarray, images: int, heads: int, rows: int, columns: int, turned: bool = False
) -> bool | None:
    """Whether the heads of a view [..., rows, columns] lie inside the rows; None for other layouts.

    Parameters
    ----------
    view : ndarray
        Its leading axes are images, then heads.
    images, heads, rows, columns : int
        Extents.
    turned : bool
        Whether rows lie inside columns.
    """
    inner = (columns, rows) if turned else (rows, columns)
    for joined in (False, True):
        if joined:
            whole = np.empty((images, inner[0], heads, inner[1]), np.int8).transpose(0, 2, 1, 3)
        else:
            whole = np.empty((images, heads, *inner), np.int8)
        expected = whole.swapaxes(2, 3) if turned else whole
        if strides_of(expected, view.shape) == strides_of(view, view.shape):
            return joined
    return None


def strides_of(view: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of a view in a shape; None if it needs a copy. Axes of one element have stride 0."""
    shaped = view.view()
    try:
        shaped.shape = shape
    except AttributeError:
        return None
    return tuple(s if size > 1 else 0 for s, size in zip(shaped.strides, shape, strict=True))

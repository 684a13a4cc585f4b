"""Convolution and pooling windows over any number of axes: how many there are, and views.

Pads list the starts of all axes, then the ends of all axes. Windows slide over the axes from
`first` on. `first` is 2 if channels come before these axes, and 1 if channels come last.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import CompileError

Extents = tuple[Any, ...]
"""One integer for each axis; for pads, two. For type checkers, an image's fit where pairs do."""

MAX_PADDING = 1 << 20
"""Maximum padding of a window on one axis, both sides together."""


def fits_window(operator: Any, axes: int) -> bool:
    """Tell whether strides, dilations and pads of an operator have the lengths for `axes` axes."""
    counts = (len(operator.strides), len(operator.dilations), len(operator.pads))
    return counts == (axes, axes, 2 * axes)


def window_extents(
    operator: Any, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return the number of windows of an operator on each axis.

    Parameters
    ----------
    operator : Operator
        Operator with `strides`, `pads` and, optionally, `overhang`.
    sizes : sequence of int
        Extents of the axes, without padding.
    kernel, dilations : sequence of int
        Taps of a window, and the distance between them, on each axis.

    Raises
    ------
    CompileError
        If not a single window fits, or the padding is negative or too large.
    """
    count, extents = len(sizes), []
    more = getattr(operator, "overhang", (0,) * count)
    for i, (size, taps, dilation) in enumerate(zip(sizes, kernel, dilations, strict=True)):
        span, stride = (taps - 1) * dilation + 1, operator.strides[i]
        padding = operator.pads[i] + operator.pads[i + count]
        free = size + padding + more[i] - span
        least = min(operator.pads[i], operator.pads[i + count], more[i])
        if least < 0 or padding > MAX_PADDING:
            raise CompileError(
                f"window: expected padding of 0 to {MAX_PADDING:,} elements on an axis, got "
                f"{least if least < 0 else padding:,}; correct the model's padding"
            )
        if free < 0 or min(size, taps, stride, dilation) < 1:
            raise CompileError(
                f"window: expected it to fit the padded input of {size + padding} elements, got a "
                f"span of {span} (kernel {taps}, stride {stride}, dilation {dilation}); correct "
                "the model's kernel or padding"
            )
        extents.append(free // stride + 1)
    return tuple(extents)


def windows(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    first: int = 2,
) -> np.ndarray:
    """Return a view of a padded array as its windows, without copying.

    Returns
    -------
    ndarray
        [N, C, places..., taps...], or [N, places..., C, taps...] if `first` is 1.
    """
    axes = tuple(range(first, first + len(kernel)))
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    places = tuple(slice(None, None, step) for step in strides)
    taps = tuple(slice(None, None, step) for step in dilations)
    return view[(*(slice(None),) * first, *places, ..., *taps)]


def shape_to_first(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape [N, C, ...] for [N, ..., C]."""
    return (*shape[:1], *shape[-1:], *shape[1:-1])


def shape_to_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape [N, ..., C] for [N, C, ...]."""
    return (*shape[:1], *shape[2:], *shape[1:2])


def to_first(x: np.ndarray) -> np.ndarray:
    """Copy [N, ..., C] to [N, C, ...]; the layout determines the order in which NumPy sums."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def to_last(x: np.ndarray) -> np.ndarray:
    """Copy [N, C, ...] to [N, ..., C], row-major."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def surround(
    x: np.ndarray,
    pads: Sequence[int],
    value: float,
    overhang: Sequence[int] = (),
    first: int = 2,
) -> np.ndarray:
    """Pad the axes of windows with `value`, then add `overhang` elements at the end.

    If there is nothing to add, return the array itself.
    """
    count = len(pads) // 2
    more = overhang or (0,) * count
    widths = [(0, 0)] * x.ndim
    for i in range(count):
        widths[first + i] = (pads[i], pads[i + count] + more[i])
    return np.pad(x, widths, constant_values=value) if any(map(any, widths)) else x


def lowest(x: np.ndarray) -> float | int:
    """Return the lowest value of an element type: the padding of a maximum."""
    return -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min

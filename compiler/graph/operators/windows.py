"""Windows of convolutions and pools over any number of axes: how many there are, and views of them.

Pads are all befores, then all afters. The axes that windows slide over are `first` and those behind
it: 2 where channels stand before them, 1 where they stand last.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import CompileError

Extents = tuple[int, ...]
"""One entry for each axis, or two for pads."""

LARGEST_PADDING = 1 << 20
"""Most padding of a window on one axis, both sides together."""


def fits_window(operator: Any, axes: int) -> bool:
    """Tell whether an operator's strides, dilations and pads are as many as `axes` ask for."""
    counts = (len(operator.strides), len(operator.dilations), len(operator.pads))
    return counts == (axes, axes, 2 * axes)


def window_extents(
    operator: Any, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return how many windows an operator has on each axis of `sizes` elements.

    Parameters
    ----------
    operator
        With `strides`, `pads`, and `overhang` if it has one.
    """
    count = len(sizes)
    pads, overhang = operator.pads, getattr(operator, "overhang", (0,) * count)
    return tuple(
        window_extent(
            sizes[i],
            kernel[i],
            operator.strides[i],
            pads[i] + pads[i + count],
            dilations[i],
            overhang[i],
        )
        for i in range(count)
    )


def window_extent(
    size: int, kernel: int, stride: int, padding: int, dilation: int, overhang: int = 0
) -> int:
    """Return how many windows fit on an axis.

    Parameters
    ----------
    size, kernel, stride, dilation : int
        Elements on the axis, taps, steps between windows and between taps.
    padding, overhang : int
        Padding of both sides together; reach of the last window beyond it.

    Raises
    ------
    CompileError
        If not even one window fits, or the padding is absurdly large.
    """
    span = (kernel - 1) * dilation + 1
    free = size + padding + overhang - span
    if padding > LARGEST_PADDING:
        raise CompileError(
            f"window: expected padding of at most {LARGEST_PADDING:,} elements on an axis, got "
            f"{padding:,}; correct the model's padding"
        )
    if free < 0 or min(size, kernel, stride, dilation) < 1:
        raise CompileError(
            f"window: expected it to fit the padded input of {size + padding} elements, got a "
            f"span of {span} (kernel {kernel}, stride {stride}, dilation {dilation}); correct the "
            "model's kernel or padding"
        )
    return free // stride + 1


def windows(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    first: int = 2,
) -> np.ndarray:
    """View a padded array as its windows, without copying.

    Returns
    -------
    [N, C, places..., taps...], or [N, places..., C, taps...] for a `first` of 1.
    """
    axes = tuple(range(first, first + len(kernel)))
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    places = tuple(slice(None, None, step) for step in strides)
    taps = tuple(slice(None, None, step) for step in dilations)
    return view[(*(slice(None),) * first, *places, ..., *taps)]


def surround(
    x: np.ndarray,
    pads: Sequence[int],
    value: float,
    overhang: Sequence[int] = (),
    first: int = 2,
) -> np.ndarray:
    """Pad the axes of windows with `value`, and `overhang` elements more behind them.

    Where there is nothing to add, the array itself is returned.
    """
    count = len(pads) // 2
    more = overhang or (0,) * count
    widths = [(0, 0)] * x.ndim
    for i in range(count):
        widths[first + i] = (pads[i], pads[i + count] + more[i])
    return np.pad(x, widths, constant_values=value) if any(map(any, widths)) else x


def lowest(x: np.ndarray) -> float | int:
    """Return what no element is below: the padding of a maximum."""
    return -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min

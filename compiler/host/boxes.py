"""An element map as boxes: a few strided copies instead of an index for each element.

The map tells for each element of an output which element it takes from which array. Boxes grow from
the first element that none covers yet, along the last axis first.
"""

import math
from collections.abc import Iterator

import numpy as np

from ..cpu import Box

SOURCE_BITS = 40
"""Bits of an element's number; the bits above are the number of its array."""

PADDING = -1
"""The entry of an element that comes from no array."""

MAX_SAMPLE = 1 << 17
"""Maximum number of elements in which progressions are sought along each axis.

A progression that they miss costs boxes, not correctness.
"""

Index = tuple[slice | int, ...]


def element_numbers(source: int, shape: tuple[int, ...]) -> np.ndarray:
    """Number the elements of an array, int64[shape]."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape) + (source << SOURCE_BITS)


def boxes_of(numbers: np.ndarray, most: int) -> tuple[Box, ...] | None:
    """Cover a map with boxes.

    Parameters
    ----------
    numbers : ndarray
        An entry of `element_numbers` for each element, or `PADDING`, int64[shape].
    most : int
        Most boxes.

    Returns
    -------
    tuple of Box or None
        The boxes of all elements but padding; None if they are too many.
    """
    numbers = _finer(np.ascontiguousarray(numbers))
    free = numbers != PADDING
    steps = tuple(stride // numbers.itemsize for stride in numbers.strides)
    found: list[Box] = []
    for start in _starts(free):
        if len(found) == most:
            return None
        extents, strides = _grown(numbers, free, start)
        free[tuple(slice(at, at + size) for at, size in zip(start, extents, strict=True))] = False
        source, first = divmod(int(numbers[start]), 1 << SOURCE_BITS)
        place = sum(at * step for at, step in zip(start, steps, strict=True))
        found.append(Box(source, first, place, extents, strides, steps))
    return tuple(found)


def _starts(free: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield the first free element until there is none; the caller covers it meanwhile."""
    flat = free.reshape(-1)
    at = 0
    while at < flat.size:
        at += int(flat[at:].argmax())
        if not flat[at]:
            return
        yield tuple(int(i) for i in np.unravel_index(at, free.shape))


def _grown(
    numbers: np.ndarray, free: np.ndarray, start: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return extents and strides of the largest box from a corner, last axes first."""
    extents, strides = [1] * numbers.ndim, [0] * numbers.ndim
    for axis in reversed(range(numbers.ndim)):
        inner = (slice(at, at + size) for at, size in zip(start, extents, strict=True))
        index = tuple(inner)
        whole: Index = (*start[:axis], slice(start[axis], None), *index[axis + 1 :])
        rows, open_rows = numbers[whole], free[whole]
        if len(rows) == 1:
            continue
        line = rows.reshape(len(rows), -1)[:, 0]
        stride = int(line[1] - line[0])
        if abs(stride) >> (SOURCE_BITS - 1):
            continue  # the second element comes from another array
        expected = np.arange(len(rows), dtype=np.int64) * stride
        count = _leading(line - line[0] == expected)
        rows, open_rows = rows[:count], open_rows[:count]
        inner_axes = tuple(range(1, rows.ndim))
        expected = expected[:count].reshape(-1, *[1] * len(inner_axes))
        fits = (rows == rows[:1] + expected).all(axis=inner_axes)
        count = _leading(fits & open_rows.all(axis=inner_axes))
        if count > 1:
            extents[axis], strides[axis] = count, stride
    return tuple(extents), tuple(strides)


def _leading(fits: np.ndarray) -> int:
    """Count the rows ahead of the first one that does not fit."""
    return len(fits) if fits.all() else int(fits.argmin())


def _finer(numbers: np.ndarray) -> np.ndarray:
    """Split axes that join several progressions, as after a reshape."""
    shape: list[int] = []
    for axis in range(numbers.ndim):
        rows = _sampled_lines(numbers, axis)
        while (period := _period(rows)) < len(rows):
            shape.append(len(rows) // period)
            rows = rows[:period]
        shape.append(len(rows))
    return numbers.reshape(shape)


def _sampled_lines(numbers: np.ndarray, axis: int) -> np.ndarray:
    """Return lines along an axis, as columns; of a large map only some, spread over the others."""
    size, after = numbers.shape[axis], math.prod(numbers.shape[axis + 1 :])
    lines = numbers.reshape(-1, size, after)
    step = -(-numbers.size // MAX_SAMPLE)
    near = min(step, after)
    return lines[:: -(-step // near), :, ::near].swapaxes(0, 1).reshape(size, -1)


def _period(rows: np.ndarray) -> int:
    """Return after how many rows the progression repeats or breaks off; all rows if neither."""
    size = len(rows)
    divisors = [one for one in range(1, size) if size % one == 0]
    for period in divisors:
        if _breaks(rows, period).size == 0:
            return period if period > 1 else size
    return math.gcd(size, *(_breaks(rows, 1) + 1).tolist()) if size > 1 else size


def _breaks(rows: np.ndarray, period: int) -> np.ndarray:
    """Return the rows whose distance from the one a period later is not the usual one."""
    distances = rows[period:] - rows[:-period]
    known = (rows[period:] != PADDING) & (rows[:-period] != PADDING)
    usual = int(distances[known][0]) if known.any() else 0
    return np.flatnonzero(((distances != usual) & known).any(axis=1))

"""Half-open ranges and boxes of elements."""

import math
from collections.abc import Sequence

Range = tuple[int, int]
"""The first element and the one after the last."""

Box = tuple[Range, ...]
"""A range per dimension."""


def whole_box(shape: Sequence[int]) -> Box:
    """The box of all elements of a shape."""
    return tuple((0, extent) for extent in shape)


def lows_of(box: Box) -> tuple[int, ...]:
    """The first index of each dimension."""
    return tuple(low for low, _ in box)


def extents_of(box: Box) -> tuple[int, ...]:
    """Elements of a box in each dimension."""
    return tuple([high - low for low, high in box])


def box_size(box: Box) -> int:
    """Number of elements in a box."""
    return math.prod(extents_of(box))


def intersection(box: Box, other: Box) -> Box:
    """The elements in both boxes."""
    return tuple(
        [
            (low if low > least else least, high if high < most else most)
            for (low, high), (least, most) in zip(box, other, strict=True)
        ]
    )

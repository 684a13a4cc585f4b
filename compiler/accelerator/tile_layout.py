"""Layout of a tensor's tile inside a scratchpad, for each axis of the kernel.

An axis may be blocked: index `i` lies at `i // block * outer + i % block * inner`. Channels are cut
into lanes this way. An unblocked axis is one endless block.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from ...isa.configuration import Configuration, Memory
from .sliding import Window, lane_channels


class TileLayout(NamedTuple):
    """Strides of one axis in elements; `block` 0 means unblocked, then only `inner` counts."""

    inner: int
    block: int = 0
    outer: int = 0

    def offset(self, index: int) -> int:
        """The distance in elements between the first index and another one."""
        blocks, rest = divmod(index, self.block) if self.block else (0, index)
        return blocks * self.outer + rest * self.inner

    def of_bytes(self, size: int) -> "TileLayout":
        """The layout in bytes, of elements of `size` bytes."""
        return TileLayout(self.inner * size, self.block, self.outer * size)

    def stride(self, step: int) -> int | None:
        """The distance in elements between an index and the one `step` further.

        Returns None if the distance depends on the index.
        """
        if not self.block or step < self.block:
            return step * self.inner
        return step // self.block * self.outer if step % self.block == 0 else None


class Buffer(NamedTuple):
    """A tile of one tensor in a scratchpad.

    Parameters
    ----------
    memory
        The scratchpad.
    base
        First element; an element is a byte of ACT and WGT, a 32-bit integer of ACC, a bias and
        scale pair of PARAM, a table of LUT.
    axes
        Layout of every axis that moves through the tile.
    dimensions
        Layout of every dimension, from which `axes` follows for each compute.
    """

    memory: Memory
    base: int
    axes: Mapping[str, TileLayout]
    dimensions: tuple[TileLayout, ...] = ()

    def moved(self, axis: str, steps: int) -> "Buffer":
        """The same data, starting `steps` indices further along an axis, from a block's start."""
        place = self.axes.get(axis)
        if place is None or not steps:
            return self
        return self._replace(base=self.base + place.offset(steps))


@lru_cache(maxsize=1 << 12)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense array."""
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def distance(starts: Iterable[int], ends: Iterable[int], dimensions: Iterable[TileLayout]) -> int:
    """Elements from one index to another one."""
    pairs = zip(starts, ends, dimensions, strict=True)
    return sum(place.offset(end - start) for start, end, place in pairs)


@lru_cache(maxsize=1 << 12)
def dense_layout(sizes: tuple[int, ...]) -> tuple[TileLayout, ...]:
    """Layout of every dimension of a dense box."""
    return tuple(map(TileLayout, row_major(sizes)))


PIXELS = 3
"""Dimensions before the channels of a kernel: batch, row and column."""


@lru_cache(maxsize=1 << 12)
def accumulator_layout(
    sizes: tuple[int, ...], window: Window | None, configuration: Configuration
) -> tuple[tuple[TileLayout, ...], int, int]:
    """The layout of sums in a bank of ACC, the rows that they use, and the first complete sum.

    Parameters
    ----------
    sizes
        Batch, rows, columns, then channels, the last dimension in blocks.
    """
    lanes, block, first = configuration.lanes_out, configuration.lanes_out, 0
    *outer, last = sizes
    pixels, channels = outer[:PIXELS], outer[PIXELS:]
    slides = () if window is None else window.slides(configuration)
    line, lines = pixels[-1], 1
    if window is not None:
        block, line = lane_channels(configuration), window.block(line, configuration)
        pixels[-1], lines = line, pixels[-1] // line
    for place, (slide, taps) in enumerate(slides, PIXELS - len(slides)):
        pixels[place] = slide.steps(pixels[place], taps)
    batch, *image = row_major((pixels[0], lines, *pixels[1:]))
    strides = [place * lanes for place in (batch, *image[1:])]
    for place, (slide, taps) in enumerate(slides, PIXELS - len(slides)):
        first += (slide.used(taps) - 1) * strides[place]
        strides[place] *= slide.advance
    rows = math.prod(pixels) * lines
    blocks, size = -(-last // block), rows * lanes
    strides += [place * size * blocks for place in row_major(tuple(channels))]
    dimensions = [*map(TileLayout, strides), TileLayout(1, block, size)]
    if lines > 1:
        dimensions[PIXELS - 1] = TileLayout(strides[PIXELS - 1], line, image[0] * lanes)
    return tuple(dimensions), rows * blocks * math.prod(channels), first

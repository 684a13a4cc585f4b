"""Constant weights that exceed int8, as uint8 ones do once their zero point is subtracted.

Usually very few of them do. They are clipped, and further tiles in WGT, behind those of the box,
hold what is missing. GEMM adds the products of these tiles to its sums.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import CompileError
from ...isa.configuration import Configuration
from ...isa.expressions import Affine
from ...isa.numbers import int8_terms
from ..te.box import Box, Range, extents_of, whole_box
from ..tensor import Kernel
from .sliding import Window
from .tile_layout import TileLayout
from .weights import weight_layout

WIDE = "int16"
"""Type of tensors of such weights."""


class FurtherTiles(NamedTuple):
    """Tiles that add to a box of weights.

    Parameters
    ----------
    box
        The part of the box to which they add, from the box's start.
    offset
        Bytes in WGT from the box's first tile.
    tiles
        Their number.
    dimensions
        The layout of their weights.
    """

    box: Box
    offset: int
    tiles: int
    dimensions: tuple[TileLayout, ...]


class FurtherCounts(NamedTuple):
    """Numbers of further tiles of weights that are cut into boxes.

    Parameters
    ----------
    most, total
        In one box, and in all of them together.
    least
        That no choice of boxes avoids.
    """

    most: int = 0
    total: int = 0
    least: int = 0


def wide_constants(kernel: Kernel, copied: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The weights beyond int8 that buffers hold, by buffer.

    Parameters
    ----------
    copied
        Source of each buffer that is a copy.

    Raises
    ------
    CompileError
        When such weights are not constant.
    """
    found = {}
    for name, source in copied.items():
        if source in kernel.tensors and kernel.tensors[source].dtype == WIDE:
            if source not in kernel.constants:
                raise CompileError(
                    f"kernel `{kernel.name}`: `{source}` is {WIDE}, and only constant weights may "
                    "exceed int8"
                )
            found[name] = kernel.constants[source]
    return found


def int8_parts(
    weights: np.ndarray, window: Window | None, configuration: Configuration
) -> Iterator[tuple[Box, np.ndarray]]:
    """Boxes that add up to a box of weights, and their int8 elements.

    The first one is everything, clipped. What is missing is everything again if more than two
    thirds of the tiles need more, else single tiles.
    """
    if weights.dtype != WIDE:
        yield whole_box(weights.shape), weights
        return
    terms = int8_terms(weights)
    everything = whole_box(weights.shape)
    yield everything, terms[0]
    for term in terms[1:]:
        unit = _unit(weights.shape, window, configuration)
        places = np.unique(np.argwhere(term) // unit, axis=0)
        if _is_dense(len(places), weights.shape, unit):
            yield everything, term
            continue
        for corner in (places * unit).tolist():
            reach = zip(corner, unit, weights.shape, strict=True)
            box = tuple((low, min(low + size, extent)) for low, size, extent in reach)
            yield box, term[tuple(slice(*pair) for pair in box)]


def further_tiles(
    weights: np.ndarray, window: Window | None, configuration: Configuration
) -> tuple[FurtherTiles, ...]:
    """The further tiles of a box of weights, in order."""
    found, tiles = [], 0
    for box, _ in int8_parts(weights, window, configuration):
        layout = weight_layout(extents_of(box), window, configuration)
        offset = tiles * configuration.tile_bytes
        found.append(FurtherTiles(box, offset, layout.tiles, layout.dimensions))
        tiles += layout.tiles
    return tuple(found[1:])


class Excess(NamedTuple):
    """Shape of weights, and for each int8 term of their excess, the places where it is not zero."""

    shape: tuple[int, ...]
    terms: tuple[np.ndarray, ...]


def excess_of(weights: np.ndarray) -> Excess:
    """Find the weights that exceed int8."""
    terms = int8_terms(weights)[1:] if weights.dtype == WIDE else ()
    return Excess(weights.shape, tuple(map(np.argwhere, terms)))


def further_counts(
    excess: Excess, extents: Sequence[int], window: Window | None, configuration: Configuration
) -> FurtherCounts:
    """Count the further tiles of weights that are cut into boxes of these extents."""
    if not excess.terms:
        return FurtherCounts()
    unit = _unit(excess.shape, window, configuration)
    least_box = tuple(map(min, unit, excess.shape))
    of_unit = weight_layout(least_box, window, configuration).tiles
    found: dict[tuple[int, ...], int] = {}
    least = 0
    for term in excess.terms:
        places = np.unique(term // unit, axis=0)
        least += len(places)
        boxes, counts = np.unique(places * unit // extents, axis=0, return_counts=True)
        for box, count in zip(map(tuple, boxes.tolist()), counts.tolist(), strict=True):
            ends = zip(box, extents, excess.shape, strict=True)
            sizes = [min(size, whole - index * size) for index, size, whole in ends]
            units = _units(sizes, unit) if _is_dense(count, sizes, unit) else count
            found[box] = found.get(box, 0) + units * of_unit
    return FurtherCounts(max(found.values(), default=0), sum(found.values()), least)


def tile_inside(
    index: Sequence[Affine], box: Box, starts: Mapping[str, int], tile: Mapping[str, int]
) -> dict[str, Range] | None:
    """The part of a tile, by axis, that multiplies a box of its weights; None if there is none.

    Parameters
    ----------
    index
        Index of the weights; at most one axis moves each dimension, by one.
    starts, tile
        First index and extent of every axis in the tile.
    """
    found: dict[str, Range] = {}
    for affine, (low, high) in zip(index, box, strict=True):
        if affine.terms:
            ((axis, _),) = affine.terms
            low = max(low - affine.constant, starts[axis])
            high = min(high - affine.constant, starts[axis] + tile[axis])
            found[axis] = low, high
        elif not low <= affine.constant < high:
            return None
        if low >= high:
            return None
    return found


def _unit(
    extents: Sequence[int], window: Window | None, configuration: Configuration
) -> tuple[int, ...]:
    """Extents of the smallest box that GEMM multiplies: a tile, or the taps of its lines."""
    if window is not None:
        rows = extents[0] if len(window.slides(configuration)) > 1 else 1
        return rows, extents[1], max(configuration.lanes_in, configuration.lanes_out)
    return (*(1,) * (len(extents) - 2), configuration.lanes_in, configuration.lanes_out)


def _units(extents: Sequence[int], unit: Sequence[int]) -> int:
    return math.prod(-(-extent // size) for extent, size in zip(extents, unit, strict=True))


def _is_dense(units: int, extents: Sequence[int], unit: Sequence[int]) -> bool:
    """Whether one more product of a whole box takes less than a product for each of some units.

    A product has a cost of its own: a product for each takes longer from about two thirds on.
    """
    return 3 * units > 2 * _units(extents, unit)

"""Layout of weights in WGT; no other module knows the order of their bytes.

A weight tile is `lanes_in` rows of `lanes_out` bytes. The last two dimensions, inputs and outputs,
are cut into lanes. Tiles are ordered by block of outputs, then block of inputs, then the leading
dimensions. So the tiles of one GEMM are contiguous. A sliding window reads only the first rows of a
tile, one per tap; main memory need not hold the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.packed_weights import MAX_FACTOR, MAX_WEIGHT, MIN_WEIGHT, factors_of, pack_tiles
from ..tensor import Kernel
from .sliding import Slide, Window, lane_channels
from .strided_copy import run_cycles
from .tile_layout import TileLayout, row_major

MIN_UNPACKED, MAX_UNPACKED = MIN_WEIGHT * MAX_FACTOR, MAX_WEIGHT * MAX_FACTOR
"""Range of int8 weights that 4 bits and a factor can represent."""


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """Layout of a box of weights.

    Parameters
    ----------
    dimensions
        For each dimension, the layout in bytes from the first element.
    tiles
        Number of weight tiles in the box.
    taps
        For a sliding window, the places of its rows and of its columns, which add up.
    """

    dimensions: tuple[TileLayout, ...]
    tiles: int
    taps: tuple[tuple[int, ...], ...] = ()


@lru_cache(maxsize=1 << 12)
def weight_layout(
    extents: tuple[int, ...], window: Window | None, configuration: Configuration
) -> WeightLayout:
    """The layout of a box of weights.

    Parameters
    ----------
    extents
        Extents of the box: any dimensions, then inputs and outputs. For a sliding window: rows,
        columns and channels.

    Raises
    ------
    CompileError
        When the channels of a window are not whole blocks, or inputs or outputs are missing.
    """
    if window is not None:
        return _sliding_layout(extents, window, configuration)
    if len(extents) < 2:
        raise CompileError(
            "WGT holds weights of at least two dimensions, inputs before outputs; declare them "
            f"with {configuration.lanes_in} or more inputs"
        )
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    *outer, inputs, outputs = extents
    area, taps, blocks = configuration.tile_bytes, math.prod(outer), -(-inputs // lanes_in)
    dimensions = (
        *(TileLayout(stride * area) for stride in row_major(tuple(outer))),
        TileLayout(lanes_out, lanes_in, taps * area),
        TileLayout(1, lanes_out, taps * area * blocks),
    )
    return WeightLayout(dimensions, taps * blocks * -(-outputs // lanes_out))


def _sliding_layout(
    extents: Sequence[int], window: Window, configuration: Configuration
) -> WeightLayout:
    rows, columns, channels = extents
    block = lane_channels(configuration)
    if channels % block:
        raise CompileError(f"{channels} channels cannot be cut into whole blocks of {block}")
    *outer, (inner, width) = window.slides(configuration)
    taps = [_taps(inner, columns, width, configuration.tile_bytes, configuration.lanes_out)]
    tiles = inner.groups(width)[0] * inner.phases
    line = tiles * configuration.tile_bytes
    if not outer:
        taps.insert(0, tuple(row * line for row in range(rows)))
        tiles *= rows
    for slide, lines in outer:
        taps.insert(0, _taps(slide, rows, lines, line, width * configuration.lanes_out))
        tiles *= slide.groups(lines)[0] * slide.phases
    dimensions = (
        TileLayout(line),
        TileLayout(0),
        TileLayout(1, block, tiles * configuration.tile_bytes),
    )
    return WeightLayout(dimensions, channels // block * tiles, tuple(taps))


def _taps(slide: Slide, taps: int, limit: int, area: int, pitch: int) -> tuple[int, ...]:
    """The place of each tap of a slide.

    Parameters
    ----------
    taps, limit
        Taps of the window, and of the machine.
    area, pitch
        Bytes from one group or phase of taps to the next, and from one tap of the machine to the
        next.
    """
    found = []
    if slide.phases > 1:
        for tap in range(taps):
            index, phase = divmod(tap, slide.phases)
            found.append(phase * area + (slide.used(limit, phase) - 1 - index) * pitch)
        return tuple(found)
    (count, step), used = slide.groups(limit), slide.used(limit)
    for tap in range(taps):
        pixel = tap * slide.dilation
        group = next(g for g in range(count) if g * step <= pixel < g * step + used)
        # The first tap of the machine multiplies the newest pixel.
        found.append(group * area + (group * step + used - 1 - pixel) * pitch)
    return tuple(found)


def stored_bytes(window: Window | None, configuration: Configuration) -> int:
    """Bytes of each weight tile in main memory."""
    return configuration.tile_bytes if window is None else _sliding_bytes(configuration)


def _sliding_bytes(configuration: Configuration) -> int:
    """Bytes of a sliding window's tile in main memory: whole, or the rows that GEMM uses.

    The rows alone are stored if they load faster than the whole tile.
    GEMM multiplies by the rows of earlier lines even where a window does not use lines.
    """
    whole, used = configuration.tile_bytes, configuration.window_rows * configuration.lanes_out
    if not used or run_cycles(used, used, configuration) >= whole // configuration.bus_bytes:
        return whole
    return used


def _unpacks(configuration: Configuration) -> bool:
    """Whether weights of 4 bits load faster.

    They do not where a beat holds whole rows of WGT, since LOAD writes a row at a time.
    """
    if configuration.packed_weights == "none":
        return False
    return configuration.bus_bytes < configuration.row_bytes(Memory.WGT)


def weight_storage(configuration: Configuration) -> tuple[int, bool]:
    """Bytes of a sliding window's tile, and whether weights are packed: the port decides both."""
    return _sliding_bytes(configuration), _unpacks(configuration)


def pack_weights(weights: np.ndarray, window: Window | None, configuration: Configuration) -> bytes:
    """The bytes of a box of weights int8[...] as main memory holds them; unused lanes are zero.

    They are in the order of WGT, `stored_bytes` of each tile.
    """
    layout = weight_layout(weights.shape, window, configuration)
    data = np.zeros(layout.tiles * configuration.tile_bytes, np.int8)
    if window is None:
        _place(data, 0, weights, layout.dimensions)
    else:
        for row, column in np.ndindex(weights.shape[:2]):
            tap = layout.taps[0][row] + layout.taps[1][column]
            _place(data, tap, weights[row, column], layout.dimensions[2:])
    tiles = data.reshape(layout.tiles, configuration.tile_bytes)
    return tiles[:, : stored_bytes(window, configuration)].tobytes()


_KNOWN: WeakKeyDictionary[Kernel, dict[tuple[str, int, int], bool]] = WeakKeyDictionary()
"""Earlier answers of `fits_four_bits`, by weights and lanes, for each kernel."""


def fits_four_bits(
    kernel: Kernel, name: str, window: Window | None, configuration: Configuration
) -> bool:
    """Tell whether the machine unpacks a kernel's weights from 4 bits.

    A sliding window loads only some rows of a tile, so its weights stay as they are.
    """
    if window is not None or not _unpacks(configuration):
        return False
    known = _KNOWN.setdefault(kernel, {})
    key = name, configuration.lanes_in, configuration.lanes_out
    if key not in known:
        known[key] = _are_narrow(kernel, name, configuration)
    return known[key]


def _are_narrow(kernel: Kernel, name: str, configuration: Configuration) -> bool:
    weights = kernel.constants.get(name)
    if weights is None or kernel.tensors[name].pad:
        return False
    if weights.dtype != np.int8 or weights.ndim < 2:
        return False
    if weights.max(initial=0) > MAX_UNPACKED or weights.min(initial=0) < MIN_UNPACKED:
        return False
    return bool(factors_of(_tiles(weights, configuration)).all())


def pack_four_bits(weights: np.ndarray, configuration: Configuration) -> bytes:
    """The bytes of a box of weights int8[...] that begins with a tile, for LOAD to unpack.

    Raises
    ------
    IsaError
        When they do not fit.
    """
    return pack_tiles(_tiles(weights, configuration)).tobytes()


def _tiles(weights: np.ndarray, configuration: Configuration) -> np.ndarray:
    data = np.frombuffer(pack_weights(weights, None, configuration), np.int8)
    return data.reshape(-1, configuration.lanes_in, configuration.lanes_out)


def four_bits_load(weights: int, configuration: Configuration) -> tuple[int, int]:
    """Least bytes and cycles of a LOAD that unpacks so many weights of 4 bits."""
    size = -(-weights * configuration.packed_tile_bytes // configuration.tile_bytes)
    return size, -(-size // min(configuration.packed_row_bytes, configuration.bus_bytes))


def _place(
    data: np.ndarray, first: int, values: np.ndarray, dimensions: Sequence[TileLayout]
) -> None:
    """Write values to their places in `data`."""
    shape: list[int] = []
    strides: list[int] = []
    padding = []
    for extent, place in zip(values.shape, dimensions, strict=True):
        block = place.block or extent
        blocks = -(-extent // block)
        padding.append((0, blocks * block - extent))
        shape += [blocks, block]
        strides += [place.outer, place.inner]
    if any(behind for _, behind in padding):
        values = np.pad(values, padding)
    target = np.ndarray(shape, data.dtype, data, first, strides)
    target[...] = values.reshape(shape)

"""Moving boxes of a tensor between main memory and a scratchpad with LOAD and STORE.

Every move is one strided copy: dimensions with an extent and a stride on each side, cut into runs
and loops. The strides follow from the tensor's place in main memory, where it may be a part of
another one and have several copies, and from the layout of the box in the scratchpad. The part of
a box outside the tensor is filled with the tensor's pad value, which costs no memory traffic.

The compiler packs a constant so that one LOAD fetches it. An activation that becomes a weight stays
as it was stored, and LOAD's loops pack it. If the tensor's last dimension is contiguous, each row
of a weight tile is a run; a transposed tensor is fetched byte by byte.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, move_transfer
from ..te.box import Box, box_size, extents_of, lows_of
from ..tensor import Patches, Tensor
from .strided_copy import Dimension, fill_bytes, strided_copy
from .tile_layout import TileLayout, distance, row_major


@dataclass(frozen=True, slots=True)
class DramTensor:
    """A tensor in main memory.

    Parameters
    ----------
    base
        Byte offset in the data window.
    shape
        Includes padding channels.
    pitch
        For a part of a larger tensor, bytes per step of each dimension. Otherwise empty, and the
        tensor is row-major.
    channels
        For a part, the number of its own channels; the channels after these belong to other parts.
    copies
        The number of copies and the bytes between them, for each direction.
    """

    base: int
    shape: tuple[int, ...]
    pitch: tuple[int, ...] = ()
    channels: int = 0
    copies: tuple[tuple[int, int], ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes per step of each dimension."""
        return self.pitch or row_major(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape)

    def shaped(self, shape: tuple[int, ...]) -> "DramTensor":
        """The same bytes with another shape, whose last dimensions are blocks of channels."""
        if not self.pitch:
            assert math.prod(shape) == self.size, f"{shape} for {self.shape}"
            return replace(self, shape=shape)
        blocks = row_major(shape[PIXEL_AXES:])
        return replace(self, shape=shape, pitch=(*self.pitch[:PIXEL_AXES], *blocks))

    def of_elements(self, shape: tuple[int, ...], size: int) -> "DramTensor":
        """The same bytes as elements of several bytes, which are one more dimension.

        A row may have more elements than `shape` has: padding to the block of channels. Rows of
        heads may stand one behind another.
        """
        if math.prod(shape) * size < self.size:
            alike = self.shape[:-1] == shape[:-1]
            rows = math.prod(shape[:-1]) == math.prod(self.shape[:-1]) and not self.pitch
            assert alike or rows, "only rows are padded"
            shape = (*shape[:-1], self.shape[-1] // size)
        return self.shaped((*shape, size))

    def holding(self, tensor: Tensor) -> "DramTensor":
        """The same bytes in the shape of a tensor that is a view of them."""
        view = tensor.view
        if view is None:
            return self.shaped(tensor.shape)
        pitch = tuple(self.strides[axis] * step for axis, step in view.moves)
        channels = self.channels if self.pitch else tensor.shape[-1]
        return replace(self, shape=tensor.shape, pitch=pitch, channels=view.channels or channels)


PIXEL_AXES = 3
"""Batch, row and column come first; all further dimensions of an activation are channels."""


class LocalBox(NamedTuple):
    """A box in a scratchpad.

    Parameters
    ----------
    memory
        The scratchpad.
    first
        Byte where the box begins.
    dimensions
        Layout of each dimension, in bytes.
    """

    memory: Memory
    first: int
    dimensions: tuple[TileLayout, ...]


def load_box(
    source: DramTensor, box: Box, target: LocalBox, pad: int, limits: Configuration
) -> list[Instruction]:
    """LOADs that bring a box to a scratchpad, padding first.

    Parameters
    ----------
    box
        The part outside the tensor is filled with `pad`. Along dimensions that are cut into blocks,
        only the part after the last element may lie outside.
    """
    box, memory = _from_zero(source, box)
    whole = source.shape, source.strides
    firsts = _loads(whole, box, target._replace(first=0), pad, limits)
    return [move_transfer(first, memory, target.first) for first in firsts]


def _from_zero(tensor: DramTensor, box: Box) -> tuple[Box, int]:
    """Move a box to 0 in all dimensions in which it is inside its tensor.

    Returns
    -------
    The box, which takes the same transfers at other addresses, and the byte that is now at 0.
    """
    moved, memory = [], tensor.base
    for (low, high), size, stride in zip(box, tensor.shape, tensor.strides, strict=True):
        if low >= 0 and high <= size:
            memory += low * stride
            moved.append((0, high - low))
        else:
            moved.append((low, high))
    return tuple(moved), memory


@lru_cache(maxsize=1 << 14)
def _loads(
    whole: tuple[tuple[int, ...], tuple[int, ...]],
    box: Box, target: LocalBox, pad: int, limits: Configuration
) -> tuple[Instruction, ...]:  # fmt: skip
    """Return the LOADs of a box, for a tensor and a target that both start at byte 0.

    The tensor is given by its shape and strides.
    """
    shape, strides = whole
    valid = tuple(
        (max(low, 0), min(high, size)) for (low, high), size in zip(box, shape, strict=True)
    )
    loads = _padding(box, valid, target, pad, limits)
    if any(low >= high for low, high in valid):
        return tuple(loads)
    memory = sum(low * stride for (low, _), stride in zip(valid, strides, strict=True))
    local = distance(lows_of(box), lows_of(valid), target.dimensions)
    for there, here, dims in _pieces(valid, strides, target.dimensions):
        dims.sort(key=lambda dimension: dimension[2], reverse=True)
        base = memory + there, local + here
        loads += strided_copy((Memory.DRAM, target.memory), dims, base, limits)
    return tuple(loads)


def _padding(
    box: Box, valid: Box, target: LocalBox, pad: int, limits: Configuration
) -> list[Instruction]:
    """LOADs that fill at least the part of a box that is not valid."""
    if box == valid:
        return []
    memory, _, dimensions = target
    if any(place.block for place in dimensions):
        # The padding is scattered over the rows of a tile; filling the whole tile is faster.
        return fill_bytes([(box_size(box), 1)], memory, 0, pad, limits)
    loads: list[Instruction] = []
    for slab in _outside(box, valid):
        dims = [(size, one.inner) for size, one in zip(extents_of(slab), dimensions, strict=True)]
        loads += fill_bytes(
            dims, memory, distance(lows_of(box), lows_of(slab), dimensions), pad, limits
        )
    return loads


def _pieces(
    box: Box, strides: tuple[int, ...], dimensions: tuple[TileLayout, ...]
) -> Iterator[tuple[int, int, list[Dimension]]]:
    """Cut a box between whole blocks and the rest of the last one, in each dimension.

    Yields
    ------
    The offsets of a piece in memory and in the scratchpad, and its loops.
    """
    choices = map(_blocks, extents_of(box), strides, dimensions)
    for parts in itertools.product(*choices):
        there, here = map(sum, zip(*(offsets for offsets, _ in parts), strict=True))
        yield there, here, [dimension for _, dimensions in parts for dimension in dimensions]


def _blocks(
    extent: int, stride: int, place: TileLayout
) -> list[tuple[tuple[int, int], list[Dimension]]]:
    """The loops over one dimension: over its whole blocks, and over the rest of the last one.

    Returns the offsets in memory and in the scratchpad, and the loops, for each of the two.
    """
    block = place.block or extent
    blocks, rest = divmod(extent, block)
    parts: list[tuple[tuple[int, int], list[Dimension]]] = []
    if blocks:
        loops = [(blocks, block * stride, place.outer), (block, stride, place.inner)]
        parts.append(((0, 0), loops))
    if rest:
        start = (blocks * block * stride, blocks * place.outer)
        parts.append((start, [(rest, stride, place.inner)]))
    return parts


def load_patches(
    source: DramTensor, patches: Patches, box: Box, local: int, limits: Configuration
) -> list[Instruction]:
    """LOADs that gather windows of an image into consecutive rows of ACT.

    Parameters
    ----------
    box
        Box of the tensor of windows: images, rows, columns, and all lanes. Windows of one pixel may
        have only some of the channels.
    """
    image, line, pixel, _ = source.strides
    rows, columns, lanes = extents_of(box[1:])
    (first_image, _), (first_row, _), (first_column, _), (first_lane, last_lane) = box
    memory = source.base + first_image * image + first_row * patches.row_step * line
    memory += first_column * patches.column_step * pixel + first_lane
    run = min(last_lane, patches.run) - first_lane if patches.whole_pixels else patches.run
    dims = [
        (box[0][1] - first_image, image, rows * columns * lanes),
        (rows, patches.row_step * line, columns * lanes),
        (columns, patches.column_step * pixel, lanes),
        (patches.rows, patches.dilation * line, patches.run),
        (run, 1, 1),
    ]
    return strided_copy((Memory.DRAM, Memory.ACT), dims, (memory, local), limits)


def store_box(
    target: DramTensor, box: Box, source: LocalBox, limits: Configuration
) -> list[Instruction]:
    """STOREs that bring a box to each of its places in main memory.

    For a part of a larger tensor, only its own channels are stored.

    Parameters
    ----------
    box
        Whole blocks of `source.dimensions`, except for the end of the last one.
    """
    stores = []
    for piece in _own_channels(target, box) if target.pitch else (box,):
        start = source.first + distance(lows_of(box), lows_of(piece), source.dimensions)
        piece, memory = _from_zero(target, piece)
        ways = target.strides, target.copies
        firsts = _stores(ways, piece, source._replace(first=0), limits)
        stores += [move_transfer(first, memory, start) for first in firsts]
    return stores


@lru_cache(maxsize=1 << 14)
def _stores(
    ways: tuple[tuple[int, ...], tuple[tuple[int, int], ...]],
    box: Box, source: LocalBox, limits: Configuration
) -> tuple[Instruction, ...]:  # fmt: skip
    """Return the STOREs of a box whose first element is at byte 0, on both sides.

    The tensor is given by its strides and its copies.
    """
    strides, copies = ways
    memory = sum(low * stride for (low, _), stride in zip(box, strides, strict=True))
    again = [(count, 0, apart) for count, apart in copies]
    stores: list[Instruction] = []
    for there, here, loops in _pieces(box, strides, source.dimensions):
        dims = [*again, *((extent, inner, stride) for extent, stride, inner in loops)]
        stores += strided_copy((source.memory, Memory.DRAM), dims, (here, memory + there), limits)
    return tuple(stores)


def _own_channels(target: DramTensor, box: Box) -> Iterator[Box]:
    """The channels of a box that belong to a part: whole blocks, and the start of the last one."""
    *outer, (low, high) = box
    if len(outer) == PIXEL_AXES:
        if low < target.channels:
            yield (*outer, (low, min(high, target.channels)))
        return
    (*pixels, (first, last)) = outer
    blocks, rest = divmod(target.channels, target.shape[-1])
    if first < blocks:
        yield (*pixels, (first, min(last, blocks)), (low, high))
    if first <= blocks < last and low < rest:
        yield (*pixels, (blocks, blocks + 1), (low, min(high, rest)))


def _outside(box: Box, valid: Box) -> Iterator[Box]:
    """Disjoint boxes that cover `box` without `valid`."""
    if any(low >= high for low, high in valid):
        yield box
        return
    for dimension, ((low, high), (first, last)) in enumerate(zip(box, valid, strict=True)):
        for part in ((low, first), (last, high)):
            if part[0] < part[1]:
                yield (*valid[:dimension], part, *box[dimension + 1 :])

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, move_transfer
from ..te.box import Box, box_size
from ..tensor import Patches, Tensor
from .strided_copy import Dimension, fill_bytes, strided_copy
from .tile_layout import TileLayout, row_major


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
        if self.pitch:
            return self.pitch
        strides, stride = [], 1
        for extent in reversed(self.shape):
            strides.append(stride)
            stride *= extent
        return tuple(reversed(strides))

    @property
    def size(self) -> int:
        """Bytes."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    def shaped(self, shape: tuple[int, ...]) -> "DramTensor":
        """The same bytes with another shape, whose last dimensions are blocks of channels."""
        if not self.pitch:
            return replace(self, shape=shape)
        blocks = DramTensor(0, shape[PIXEL_AXES:]).strides
        return replace(self, shape=shape, pitch=(*self.pitch[:PIXEL_AXES], *blocks))

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


def load_box(
    source: DramTensor,
    box: Box,
    destination: Memory,
    local: int,
    places: tuple[TileLayout, ...],
    pad: int,
    limits: Configuration,
) -> list[Instruction]:
    """LOADs that bring a box to a scratchpad, padding first.

    Parameters
    ----------
    box
        The part outside the tensor is filled with `pad`. Along dimensions that are cut into blocks,
        only the part after the last element may lie outside.
    local
        First byte in the scratchpad; an element takes one byte.
    places
        Layout of each dimension of the box there.
    """
    box, memory = _from_zero(source, box)
    firsts = _loads(source.shape, source.strides, box, destination, places, pad, limits)
    return [move_transfer(first, memory, local) for first in firsts]


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
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: Box,
    destination: Memory,
    places: tuple[TileLayout, ...],
    pad: int,
    limits: Configuration,
) -> tuple[Instruction, ...]:
    """Return the LOADs of a box, for a tensor and a destination that both start at byte 0."""
    valid = tuple(
        (max(low, 0), min(high, size)) for (low, high), size in zip(box, shape, strict=True)
    )
    loads = _padding(box, valid, destination, places, pad, limits)
    if any(low >= high for low, high in valid):
        return tuple(loads)
    memory = sum(low * stride for (low, _), stride in zip(valid, strides, strict=True))
    local = _offset(valid, box, [place.inner for place in places])
    choices = [
        _blocks(high - low, stride, place)
        for (low, high), stride, place in zip(valid, strides, places, strict=True)
    ]
    for parts in itertools.product(*choices):
        base = memory + sum(part[0][0] for part in parts), local + sum(part[0][1] for part in parts)
        dims = [dimension for _, dimensions in parts for dimension in dimensions]
        dims.sort(key=lambda dimension: dimension[2], reverse=True)
        loads += strided_copy((Memory.DRAM, destination), dims, base, limits)
    return tuple(loads)


def _padding(
    box: Box,
    valid: Box,
    destination: Memory,
    places: tuple[TileLayout, ...],
    pad: int,
    limits: Configuration,
) -> list[Instruction]:
    """LOADs that fill at least the part of a box that is not valid."""
    if box == valid:
        return []
    if any(place.block for place in places):
        # The padding is scattered over the rows of a tile; filling the whole tile is faster.
        return fill_bytes([(box_size(box), 1)], destination, 0, pad, limits)
    loads: list[Instruction] = []
    pitch = [place.inner for place in places]
    for slab in _outside(box, valid):
        dims = [(high - low, p) for (low, high), p in zip(slab, pitch, strict=True)]
        loads += fill_bytes(dims, destination, _offset(slab, box, pitch), pad, limits)
    return loads


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


def load_tiles(
    memory: int, size: int, stored: int, local: int, limits: Configuration
) -> list[Instruction]:
    """LOADs that bring `size` contiguous bytes to WGT, the first `stored` bytes of each tile."""
    dims = [(size // stored, stored, limits.tile_bytes), (stored, 1, 1)]
    return strided_copy((Memory.DRAM, Memory.WGT), dims, (memory, local), limits)


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
    rows, columns, lanes = (high - low for low, high in box[1:])
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
    target: DramTensor, box: Box, source: Memory, local: int, limits: Configuration
) -> list[Instruction]:
    """STOREs that bring a dense box at byte `local` to each of its places in main memory.

    For a part of a larger tensor, only its own channels are stored.
    """
    pitch = row_major(box)
    stores = []
    for piece in _own_channels(target, box) if target.pitch else (box,):
        start = local + _offset(piece, box, pitch)
        piece, memory = _from_zero(target, piece)
        firsts = _stores(target.strides, target.copies, piece, pitch, source, limits)
        stores += [move_transfer(first, memory, start) for first in firsts]
    return stores


@lru_cache(maxsize=1 << 14)
def _stores(
    strides: tuple[int, ...],
    copies: tuple[tuple[int, int], ...],
    box: Box,
    pitch: tuple[int, ...],
    source: Memory,
    limits: Configuration,
) -> tuple[Instruction, ...]:
    """Return the STOREs of a box with strides `pitch` whose first element is at byte 0."""
    memory = sum(low * stride for (low, _), stride in zip(box, strides, strict=True))
    dims = [(count, 0, apart) for count, apart in copies]
    dims += [
        (high - low, p, stride) for (low, high), stride, p in zip(box, strides, pitch, strict=True)
    ]
    return tuple(strided_copy((source, Memory.DRAM), dims, (0, memory), limits))


def store_blocks(
    target: DramTensor,
    box: Box,
    base: int,
    lows: Sequence[int],
    places: tuple[TileLayout, ...],
    limits: Configuration,
) -> list[Instruction]:
    """STOREs that bring a box of sums from ACC to main memory, where blocks are joined.

    Parameters
    ----------
    target
        Its last dimension is that of the bytes of a sum.
    box
        Whole blocks, except for the end of the last one.
    base, lows
        Place in ACC of the first sum, and the element that lies there.
    places
        Layout of each dimension in ACC, in sums.
    """
    *strides, byte = target.strides
    size = target.shape[-1]
    memory = target.base + sum(low * s for (low, _), s in zip(box, strides, strict=True))
    for (low, _), start, place in zip(box, lows, places, strict=True):
        blocks, rest = divmod(low - start, place.block) if place.block else (0, low - start)
        base += blocks * place.outer + rest * place.inner
    choices = [
        _blocks(high - low, stride, place)
        for (low, high), stride, place in zip(box, strides, places, strict=True)
    ]
    stores = []
    for parts in itertools.product(*choices):
        there, here = (sum(offsets) for offsets in zip(*(part[0] for part in parts), strict=True))
        dims = [
            (extent, inner * size, stride)
            for _, dimensions in parts
            for extent, stride, inner in dimensions
        ]
        dims.sort(key=lambda dimension: dimension[2], reverse=True)
        first = (base + here) * size, memory + there
        stores += strided_copy((Memory.ACC, Memory.DRAM), [*dims, (size, 1, byte)], first, limits)
    return stores


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


def _offset(inner: Box, box: Box, pitch: Sequence[int]) -> int:
    return sum((i[0] - b[0]) * p for i, b, p in zip(inner, box, pitch, strict=True))


def _outside(box: Box, valid: Box) -> Iterator[Box]:
    """Disjoint boxes that cover `box` without `valid`."""
    if any(low >= high for low, high in valid):
        yield box
        return
    for dimension, ((low, high), (first, last)) in enumerate(zip(box, valid, strict=True)):
        for part in ((low, first), (last, high)):
            if part[0] < part[1]:
                yield (*valid[:dimension], part, *box[dimension + 1 :])

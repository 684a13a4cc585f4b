"""Copies between main memory and the blocks of WGT and ACC.

Activations as weights: LOADs that cut a box of main memory into weight tiles.

The compiler packs a constant so that one LOAD fetches it. An activation stays as it was stored, and
LOAD's loops pack it. The speed depends on the runs: bytes that are contiguous both in memory and in
a tile. If the tensor's last dimension is contiguous, each row of a tile is a run. A transposed
tensor is fetched byte by byte. Sums in ACC lie block by block, and STORE's loops join the blocks.
"""

import itertools
from collections.abc import Sequence

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, transfer
from ..te.box import Box
from .dma import DramTensor, copy_runs, fill_bytes
from .scratchpads import Placed
from .tile_layout import TileLayout

Dimension = tuple[int, int, int]
"""Extent, bytes per step in main memory, bytes per step in the scratchpad."""


def load_blocks(
    source: DramTensor,
    box: Box,
    local: int,
    places: Sequence[TileLayout],
    pad: int,
    limits: Configuration,
) -> list[Instruction]:
    """LOADs that bring a box to WGT.

    Parameters
    ----------
    box
        The part outside the tensor is filled with `pad`. Along dimensions that are cut into blocks,
        only the part after the last element may lie outside.
    local
        First byte in WGT; an element takes one byte.
    places
        Layout of each dimension of the box in WGT.
    """
    valid = [
        (max(low, 0), min(high, size)) for (low, high), size in zip(box, source.shape, strict=True)
    ]
    loads = []
    if any(inner != outer for inner, outer in zip(valid, box, strict=True)):
        total = 1
        for low, high in box:
            total *= high - low
        # The padding is scattered over the rows of a tile; filling the whole tile is faster.
        loads += fill_bytes([(total, 1)], Memory.WGT, local, pad, limits)
    if any(low >= high for low, high in valid):
        return loads
    base = source.base + sum(
        low * stride for (low, _), stride in zip(valid, source.strides, strict=True)
    )
    local += sum(
        (inner[0] - outer[0]) * place.inner
        for inner, outer, place in zip(valid, box, places, strict=True)
    )
    choices = [
        _cut(high - low, stride, place)
        for (low, high), stride, place in zip(valid, source.strides, places, strict=True)
    ]
    for parts in itertools.product(*choices):
        start = tuple(sum(offsets) for offsets in zip(*(part[0] for part in parts), strict=True))
        dims = [dimension for _, dimensions in parts for dimension in dimensions]
        dims.sort(key=lambda dimension: dimension[2], reverse=True)
        loads += [
            transfer(Memory.DRAM, Memory.WGT, length, bases, loops)
            for length, bases, loops in copy_runs(dims, (base + start[0], local + start[1]), limits)
        ]
    return loads


def store_blocks(
    target: DramTensor,
    box: Box,
    local: Placed,
    size: int,
    limits: Configuration,
) -> list[Instruction]:
    """STOREs that bring a box of sums from ACC to main memory.

    Parameters
    ----------
    target
        The last dimension is that of the bytes of an element.
    box
        Whole blocks, except for the end of the last one.
    local
        The place of the sums.
    size
        Bytes of an element.
    """
    *strides, byte = target.strides
    memory = target.base + sum(low * s for (low, _), s in zip(box, strides, strict=True))
    first = local.base
    for (low, _), start, place in zip(box, local.lows, local.places, strict=True):
        blocks, rest = divmod(low - start, place.block) if place.block else (0, low - start)
        first += blocks * place.outer + rest * place.inner
    choices = [
        _cut(high - low, stride, place)
        for (low, high), stride, place in zip(box, strides, local.places, strict=True)
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
        base = (first + here) * size, memory + there
        stores += [
            transfer(Memory.ACC, Memory.DRAM, length, bases, loops)
            for length, bases, loops in copy_runs([*dims, (size, 1, byte)], base, limits)
        ]
    return stores


def _cut(
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

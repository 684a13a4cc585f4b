"""Lower the copies of a loop program to LOADs and STOREs.

Constants are packed for a single LOAD: weights in tiles, each bias next to its scale. A
`DramTensor` gives the place of any other tensor in memory, which may be a part of a larger one.
"""

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, move_transfer, transfer_problem, unpack_weights
from ..te.box import Box, extents_of, intersection, lows_of
from ..te.instances import Instance
from ..te.nodes import TransferNest
from ..te.program import Program
from ..tensor import Tensor
from .constant_pool import ConstantPool, pack_parameters, padded_box
from .dma import DramTensor, LocalBox, load_box, load_patches, store_box
from .scratchpads import BufferPlacer, Placed
from .sliding import Window
from .strided_copy import strided_copy
from .tile_layout import TileLayout, dense_layout, distance, row_major
from .weights import fits_four_bits, pack_four_bits, pack_weights, stored_bytes
from .wide_weights import int8_parts

PAIR_BYTES = Memory.PARAM.scratchpad.element_bytes
"""Bytes of a bias and its scale."""


Packed = tuple[bytes, list[Instruction]]
"""A constant as main memory holds it, and the LOADs of it from address 0 to address 0."""


class Transfers:
    """Makes the instructions of each copy in turn.

    Parameters
    ----------
    program
        The program to lower.
    buffers
        The places of its buffers.
    dram
        Tensors in main memory, by their graph value, or by name without one. For elements of
        several bytes, the bytes are one more dimension.
    pool
        Collects the constants.
    packed
        Constants of the kernel, by their contents; new ones are added.
    """

    def __init__(
        self,
        program: Program,
        buffers: BufferPlacer,
        dram: Mapping[str, DramTensor],
        pool: ConstantPool,
        packed: dict[object, Packed],
    ) -> None:
        self.packed = packed
        self.program, self.buffers, self.dram, self.pool = program, buffers, dram, pool
        self.limits = buffers.configuration
        self.held: dict[str, DramTensor] = {}
        """Activations in main memory as the program sees them."""
        self.pairs: dict[int, bytes] = {}
        """Constant pairs in PARAM, by first element."""

    def instructions(self, instance: Instance, placed: Mapping[str, Placed]) -> list[Instruction]:
        """LOADs or STOREs of a copy; none for a buffer that already holds the data.

        Raises
        ------
        CompileError
            When no unit can make the copy.
        """
        assert isinstance(instance.node, TransferNest)
        source, target = instance.node.source, instance.nest.stage
        ways = (
            placed[source].memory if source in placed else Memory.DRAM,
            placed[target].memory if target in placed else Memory.DRAM,
        )
        problem = transfer_problem(*ways)
        if problem:
            raise CompileError(f"copy of `{source}` to `{target}`: {problem}")
        if ways[1] is Memory.DRAM:
            return self._store(instance, placed[source])
        place = placed[target]
        if not place.missing:
            return []
        if place.piece is not None:
            place.missing = False
            if instance.box != instance.buffers[target].held:
                raise CompileError(
                    f"`{target}` is filled by several transfers, so it cannot take turns in an "
                    "arena; leave its loops as they are"
                )
        if ways[1] is Memory.PARAM:
            return self._load_parameters(instance, source, target, place)
        if ways[1] is Memory.WGT:
            return self._load_weights(instance, source, target, place)
        return list(self._load(source, instance.box, self._held_box(instance, target), place))

    def _held_box(self, instance: Instance, name: str) -> Box:
        """The box that determines a buffer's layout."""
        buffer = instance.buffers[name]
        return buffer.box if self.buffers.fixed is not None else buffer.held

    def _store(self, instance: Instance, place: Placed) -> list[Instruction]:
        assert isinstance(instance.node, TransferNest)
        size = place.memory.scratchpad.element_bytes
        target = self._in_dram(instance.nest.stage)
        box, held = instance.box, self._held_box(instance, instance.node.source)
        if place.resident is not None or (
            place.memory is Memory.ACC and self.buffers.fixed is None
        ):
            return self._store_in_place(target, box, place)
        stores: list[Instruction] = []
        for piece, offset in dense_pieces(box, held):
            local = (place.base + offset) * size
            if size > 1:
                piece = (*piece, (0, size))
            here = LocalBox(place.memory, local, _dense(piece))
            stores += store_box(target, piece, here, self.limits)
        return stores

    def keep(self, name: str, box: Box, place: Placed) -> list[Instruction]:
        """STOREs of a box of a result that a later stage reads, too."""
        return self._store_in_place(self._in_dram(name), box, place)

    def _store_in_place(self, target: DramTensor, box: Box, place: Placed) -> list[Instruction]:
        """STOREs of a part of a buffer that keeps its layout."""
        size = place.memory.scratchpad.element_bytes
        local = (place.base + place.offset(box)) * size
        dimensions = tuple(one.of_bytes(size) for one in place.dimensions)
        if size > 1:
            box, dimensions = (*box, (0, size)), (*dimensions, TileLayout(1))
        return store_box(target, box, LocalBox(place.memory, local, dimensions), self.limits)

    def _load(self, name: str, box: Box, held: Box, place: Placed) -> Iterator[Instruction]:
        """Load a box of bytes into a buffer with the layout of a larger box."""
        source, tensor = self._in_dram(name), self.program.tensors[name]
        for piece, offset in dense_pieces(box, held):
            local = place.base + offset
            if tensor.patches is not None:
                if piece[-1] != (0, tensor.shape[-1]) and not tensor.patches.whole_pixels:
                    raise CompileError(
                        f"`{name}` is gathered from overlapping windows, which have to be loaded "
                        "whole; do not split their last dimension"
                    )
                yield from load_patches(source, tensor.patches, piece, local, self.limits)
            else:
                here = LocalBox(place.memory, local, _dense(piece))
                yield from load_box(source, piece, here, tensor.pad, self.limits)

    def _load_weights(
        self, instance: Instance, name: str, target: str, place: Placed
    ) -> list[Instruction]:
        box, held = instance.box, self._held_box(instance, target)
        tensor = self.program.tensors[name]
        complete = intersection(held, self.program.domains[target])
        if name in self.program.kernel.constants and complete == box:
            return self._load_constant(name, box, held, self.buffers.windows.get(target), place)
        if place.further:
            raise CompileError(
                f"copy of `{name}` to `{target}`: weights beyond int8 are loaded in one transfer; "
                "leave its loops as they are"
            )
        source = self._in_dram(name)
        if box == held:
            here = LocalBox(Memory.WGT, place.base, place.dimensions)
            return load_box(source, box, here, tensor.pad, self.limits)
        return self._load_lanes(box, held, source, tensor, place)

    def _load_constant(
        self, name: str, box: Box, held: Box, window: Window | None, place: Placed
    ) -> list[Instruction]:
        """Load weights in the order of WGT, of 4 bits where they and their tiles allow it."""
        key = name, box, held, window
        if key not in self.packed:
            kernel, lanes = self.program.kernel, (self.limits.lanes_in, self.limits.lanes_out)
            narrow = fits_four_bits(kernel, name, window, self.limits)
            narrow &= all(low % size == 0 for (low, _), size in zip(held[-2:], lanes, strict=True))
            values = padded_box(kernel.constants[name], box, held, self.program.tensors[name].pad)
            if narrow:
                data = pack_four_bits(values, self.limits)
                loads = [unpack_weights(len(data), 0, 0)]
            else:
                parts = int8_parts(values, window, self.limits)
                data = b"".join(pack_weights(part, window, self.limits) for _, part in parts)
                loads = _tile_loads(len(data), stored_bytes(window, self.limits), self.limits)
            self.packed[key] = data, loads
        data, loads = self.packed[key]
        memory = self.pool.add(data)
        return [move_transfer(first, memory, place.base) for first in loads]

    def _load_lanes(
        self, box: Box, held: Box, source: DramTensor, tensor: Tensor, place: Placed
    ) -> list[Instruction]:
        """Load a part of a weight buffer, one block of lanes after the other."""
        *outer, _, _ = held
        found: list[Instruction] = []
        lanes = self.limits.lanes_in, self.limits.lanes_out
        starts = (
            range(low, high, size) for (low, high), size in zip(held[-2:], lanes, strict=True)
        )
        for corner in itertools.product(*starts):
            block = (*outer, *((low, low + size) for low, size in zip(corner, lanes, strict=True)))
            part = intersection(box, block)
            if any(low >= high for low, high in part):
                continue
            local = place.base + distance(lows_of(held[-2:]), corner, place.dimensions[-2:])
            for piece, offset in dense_pieces(part, block):
                here = LocalBox(Memory.WGT, local + offset, _dense(piece))
                found += load_box(source, piece, here, tensor.pad, self.limits)
        return found

    def _load_parameters(
        self, instance: Instance, name: str, target: str, place: Placed
    ) -> list[Instruction]:
        box, tensor = instance.box, self.program.tensors[name]
        held = self._held_box(instance, target)
        if any(low < 0 or high > size for (low, high), size in zip(box, tensor.shape, strict=True)):
            raise CompileError(
                f"copy of `{name}` to `{target}`: PARAM has no padding; keep the index inside "
                f"[{', '.join(map(str, tensor.shape))}]"
            )
        partners = self.buffers.partners.get(target, (target,))
        copied = self.buffers.copied
        given = frozenset(copied[one] for one in partners if one in copied)
        if given <= set(self.program.kernel.constants) and box == intersection(
            held, self.program.domains[target]
        ):
            return self._load_pairs(given, box, place)
        if place.piece is not None:
            raise CompileError(
                f"copy of `{name}` to `{target}`: only constants take turns in the arena of PARAM; "
                "leave `arena()` out"
            )
        self.pairs.pop(place.base, None)
        half = 4 if tensor.dtype == "float32" else 0
        source, byte = self._in_dram(name), ((0, 4),)
        found: list[Instruction] = []
        for piece, offset in _cut(box, held, len(box) - 1):
            memory = source.base + sum(
                low * stride
                for (low, _), stride in zip((*piece, *byte), source.strides, strict=True)
            )
            local = (place.base + offset) * PAIR_BYTES + half
            words = [(piece[-1][1] - piece[-1][0], 4, PAIR_BYTES), (4, 1, 1)]
            found += strided_copy((Memory.DRAM, Memory.PARAM), words, (memory, local), self.limits)
        return found

    def _load_pairs(self, names: frozenset[str], box: Box, place: Placed) -> list[Instruction]:
        """Load two interleaved constants at once; the second of their copies then does nothing."""
        if (names, box) not in self.packed:
            values: dict[str, np.ndarray] = {}
            for name in names:
                given = self.program.kernel.constants[name]
                values[str(given.dtype)] = given[tuple(slice(*pair) for pair in box)]
            data = pack_parameters(values.get("int32"), values.get("float32"))
            dims, ways = [(len(data), 1, 1)], (Memory.DRAM, Memory.PARAM)
            self.packed[names, box] = data, strided_copy(ways, dims, (0, 0), self.limits)
        data, loads = self.packed[names, box]
        if place.piece is None:
            if self.pairs.get(place.base) == data:
                return []
            self.pairs[place.base] = data
        memory = self.pool.add(data)
        return [move_transfer(first, memory, place.base * PAIR_BYTES) for first in loads]

    def _in_dram(self, name: str) -> DramTensor:
        """A tensor in main memory; a constant is added at its first use."""
        tensor = self.program.tensors[name]
        data = self.program.kernel.constants.get(name)
        if data is not None:
            return in_dram(tensor, self.pool.add(data.tobytes()))
        if name not in self.held:
            found = self.dram[tensor.value or name]
            size = np.dtype(tensor.dtype).itemsize
            if size > 1:
                found = found.of_elements(tensor.shape, size)
            alone = size > 1 or tensor.patches is not None
            self.held[name] = found if alone else found.holding(tensor)
        return self.held[name]


def in_dram(tensor: Tensor, base: int) -> DramTensor:
    """A separate tensor in main memory; bytes of wider elements are one more dimension."""
    size = np.dtype(tensor.dtype).itemsize
    return DramTensor(base, (*tensor.shape, size) if size > 1 else tensor.shape)


@lru_cache(maxsize=1 << 12)
def _tile_loads(size: int, stored: int, limits: Configuration) -> list[Instruction]:
    """LOADs of `size` bytes of weight tiles, of which main memory has the first `stored` bytes."""
    dims = [(size // stored, stored, limits.tile_bytes), (stored, 1, 1)]
    return strided_copy((Memory.DRAM, Memory.WGT), dims, (0, 0), limits)


def _dense(box: Box) -> tuple[TileLayout, ...]:
    """The layout of a dense buffer of a box."""
    return dense_layout(extents_of(box))


def dense_pieces(box: Box, held: Box) -> Iterator[tuple[Box, int]]:
    """Cut a box into pieces that are contiguous in a dense buffer of the box `held`.

    Yields
    ------
    Each piece, and the place of its first element.
    """
    if box == held:
        yield box, 0
        return
    cut = [index for index, pair in enumerate(zip(box, held, strict=True)) if pair[0] != pair[1]]
    yield from _cut(box, held, cut[-1])


def _cut(box: Box, held: Box, position: int) -> Iterator[tuple[Box, int]]:
    """The parts of a box that have one element in each dimension before a position."""
    strides = row_major(extents_of(held))
    for starts in itertools.product(*(range(*pair) for pair in box[:position])):
        piece = (*((start, start + 1) for start in starts), *box[position:])
        places = zip(piece, held, strides, strict=True)
        yield piece, sum((low - first) * stride for (low, _), (first, _), stride in places)

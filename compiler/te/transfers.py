"""Copies of a loop program as LOADs and STOREs.

What the kernel is given lies in main memory row-major, in the bytes of its type. Constants are
packed as one LOAD wants them: weights in tiles, a bias beside its scale.
"""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, Loop, transfer, transfer_problem
from ..accelerator.constants import ConstantPool, pack_parameters
from ..accelerator.dma import Box, Resident, load_box, load_bytes, store_box
from ..tensor import Tensor
from .instances import Instance
from .nodes import Copy, Nest, nodes
from .places import ELEMENT_BYTES, Places
from .program import Program


class Transfers:
    """Makes the instructions of one copy after the other.

    Parameters
    ----------
    program
        What is lowered.
    places
        Of its buffers.
    residents
        Tensors in main memory, by name; extents in bytes, see `resident`.
    pool
        Takes the constants.
    """

    def __init__(
        self,
        program: Program,
        places: Places,
        residents: Mapping[str, Resident],
        pool: ConstantPool,
    ) -> None:
        self.program, self.places, self.residents, self.pool = program, places, residents, pool
        self.limits = places.configuration
        self.sources = {
            nest.stage: copy.source
            for nest in nodes(program.body)
            if isinstance(nest, Nest) and nest.compute is None
            for copy in nodes(nest.body)
            if isinstance(copy, Copy)
        }
        self.pairs: dict[int, bytes] = {}
        """Constant pairs that lie in PARAM, by first element."""

    def instructions(self, instance: Instance) -> list[Instruction]:
        """LOADs or STOREs of a copy.

        Raises
        ------
        CompileError
            When no unit moves data that way.
        """
        assert isinstance(instance.node, Copy)
        source, target = instance.node.source, instance.nest.stage
        ways = (_memory(instance, source), _memory(instance, target))
        problem = transfer_problem(*ways)
        if problem:
            raise CompileError(f"copy of `{source}` to `{target}`: {problem}")
        if ways[1] is Memory.DRAM:
            return self._store(instance, source, target)
        if ways[1] is Memory.PARAM:
            return self._load_parameters(instance, source, target)
        if ways[1] is Memory.WGT:
            return self._load_weights(instance, source, target)
        buffer = instance.buffers[target]
        base = self.places.base(target, buffer.slot)
        return list(self._load(source, instance.box, buffer.box, ways[1], base))

    def _store(self, instance: Instance, source: str, target: str) -> list[Instruction]:
        buffer = instance.buffers[source]
        memory = Memory[buffer.allocate.scope]
        size = ELEMENT_BYTES[memory]
        base = self.places.base(source, buffer.slot) * size
        byte: Box = ((0, size),)
        stores = (
            store_box(self._resident(target), piece, memory, base + offset, self.limits)
            for piece, offset in dense_pieces((*instance.box, *byte), (*buffer.box, *byte))
        )
        return [store for some in stores for store in some]

    def _load(
        self, name: str, box: Box, room: Box, memory: Memory, base: int
    ) -> Iterator[Instruction]:
        """A box of bytes into a buffer that has room for another."""
        source, pad = self._resident(name), self.program.tensors[name].pad
        byte: Box = ((0, 1),)
        for piece, offset in dense_pieces((*box, *byte), (*room, *byte)):
            yield from load_box(source, piece, memory, base + offset, pad, self.limits)

    def _load_weights(self, instance: Instance, name: str, target: str) -> list[Instruction]:
        buffer = instance.buffers[target]
        base = self.places.base(target, buffer.slot)
        sizes = tuple(high - low for low, high in buffer.box)
        block = self.places.weight_block(sizes)
        if name in self.program.kernel.constants and self._whole(instance, target):
            data = self._tiles(name, instance.box, buffer.box, block)
            address = self.pool.add(data)
            return [*load_bytes(address, len(data), Memory.WGT, base, self.limits)]
        found: list[Instruction] = []
        *outer, (low, high) = instance.box
        corner = [first for first, _ in buffer.box]
        for number, start in enumerate(range(corner[-1], buffer.box[-1][1], block[-1])):
            part = (max(low, start), min(high, start + block[-1]))
            if part[0] < part[1]:
                room = tuple(
                    (first, first + extent)
                    for first, extent in zip((*corner[:-1], start), block, strict=True)
                )
                place = base + number * int(np.prod(block))
                found += self._load(name, (*outer, part), room, Memory.WGT, place)
        return found

    def _tiles(self, name: str, box: Box, room: Box, block: tuple[int, ...]) -> bytes:
        """A buffer of constant weights as it lies in WGT."""
        blocks = -(-(room[-1][1] - room[-1][0]) // block[-1])
        values = np.zeros((*block[:-1], blocks * block[-1]), dtype=np.int8)
        inside = tuple(
            slice(low - first, high - first)
            for (low, high), (first, _) in zip(box, room, strict=True)
        )
        data, pad = self.program.kernel.constants[name], self.program.tensors[name].pad
        values[inside] = _padded(data, box, pad)
        split = values.reshape(*block[:-1], blocks, block[-1])
        return np.ascontiguousarray(np.moveaxis(split, -2, 0)).tobytes()

    def _load_parameters(self, instance: Instance, name: str, target: str) -> list[Instruction]:
        buffer, box = instance.buffers[target], instance.box
        tensor = self.program.tensors[name]
        if any(low < 0 or high > size for (low, high), size in zip(box, tensor.shape, strict=True)):
            raise CompileError(
                f"copy of `{name}` to `{target}`: PARAM has no padding; keep the index inside of "
                f"[{', '.join(map(str, tensor.shape))}]"
            )
        base = self.places.base(target, buffer.slot)
        partners = self.places.partners.get(target, (target,))
        given = {self.sources[one] for one in partners}
        if given <= set(self.program.kernel.constants) and self._whole(instance, target):
            return self._load_pairs(given, box, base)
        self.pairs.pop(base, None)
        half = 4 if tensor.dtype == "float32" else 0
        resident, byte = self._resident(name), ((0, 4),)
        found: list[Instruction] = []
        for piece, offset in _rows(box, buffer.box):
            memory = resident.base + sum(
                low * stride
                for (low, _), stride in zip((*piece, *byte), resident.strides, strict=True)
            )
            local = (base + offset) * 8 + half
            found += _every_other(memory, local, piece[-1][1] - piece[-1][0], self.limits)
        return found

    def _load_pairs(self, names: set[str], box: Box, base: int) -> list[Instruction]:
        """Constants side by side in one LOAD; whichever copy comes second has nothing to do."""
        values: dict[str, np.ndarray] = {}
        for name in names:
            data = self.program.kernel.constants[name]
            values[str(data.dtype)] = data[tuple(slice(*pair) for pair in box)]
        data = pack_parameters(values.get("int32"), values.get("float32"))
        if self.pairs.get(base) == data:
            return []
        self.pairs[base] = data
        address = self.pool.add(data)
        return [*load_bytes(address, len(data), Memory.PARAM, base * 8, self.limits)]

    def _whole(self, instance: Instance, target: str) -> bool:
        """Whether a copy brings all that its buffer will hold."""
        domain = self.program.domains[target]
        room = instance.buffers[target].box
        inside = zip(room, domain, strict=True)
        return instance.box == tuple((max(a, c), min(b, d)) for (a, b), (c, d) in inside)

    def _resident(self, name: str) -> Resident:
        """A tensor in main memory; a constant is put there when it is first asked for."""
        if name in self.residents:
            return self.residents[name]
        data = self.program.kernel.constants[name]
        return resident(self.program.tensors[name], self.pool.add(data.tobytes()))


def resident(tensor: Tensor, base: int) -> Resident:
    """A tensor in main memory, its elements' bytes as one more dimension."""
    return Resident(base, (*tensor.shape, np.dtype(tensor.dtype).itemsize))


def dense_pieces(box: Box, room: Box) -> Iterator[tuple[Box, int]]:
    """Cut a box into pieces that lie without gaps in a dense buffer of `room`.

    Yields
    ------
    Each piece, and where its first element lies.
    """
    cut = [index for index, pair in enumerate(zip(box, room, strict=True)) if pair[0] != pair[1]]
    yield from _cut(box, room, cut[-1] if cut else 0)


def _rows(box: Box, room: Box) -> Iterator[tuple[Box, int]]:
    """The rows of a box."""
    yield from _cut(box, room, len(box) - 1)


def _cut(box: Box, room: Box, position: int) -> Iterator[tuple[Box, int]]:
    """The parts of a box that are one element in all dimensions before a position."""
    strides = Resident(0, tuple(high - low for low, high in room)).strides
    for starts in itertools.product(*(range(*pair) for pair in box[:position])):
        piece = (*((start, start + 1) for start in starts), *box[position:])
        places = zip(piece, room, strides, strict=True)
        yield piece, sum((low - first) * stride for (low, _), (first, _), stride in places)


def _every_other(
    memory: int, local: int, count: int, limits: Configuration
) -> Iterator[Instruction]:
    """Words that follow each other in main memory, every second one in PARAM."""
    most = 1 << limits.extent_bits
    for start in range(0, count, most):
        base = memory + 4 * start, local + 8 * start
        loops = (Loop(min(most, count - start), (4, 8)),)
        yield transfer(Memory.DRAM, Memory.PARAM, 4, base, loops)


def _padded(data: np.ndarray, box: Box, pad: int) -> np.ndarray:
    """A box of a constant, which may reach beyond it."""
    values = np.full([high - low for low, high in box], pad, dtype=data.dtype)
    valid = [(max(low, 0), min(high, s)) for (low, high), s in zip(box, data.shape, strict=True)]
    inside = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(valid, box, strict=True))
    values[inside] = data[tuple(slice(*pair) for pair in valid)]
    return values


def _memory(instance: Instance, name: str) -> Memory:
    """Where a tensor lies; what the kernel is given, in main memory."""
    buffer = instance.buffers.get(name)
    return Memory.DRAM if buffer is None else Memory[buffer.allocate.scope]

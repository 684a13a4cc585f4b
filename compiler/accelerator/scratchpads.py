"""Places of buffers in the scratchpads, for all kernels of a program in order.

With `arena()`, a buffer takes the least recently used place. So LOAD can run ahead, even across
kernels, as far as there is room, and data that are still on chip are not loaded again. Without
`arena()`, every slot of a buffer has a fixed place (`static_allocation.py`).
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...errors import CompileError
from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ...isa.expressions import reads_of
from ...isa.instructions import Role
from ..te.box import Box, Range, extents_of, lows_of
from ..te.instances import Buffered
from ..te.nodes import TransferNest, nodes
from ..te.program import Program
from ..te.rolling import Rolling
from ..tensor import Compute
from .arena import Piece, ScratchpadArena
from .constant_pool import padded_box
from .matching import MatchedInstruction
from .phases import corrects_sums, own_index
from .regions import RegionRequest, act_regions, limited_region, region_request
from .residents import (
    ResidentActivation,
    ResidentFrame,
    exchanged,
    mirrored,
    plain_copies,
    value_of,
)
from .sliding import Window
from .static_allocation import StaticAllocation, partners_of
from .tile_layout import TileLayout, accumulator_layout, dense_layout, distance, row_major
from .weights import WeightLayout, weight_layout
from .wide_weights import (
    FurtherTiles,
    excess_of,
    further_counts,
    further_tiles,
    wide_constants,
)


def unit_of(memory: Memory, configuration: Configuration) -> int:
    """Elements of a unit of a scratchpad's arena: a byte of ACT, a tile of WGT, a row, a table."""
    if memory is Memory.ACT:
        return 1
    if memory is Memory.WGT:
        return configuration.tile_bytes
    held = memory.scratchpad
    return configuration.row_bytes(memory) * held.unit_rows // held.element_bytes


@dataclass(slots=True)
class Scratchpads:
    """Scratchpad state that all kernels of a program share.

    Parameters
    ----------
    configuration
        The machine.
    arenas
        The arena of each scratchpad, in bytes of ACT, tiles of WGT, rows of PARAM, tables of LUT.
    bank
        The next bank of ACC. They take turns, so that VECTOR reads one while GEMM fills another.
    frames, residents
        Activations that may stay in ACT, and those that are there, by value.
    kept
        Whether any was there.
    room, made_room
        Whether results that may stay get the banks that they need, and whether any got more.
    """

    configuration: Configuration
    arenas: Mapping[Memory, ScratchpadArena]
    bank: int = 0
    frames: dict[str, ResidentFrame] = field(default_factory=dict)
    residents: dict[str, ResidentActivation] = field(default_factory=dict)
    kept: bool = False
    room: bool = True
    made_room: bool = False

    @staticmethod
    def of(configuration: Configuration) -> "Scratchpads":
        """Empty scratchpads."""
        arenas = {
            memory: ScratchpadArena(
                configuration.size_bytes(memory)
                // (unit_of(memory, configuration) * held.element_bytes),
                row=configuration.row_bytes(memory) if memory is Memory.ACT else 1,
            )
            for memory, held in SCRATCHPADS.items()
            if memory is not Memory.ACC
        }
        return Scratchpads(configuration, arenas)

    def copy(self) -> "Scratchpads":
        """Return a copy, without residents; later changes to either one leave the other alone."""
        arenas = {memory: arena.copy() for memory, arena in self.arenas.items()}
        return Scratchpads(self.configuration, arenas, self.bank)

    def clear(self) -> None:
        """Forget all data."""
        for arena in self.arenas.values():
            arena.clear(0, arena.size)

    def take_bank(self) -> int:
        """Return the next bank of ACC, and advance to the one after it."""
        bank = self.bank
        self.bank = (bank + 1) % self.configuration.acc_banks
        return bank


@dataclass(slots=True)
class Placed:
    """A buffer in its scratchpad.

    Parameters
    ----------
    memory
        The scratchpad.
    base
        Its first element; in ACC, that of the first complete pixel.
    lows
        Index of its first element, per dimension.
    dimensions
        Layout of its elements, per dimension.
    missing
        Whether its data must still be loaded; one transfer loads them.
    piece
        Its piece of an arena, which shows whether other data have replaced it.
    rolling
        The ring, if the buffer is a ring of rows.
    further
        The further tiles of wide weights.
    resident
        The activation of which the buffer is a part.
    """

    memory: Memory
    base: int
    lows: tuple[int, ...]
    dimensions: tuple[TileLayout, ...]
    missing: bool = True
    piece: Piece | None = None
    rolling: Rolling | None = None
    further: tuple[FurtherTiles, ...] = ()
    resident: ResidentActivation | None = None

    def offset(self, box: Box) -> int:
        """Elements from the buffer's first to that of a box."""
        return distance(self.lows, lows_of(box), self.dimensions)


class ArenaRequest(NamedTuple):
    """A box of a buffer, as an arena is asked for it: `size` units of `unit` elements each."""

    memory: Memory
    lows: tuple[int, ...]
    dimensions: tuple[TileLayout, ...]
    further: tuple[FurtherTiles, ...]
    key: Hashable
    size: int
    unit: int
    region: Range


class BufferPlacer:
    """Places the buffers of one kernel.

    Parameters
    ----------
    program
        The kernel's loop program.
    computes
        The kernel's computing stages, in order.
    instructions
        The instructions of these stages.
    arena
        Whether buffers use an arena.
    scratchpads
        The state shared with earlier and later kernels.

    Raises
    ------
    CompileError
        When the buffers do not fit.
    """

    def __init__(
        self,
        program: Program,
        computes: tuple[Compute, ...],
        instructions: Mapping[str, MatchedInstruction],
        arena: bool,
        scratchpads: Scratchpads,
    ) -> None:
        self.program, self.scratchpads = program, scratchpads
        self.configuration = scratchpads.configuration
        self.copies = {name: nest for name, nest in program.nests.items() if nest.compute is None}
        self.copied = {
            name: node.source
            for name, nest in self.copies.items()
            for node in nodes(nest.body)
            if isinstance(node, TransferNest)
        }
        """The source of each copy."""
        self.wide = wide_constants(program.kernel, self.copied)
        self.allocates = program.buffers
        self.windows: dict[str, Window] = {}
        for name, matched in instructions.items():
            if matched.window is not None:
                self.windows[name] = self.windows[matched.weights] = matched.window
        self.partners = partners_of(program)
        self.statistics = {
            read.tensor: math.prod(self.allocates[name].shape[:-1])
            for name, matched in instructions.items()
            for slot, read in matched.found.reads
            if matched.pattern.role(slot) is Role.EPSILON
        }
        """PARAM rows behind the statistics constants, one per tile row."""
        self.sources = _sources(program)
        self.ends: dict[str, tuple[Placed, int, int]] = {}
        """For sums in ACC: their place, and the first row of their bank and the last one in use."""
        self.fixed: StaticAllocation | None = None
        self.requests: dict[tuple[str, Box], ArenaRequest] = {}
        """By buffer and box; most boxes recur."""
        self.known_further: dict[tuple[str, Box], tuple[FurtherTiles, ...]] = {}
        self.stored: dict[str, str] = {}
        self.loaded: dict[str, str] = {}
        """Values of the buffers that are tiles of an activation which may stay in ACT."""
        self.wanted: dict[str, int] = {}
        """Bytes of ACT with which nothing waits for a buffer."""
        if arena:
            if scratchpads.frames:
                self._meet_residents()
            self.regions = self._regions(computes)
            self._turn()
        else:
            self.fixed = StaticAllocation(program, self.configuration, self.weight_bytes)
            for memory, kept in scratchpads.arenas.items():
                for low, high in self.fixed.taken(memory, kept.size):
                    kept.clear(low, high)

    def weights(self, name: str, extents: tuple[int, ...]) -> WeightLayout:
        """The layout of a box of a weight buffer."""
        return weight_layout(extents, self.windows.get(name), self.configuration)

    def weight_bytes(self, name: str, shape: tuple[int, ...]) -> int:
        return self.most_tiles(name, shape) * self.configuration.tile_bytes

    def most_tiles(self, name: str, shape: tuple[int, ...]) -> int:
        """Weight tiles of any box with this shape, at most."""
        tiles = self.weights(name, shape).tiles
        if name in self.wide:
            excess, window = excess_of(self.wide[name]), self.windows.get(name)
            tiles += further_counts(excess, shape, window, self.configuration).most
        return tiles

    def _further(self, name: str, box: Box) -> tuple[FurtherTiles, ...]:
        if name not in self.wide:
            return ()
        key = name, box
        if key not in self.known_further:
            values, window = padded_box(self.wide[name], box, box, 0), self.windows.get(name)
            self.known_further[key] = further_tiles(values, window, self.configuration)
        return self.known_further[key]

    def allocate(self, buffered: Buffered) -> Placed:
        """Place a buffer; its data may be on chip already.

        Raises
        ------
        CompileError
            When it does not fit.
        """
        scope, name = buffered.allocate.scope, buffered.allocate.tensor.name
        if self.fixed is not None:
            memory, (lows, sizes) = Memory[scope], _split(buffered.box)
            base = self.fixed.base(name, buffered.slot)
            if memory is Memory.WGT:
                dimensions = self.weights(name, sizes).dimensions
                return Placed(
                    memory, base, lows, dimensions, further=self._further(name, buffered.box)
                )
            return Placed(memory, base, lows, dense_layout(sizes))
        if buffered.allocate.rolling is not None:
            return self._ring(name, buffered.allocate.rolling)
        if scope == Memory.ACC.name:
            return self._acc(name, buffered)
        return self._resident(name, buffered) or self._held(name, buffered)

    def row_sums(self, sizes: tuple[int, ...]) -> Placed:
        """Place what passes over the same rows leave in ACC for the next one.

        It takes the bank of the product before, which is done, so that GEMM has the other banks.

        Raises
        ------
        CompileError
            When a bank is too small.
        """
        limits = self.configuration
        dimensions, rows, _ = accumulator_layout(sizes, None, limits)
        if rows > limits.acc_depth:
            raise self._too_few_rows("the rows", sizes, rows, limits.acc_depth)
        banks = [bank for _, bank, _ in self.ends.values()]
        bank = banks[-1] if banks else self.scratchpads.take_bank() * limits.acc_depth
        return Placed(Memory.ACC, bank * limits.lanes_out, (0,) * len(sizes), dimensions)

    # The arena -----------------------------------------------------------------------------------

    def _meet_residents(self) -> None:
        """Find operands and results that may stay in ACT."""
        pads = self.scratchpads
        stored, loaded = plain_copies(self.program)
        for named, tensors in ((self.stored, stored), (self.loaded, loaded)):
            for name, tensor in tensors.items():
                frame = pads.frames.get(value_of(tensor))
                if frame is None or frame.shape != tensor.shape:
                    continue
                if named is self.stored or frame.serves(self.program.domains[name], tensor.pad):
                    named[name] = value_of(tensor)

    def _turn(self) -> None:
        """Turn the regions to where the operands lie."""
        residents, act = self.scratchpads.residents, self.scratchpads.arenas[Memory.ACT]
        found = [(n, residents[v].piece) for n, v in self.loaded.items() if v in residents]
        found = [(name, piece) for name, piece in found if piece.alive]
        if found:
            bank = self.configuration.bank_bytes(Memory.ACT)
            turned = mirrored(self.regions, found, act.size)
            self.regions = exchanged(turned, found, self.wanted, bank)

    def _resident(self, name: str, buffered: Buffered) -> Placed | None:
        """The place of a tile in the buffer of the whole activation.

        None if that buffer is not inside the kernel's region.
        """
        pads, made = self.scratchpads, name in self.stored
        value = self.stored.get(name) or self.loaded.get(name)
        frame = pads.frames.get(value) if value else None
        if value is None or frame is None:
            return None
        (low, high), resident = self.regions[name], pads.residents.get(value)
        if made and frame.size > high - low:
            return None
        if not made:
            if resident is None or not resident.piece.alive or not frame.contains(buffered.held):
                return None
            if resident.piece.base < low or high < resident.piece.end:
                return None
        piece, missing = pads.arenas[Memory.ACT].take(
            (ResidentFrame, value), frame.size, (low, high)
        )
        if missing and resident is not None:  # its first tiles are lost
            del pads.residents[value], pads.frames[value]
            return None
        if resident is None:
            resident = pads.residents[value] = ResidentActivation(frame, piece)
            pads.kept = True
        lows = lows_of(buffered.held)
        base = piece.base + frame.offset(lows)
        return Placed(
            Memory.ACT, base, lows, frame.dimensions, missing=made, piece=piece, resident=resident
        )

    def _held(self, name: str, buffered: Buffered) -> Placed:
        """A piece of the memory's arena: bytes of ACT, tiles of WGT, rows of PARAM, or a table."""
        found = self.requests.get((name, buffered.held))
        if found is None:
            found = self.requests[name, buffered.held] = self._request(name, buffered)
        memory, lows, dimensions, further, key, size, unit, region = found
        piece, missing = self.scratchpads.arenas[memory].take(key, size, region)
        return Placed(memory, piece.base * unit, lows, dimensions, missing, piece, further=further)

    def _request(self, name: str, buffered: Buffered) -> ArenaRequest:
        lows, sizes = _split(buffered.held)
        dimensions, elements = dense_layout(sizes), math.prod(sizes)
        memory = Memory[buffered.allocate.scope]
        unit = unit_of(memory, self.configuration)
        region = 0, self.scratchpads.arenas[memory].size
        if memory is Memory.ACT:
            region = self.regions[name]
        elif buffered.allocate.slots and memory in (Memory.WGT, Memory.PARAM):
            region = 0, min(region[1], buffered.allocate.slots * self._totals[memory])
        further: tuple[FurtherTiles, ...] = ()
        if memory is Memory.WGT:
            layout = self.weights(name, sizes)
            further = self._further(name, buffered.held)
            dimensions = layout.dimensions
            elements = (layout.tiles + sum(more.tiles for more in further)) * unit
        elif memory is Memory.PARAM:
            name = self.partners.get(name, (name,))[0]
            elements += self.statistics.get(name, 0) * unit
        size, (low, high) = -(-elements // unit), region
        if size > high - low:
            raise CompileError(
                f"kernel `{self.program.kernel.name}`: `{name}` takes {size} "
                f"{memory.scratchpad.unit} of {memory.name}, which has room for {high - low}; "
                f"split more or raise `{memory.scratchpad.depth}`"
            )
        copied = name in self.copies
        key = (self.program.kernel.output.name, name, buffered.held) if copied else None
        return ArenaRequest(memory, lows, dimensions, further, key, size, unit, region)

    def _ring(self, name: str, rolling: Rolling) -> Placed:
        size = rolling.elements
        piece, _ = self.scratchpads.arenas[Memory.ACT].take(None, size, self.regions[name])
        lows = tuple(-before for before, _ in rolling.borders)
        extents = map(sum, zip(rolling.extents, map(sum, rolling.borders), strict=True))
        strides = enumerate(row_major(tuple(extents)))
        dimensions = tuple(
            TileLayout(s if index >= rolling.dimension else 0) for index, s in strides
        )
        return Placed(Memory.ACT, piece.base, lows, dimensions, True, piece, rolling)

    def _acc(self, name: str, buffered: Buffered) -> Placed:
        """Rows in the next bank, ordered by channel block, then pixel; lanes innermost.

        With a sliding window, a row of pixels has incomplete sums at its start and unused sums
        between its outputs. Neither is part of the buffer. What VECTOR computes from sums stays in
        their bank, and in their place if nothing else differs, so that GEMM has the other banks.
        """
        lows, sizes = _split(buffered.held)
        limits, depth = self.configuration, buffered.allocate.slots
        source, in_place = self.sources.get(name, ("", False))
        if source:
            placed, bank, used = self.ends[source]
            if in_place and placed.lows == lows:
                self.ends[name] = self.ends[source]
                return Placed(Memory.ACC, placed.base, lows, placed.dimensions)
        else:
            banks = min(limits.acc_banks, depth) if depth else limits.acc_banks
            bank, used = self.scratchpads.take_bank() % banks * limits.acc_depth, 0
        dimensions, rows, first = accumulator_layout(sizes, self.windows.get(name), limits)
        if used + rows > limits.acc_depth:
            raise self._too_few_rows(f"`{name}`", sizes, rows, limits.acc_depth - used)
        found = Placed(Memory.ACC, (bank + used) * limits.lanes_out + first, lows, dimensions)
        self.ends[name] = found, bank, used + rows
        return found

    def _too_few_rows(
        self, what: str, sizes: tuple[int, ...], rows: int, left: int
    ) -> CompileError:
        return CompileError(
            f"kernel `{self.program.kernel.name}`: {what} {list(sizes)} takes {rows} rows of "
            f"ACC and a bank has {left}; split more or raise `acc_depth`"
        )

    @cached_property
    def _totals(self) -> Mapping[Memory, int]:
        """Tiles of WGT and rows of PARAM for one slot of every buffer."""
        lanes = self.configuration.vector_lanes
        weights = parameters = 0
        counted: set[str] = set()
        for name, one in self.allocates.items():
            if one.scope == Memory.WGT.name:
                weights += self.most_tiles(name, one.shape)
            elif one.scope == Memory.PARAM.name and name not in counted:
                counted.update(self.partners.get(name, (name,)))
                parameters += -(-math.prod(one.shape) // lanes) + self.statistics.get(name, 0)
        return {Memory.WGT: weights, Memory.PARAM: parameters}

    def _frame_bytes(self, name: str) -> int:
        """Bytes of the whole result of which a buffer is a tile; 0 if it does not stay in ACT."""
        frame = self.scratchpads.frames.get(self.stored.get(name, ""))
        return frame.size if frame is not None else 0

    def _regions(self, computes: tuple[Compute, ...]) -> dict[str, Range]:
        """The region of every buffer in ACT."""
        inside = {name: one for name, one in self.allocates.items() if one.scope == Memory.ACT.name}
        if not inside:
            return {}
        read = [one.tensor for compute in computes for one in reads_of(compute.body)]
        order = [name for name in dict.fromkeys((*read, *inside)) if name in inside]
        # Results of VECTOR come last: they may share banks without delaying a LOAD.
        order.sort(key=lambda name: (name not in self.copies) + (name not in read))
        made = sum(name not in self.copies for name in inside)
        sums = [name for name, one in self.allocates.items() if one.scope == Memory.ACC.name]
        few = [name for name in order if name not in self.copies]
        few = [name for name in few if corrects_sums(name, computes, sums)]
        order = [name for name in order if name not in few]
        requests = tuple(
            region_request(inside[name].elements, name not in self.copies and name in read)
            for name in order
        )
        sizes_of = (inside[name].elements for name in few)
        digits = tuple(RegionRequest(size, size) for size in sizes_of)
        regions = act_regions(requests, made - len(few), self.configuration, digits)
        if self.scratchpads.room:
            frames = [self._frame_bytes(name) for name in order]
            roomy = tuple(map(RegionRequest.with_room, requests, frames))
            found = act_regions(roomy, made - len(few), self.configuration, digits)
            pairs = zip(frames, found, strict=False)
            if found != regions and all(high - low >= size for size, (low, high) in pairs):
                requests, regions = roomy, found
                self.scratchpads.made_room = True
        self.wanted = {name: each.wanted for name, each in zip(order, requests, strict=True)}
        self.wanted |= dict(zip(few, (one.wanted for one in digits), strict=True))
        order += few
        if not regions:
            sizes = ", ".join(f"`{name}` {inside[name].elements} bytes" for name in order)
            raise CompileError(
                f"kernel `{self.program.kernel.name}`: the buffers in ACT ({sizes}) do not fit "
                f"{self.configuration.act_banks} banks of "
                f"{self.configuration.bank_bytes(Memory.ACT)} bytes; split more or raise "
                "`act_depth`"
            )
        return {
            name: limited_region(region, inside[name].slots, inside[name].elements)
            if inside[name].rolling is None
            else region
            for name, region in zip(order, regions, strict=True)
        }


def _sources(program: Program) -> dict[str, tuple[str, bool]]:
    """For sums in ACC, the sums that they are computed from, and whether element by element."""
    sums = {name for name, one in program.buffers.items() if one.scope == Memory.ACC.name}
    found: dict[str, tuple[str, bool]] = {}
    for name, nest in program.nests.items():
        if name in sums and nest.compute is not None:
            for read in reads_of(nest.compute.body):
                if read.tensor in sums:
                    found[name] = read.tensor, read.index == own_index(nest.compute)
    return found


def _split(box: Box) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where a box begins, and its extents."""
    return tuple([low for low, _ in box]), extents_of(box)

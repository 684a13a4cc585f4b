"""From schedules to instructions: walk the loop program, load what is missing, compute, store.

The instructions have the order of the loop program. A later pass adds the tokens that make one
instruction wait for another; it derives them from the instructions' footprints.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import NamedTuple

from ...errors import CompileError, UnfitError
from ...isa.configuration import LUT_ROW_BYTES, Configuration, Memory
from ...isa.expressions import Read, reads_of
from ...isa.instructions import Instruction, move_transfer
from ..options import DEFAULT_OPTIONS
from ..te.instances import Buffered, Event, Instance, Rolled, walk
from ..te.nodes import TransferNest
from ..te.schedule import Schedule
from ..te.target import REGISTER
from ..tensor import Compute, Kernel
from .constant_pool import ConstantPool
from .dma import DramTensor
from .lower_copies import Packed, Transfers
from .matching import MatchedInstruction
from .phases import own_index
from .program_size import too_large
from .residents import NO_FRAMES, ResidentFrame, value_of
from .row_passes import RowPasses
from .scratchpads import BufferPlacer, Placed, Scratchpads
from .strided_copy import fill_bytes
from .tensorise import Form, Tensoriser
from .tile_layout import Buffer, TileLayout
from .wide_weights import tile_inside

OPERANDS = {"WGT": "weights ", "PARAM": "parameters ", "LUT": "table "}
"""Contents of each scratchpad, as notes name them; activations in ACT have names of their own."""

TABLE_BYTES = Memory.LUT.scratchpad.unit_rows * LUT_ROW_BYTES

ELSEWHERE = (Memory.DRAM.name, REGISTER)
"""Scopes outside the scratchpads."""


class Emitted(NamedTuple):
    """An instruction and its purpose.

    Parameters
    ----------
    borders
        Whether it fills the border of an activation that stays in ACT.
    loads, stores
        The activation that it moves from or to main memory.
    """

    instruction: Instruction
    kernel: str
    event: Instance | Rolled
    borders: bool = False
    loads: str = ""
    stores: str = ""

    def moved(self, constants: int, activations: Mapping[str, int]) -> "Emitted":
        """The same instruction after its data in main memory moved by these distances, in bytes."""
        value, event = self.loads or self.stores, self.event
        if not value and (isinstance(event, Rolled) or not isinstance(event.node, TransferNest)):
            return self
        distance = activations[value] if value else constants
        return self._replace(instruction=move_transfer(self.instruction, distance, 0))

    @property
    def note(self) -> str:
        """The purpose, as `inspect` shows it; a tile starts at 0 unless the text says otherwise."""
        event = self.event
        if isinstance(event, Rolled):
            return f"{event.stage} rows {event.first}: pad"
        starts = " ".join(f"{axis}{low}" for axis, (low, _) in event.ranges.items() if low)
        return f"{starts}: {self._purpose(event)}" if starts else self._purpose(event)

    def _purpose(self, event: Instance) -> str:
        stage = event.nest.stage
        if self.borders:
            return f"pad `{stage}`"
        if not isinstance(event.node, TransferNest):
            if self.instruction.mnemonic != event.node.mnemonic:
                return f"store what `{stage}` reads"
            return f"{event.node.mnemonic} `{stage}`"
        scope = event.buffers[stage].allocate.scope if stage in event.buffers else Memory.DRAM.name
        if scope == Memory.DRAM.name:
            return f"store `{stage}`"
        return f"load {OPERANDS.get(scope, '')}`{event.node.source}`"


@dataclass(slots=True)
class KnownPieces:
    """Forms of instructions and packed constants that the schedules of a kernel share."""

    tensorisers: dict[object, Tensoriser] = field(default_factory=dict)
    forms: dict[object, tuple[Form, ...]] = field(default_factory=dict)
    packed: dict[object, Packed] = field(default_factory=dict)


@dataclass(slots=True)
class Lowering:
    """Lowers scheduled kernels one after the other into one instruction stream.

    Parameters
    ----------
    configuration
        The machine.
    dram
        Places of activations in main memory; see `Transfers`.
    pool
        Collects the constants.
    most_instructions
        Largest program that is accepted.
    known
        Results that lowerings for this machine share, by kernel.
    frames
        Activations that may stay in ACT, by value.
    room
        Whether they get the banks that they need.
    """

    configuration: Configuration
    dram: Mapping[str, DramTensor]
    pool: ConstantPool
    most_instructions: int = DEFAULT_OPTIONS.most_instructions
    known: dict[Kernel, KnownPieces] = field(default_factory=dict)
    frames: InitVar[Mapping[str, ResidentFrame]] = NO_FRAMES
    room: InitVar[bool] = True
    stream: list[Emitted] = field(init=False, default_factory=list)
    scratchpads: Scratchpads = field(init=False)

    def __post_init__(self, frames: Mapping[str, ResidentFrame], room: bool) -> None:
        self.scratchpads = Scratchpads.of(self.configuration)
        self.scratchpads.frames |= frames
        self.scratchpads.room = room

    def copy(self) -> "Lowering":
        """Return a copy; lowering more kernels into either one leaves the other as it is."""
        other = replace(self, pool=self.pool.copy(), frames=NO_FRAMES, room=True)
        other.stream = self.stream.copy()
        other.scratchpads = self.scratchpads.copy()
        return other

    def lower(self, schedule: Schedule) -> None:
        """Append a kernel's instructions to the stream.

        Raises
        ------
        UnfitError
            When an instruction needs more or longer loops than the machine has.
        CompileError
            When a stage is computed element by element, a scratchpad is too small, no unit can make
            a copy, an instruction cannot reach an operand, or the stream becomes too long.
        """
        kernel, stream, most = schedule.kernel.name, self.stream, self.most_instructions

        def emit(
            instructions: Iterable[Instruction],
            event: Instance | Rolled,
            borders: bool = False,
            loads: str = "",
            stores: str = "",
        ) -> None:
            purpose = kernel, event, borders, loads, stores
            stream.extend([Emitted(one, *purpose) for one in instructions])
            if len(stream) > most:
                raise too_large(f"more with `{kernel}`", most)

        first = len(stream)
        try:
            _KernelLowering(self, schedule, emit).run()
        except ReplacedError:
            # What earlier kernels left in the arenas cut the room for this one into pieces.
            del stream[first:]
            self.scratchpads.clear()
            _KernelLowering(self, schedule, emit).run()


class ReplacedError(UnfitError):
    """A buffer was overwritten before its use."""


class _Operand:
    """One access of a compute to a tensor: the axes that move through each dimension."""

    def __init__(self, read: Read) -> None:
        self.tensor = read.tensor
        self.index = read.index
        self.axes: dict[tuple[TileLayout, ...], dict[str, TileLayout]] = {}

    def buffer(self, placed: Placed, starts: Mapping[str, int]) -> Buffer:
        """The address at the start of every axis, and the axis strides."""
        if not self.index:
            table = TABLE_BYTES if placed.memory is Memory.LUT else 1
            return Buffer(placed.memory, placed.base // table, {}, ())
        base, rolling = placed.base, placed.rolling
        places = zip(self.index, placed.lows, placed.dimensions, strict=True)
        for dimension, (affine, low, place) in enumerate(places):
            index = affine.constant
            for axis, factor in affine.terms:  # `value_of`, which would take most of the time
                index += factor * starts[axis]
            if rolling is not None:
                if dimension == rolling.dimension:
                    base += rolling.place(index) * place.inner
                    continue
                if dimension in rolling.narrow:
                    index %= rolling.extents[dimension]
            if index != low:
                base += place.offset(index - low)
        axes = self.axes.get(placed.dimensions)
        if axes is None:
            axes = self.axes[placed.dimensions] = self._moves(placed.dimensions)
        return Buffer(placed.memory, base, axes, placed.dimensions)

    def _moves(self, dimensions: tuple[TileLayout, ...]) -> dict[str, TileLayout]:
        axes: dict[str, TileLayout] = {}
        for affine, place in zip(self.index, dimensions, strict=True):
            for axis, factor in affine.terms:
                already = axes[axis].inner if axis in axes else 0
                if place.block and factor % place.block == 0:  # whole blocks, such as of lanes
                    axes[axis] = TileLayout(already + factor // place.block * place.outer)
                    continue
                axes[axis] = TileLayout(already + place.inner * factor, place.block, place.outer)
        return axes


class _KernelLowering:
    def __init__(
        self,
        lowering: Lowering,
        schedule: Schedule,
        emit: Callable[..., None],
    ) -> None:
        self.emit = emit
        self.configuration = lowering.configuration
        self.kernel = schedule.kernel
        self.instructions = {
            name: found
            for name, found in schedule.instructions.items()
            if isinstance(found, MatchedInstruction)
        }
        self.program = schedule.program()
        computes = tuple(stage.compute for stage in schedule.stages if not stage.source)
        self.operands = {
            compute.output.name: [_own(compute), *map(_Operand, _reads(compute))]
            for compute in computes
        }
        self.buffers = BufferPlacer(
            self.program,
            computes,
            self.instructions,
            schedule.takes_turns,
            lowering.scratchpads,
        )
        known = lowering.known.setdefault(self.kernel, KnownPieces())
        self.forms, self.tensorisers = known.forms, known.tensorisers
        self.transfers = Transfers(
            self.program, self.buffers, lowering.dram, lowering.pool, known.packed
        )
        partners = self.buffers.partners
        self.pairs = {
            name: {partners[one.tensor] for one in reads if one.tensor in partners}
            for name, (_, *reads) in self.operands.items()
        }
        readers = {
            name: [stage for stage, (_, *reads) in self.operands.items()
                   if any(read.tensor == name for read in reads)]
            for name in self.kernel.kept
        }  # fmt: skip
        self.kept = {stages[-1]: name for name, stages in readers.items()}
        """Results that wait to be stored, by the last stage that reads them: banks have one read
        port."""
        self.placed: dict[str, Placed] = {}
        self.rows: dict[str, RowPasses] = {}

    def run(self) -> None:
        """Emit all instructions, each with its purpose."""
        walk(self.program, self._visit, self._present)

    def _visit(self, event: Event) -> None:
        if isinstance(event, Buffered):
            if event.allocate.scope not in ELSEWHERE:
                self.placed[event.allocate.tensor.name] = self.buffers.allocate(event)
        elif isinstance(event, Rolled):
            self.emit(self._pad(event), event)
        elif isinstance(event.node, TransferNest):
            if event.nest.stage in self.placed:
                self.emit(self._move(event), event, loads=self._value(event.node.source))
            else:
                self.emit(self._move(event), event, stores=self._value(event.nest.stage))
        else:
            resident = self.placed[event.nest.stage].resident
            if resident is not None:
                self.emit(resident.fill_border(self.configuration), event, borders=True)
            self.emit(self._compute(event), event)
            name = self.kept.get(event.nest.stage)
            if name is not None:
                stores = self.transfers.keep(name, event.box, self.placed[name])
                self.emit(stores, event, stores=self._value(name))

    def _value(self, name: str) -> str:
        """The activation that a tensor is; empty for a constant."""
        return "" if name in self.kernel.constants else value_of(self.program.tensors[name])

    def _present(self, stage: str) -> bool:
        placed = self.placed.get(stage)
        return placed is not None and not placed.missing

    def _move(self, instance: Instance) -> list[Instruction]:
        assert isinstance(instance.node, TransferNest)
        source = self.placed.get(instance.node.source)
        if source is not None:
            self._check_alive(instance.node.source, source)
        return self.transfers.instructions(instance, self.placed)

    def _compute(self, instance: Instance) -> list[Instruction]:
        compute = instance.nest.compute
        assert compute is not None
        starts = {axis: low for axis, (low, _) in instance.ranges.items()}
        tile = instance.tile
        own, *reads = self.operands[compute.output.name]
        for pair in self.pairs[compute.output.name]:
            self._check_pair(instance, pair)
        buffers = {}
        for read in reads:
            placed = self.placed[read.tensor]
            self._check_alive(read.tensor, placed)
            buffers[read.tensor] = read.buffer(placed, starts)
        target = self.placed[compute.output.name]
        self._check_alive(compute.output.name, target)
        rolling = target.rolling
        if self.instructions[compute.output.name].pattern.passes:
            buffers[compute.output.name] = own.buffer(target, starts)
            return self._passes(compute, tile, buffers)
        if rolling is None:
            buffers[compute.output.name] = own.buffer(target, starts)
            return [
                *self._instructions(compute, tile, buffers, instance.accumulate),
                *self._further(compute, starts, tile, buffers),
            ]
        row = compute.axes[rolling.dimension].name
        first = starts[row]
        whole = own.buffer(target, starts)
        pitch = target.dimensions[rolling.dimension].inner
        beginning = whole.base - rolling.place(first) * pitch
        found: list[Instruction] = []
        for low, high, place in rolling.places(first, first + tile[row]):
            part = {name: one.moved(row, low - first) for name, one in buffers.items()}
            part[compute.output.name] = whole._replace(base=beginning + place * pitch)
            found += self._instructions(
                compute, {**tile, row: high - low}, part, instance.accumulate
            )
        return found

    def _passes(
        self, compute: Compute, tile: Mapping[str, int], buffers: dict[str, Buffer]
    ) -> list[Instruction]:
        """Instructions that pass over the rows of a tile, one after the other."""
        name = compute.output.name
        if name not in self.rows:
            self.rows[name] = RowPasses(self.instructions[name], compute, self.configuration)
        rows, sizes = self.rows[name], tuple(tile[axis.name] for axis in compute.axes)
        sums = _own(compute).buffer(self.buffers.row_sums(sizes), dict.fromkeys(tile, 0))
        given = rows.buffers(tile, buffers, sums)
        found: list[Instruction] = []
        for stage in rows.computes:
            used = rows.used(stage, given)
            found += self._instructions(stage, tile, used, accumulate=False)
        rows.check(found, tile)
        return found

    def _further(
        self,
        compute: Compute,
        starts: Mapping[str, int],
        tile: Mapping[str, int],
        buffers: Mapping[str, Buffer],
    ) -> Iterator[Instruction]:
        """Instructions that add the products of the further tiles of wide weights."""
        for read in self.operands[compute.output.name][1:]:
            placed = self.placed[read.tensor]
            for more in placed.further:
                ranges = zip(placed.lows, more.box, strict=True)
                box = tuple((place + first, place + last) for place, (first, last) in ranges)
                part = tile_inside(read.index, box, starts, tile)
                if part is None:
                    continue
                moved = dict(buffers)
                begins = {axis: low for axis, (low, _) in part.items()}
                for axis, begin in begins.items():
                    moved = {n: one.moved(axis, begin - starts[axis]) for n, one in moved.items()}
                lows, base = tuple(low for low, _ in box), placed.base + more.offset
                at = Placed(placed.memory, base, lows, more.dimensions)
                moved[read.tensor] = read.buffer(at, {**starts, **begins})
                sizes = {**tile, **{axis: end - low for axis, (low, end) in part.items()}}
                yield from self._instructions(compute, sizes, moved, accumulate=True)

    def _instructions(
        self,
        compute: Compute,
        tile: Mapping[str, int],
        buffers: Mapping[str, Buffer],
        accumulate: bool,
    ) -> list[Instruction]:
        """Instructions for a tile; most tiles repeat an earlier one at other addresses."""
        lying = [(one.memory, one.dimensions) for one in buffers.values()]
        key = compute.output.name, accumulate, *tile.values(), *lying
        forms = self.forms.get(key)
        if forms is None:
            try:
                forms = self._tensoriser(compute, buffers).forms(tile, buffers, accumulate)
            except UnfitError as problem:
                raise UnfitError(f"kernel `{self.kernel.name}`: {problem}") from None
            self.forms[key] = forms
        return [instruction for form in forms for instruction in form.at(buffers)]

    def _tensoriser(self, compute: Compute, buffers: Mapping[str, Buffer]) -> Tensoriser:
        memories = {name: buffer.memory for name, buffer in buffers.items()}
        key = compute.output.name, *memories.items()
        if key not in self.tensorisers:
            matched = self._matched(compute.output.name)
            self.tensorisers[key] = Tensoriser(matched, compute, memories, self.configuration)
        return self.tensorisers[key]

    def _matched(self, name: str) -> MatchedInstruction:
        """The instruction of a stage or one of its passes."""
        passes = (
            rows.instructions[name] for rows in self.rows.values() if name in rows.instructions
        )
        return next(passes, None) or self.instructions[name]

    def _pad(self, rolled: Rolled) -> list[Instruction]:
        """The border of rows that were added to a ring."""
        rolling, placed = rolled.rolling, self.placed[rolled.stage]
        pad = self.program.tensors[rolled.stage].pad
        pitch = rolling.row_elements
        fills: list[tuple[int, list[tuple[int, int]]]] = []
        if placed.missing:  # the border columns, which no stage writes
            placed.missing = False
            fills += _column_borders(rolling)
        for first, last in (
            (rolled.first, min(rolled.last, 0)),
            (max(rolled.first, rolling.height), rolled.last),
        ):
            for low, high, place in rolling.places(first, last):
                fills.append((place * pitch, [((high - low) * pitch, 1)]))
        return [
            one
            for offset, dimensions in fills
            for one in fill_bytes(
                dimensions, Memory.ACT, placed.base + offset, pad, self.configuration
            )
        ]

    def _check_alive(self, name: str, placed: Placed) -> None:
        """Refuse a buffer that was overwritten before its use."""
        if placed.piece is not None and not placed.piece.alive:
            raise ReplacedError(
                f"kernel `{self.kernel.name}`: other data replaced `{name}` in the "
                f"arena of {placed.memory.name} before its use; compute it further inside"
            )

    def _check_pair(self, instance: Instance, names: Sequence[str]) -> None:
        """A bias and a scale are one operand, so they must be adjacent in PARAM."""
        first, *others = (self.placed[name] for name in names)
        if any((one.base, one.lows) != (first.base, first.lows) for one in others):
            shown = " and ".join(
                f"`{name}` {_ranges(instance.buffers[name].box)} in slot "
                f"{instance.buffers[name].slot}"
                for name in names
            )
            raise CompileError(
                f"stage `{instance.nest.stage}`: {shown} share the pairs of PARAM; copy both in "
                "the same loop with the same box"
            )


def _own(compute: Compute) -> _Operand:
    return _Operand(Read(compute.output.name, own_index(compute)))


def _reads(compute: Compute) -> list[Read]:
    """For each tensor that a compute reads, one of its reads."""
    return list({read.tensor: read for read in reads_of(compute.body)}.values())


def _column_borders(rolling) -> list[tuple[int, list[tuple[int, int]]]]:
    """The elements before and after each row: offset and dimensions of each fill."""
    inner = rolling.dimension + 1
    sizes = list(zip(rolling.extents[inner:], rolling.borders[inner:], strict=True))
    rows, pitch = rolling.ring + rolling.overhang, rolling.row_elements
    fills, outer, size = [], [(rows, pitch)], pitch
    for extent, (before, behind) in sizes:
        size //= before + extent + behind
        for offset, count in ((0, before), ((before + extent) * size, behind)):
            if count:
                fills.append((offset, [*outer, (count * size, 1)]))
        outer.append((before + extent + behind, size))
    return fills


def _ranges(box: tuple[tuple[int, int], ...]) -> str:
    return f"[{', '.join(f'{low}..{high - 1}' for low, high in box)}]"

"""From a scheduled kernel to instructions: walk the tiles, load what is missing, compute, store.

The walk is driven by demand: a tile of the last step asks for what it reads, an earlier step's
activation is computed as far as it is missing, and what must come from main memory is loaded
unless it still lies in its scratchpad. Which instruction must wait for which is not decided here:
tokens follow from the instructions' footprints.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Read, reads_of
from ...isa.instructions import Instruction
from ..options import DEFAULT_OPTIONS
from ..tensor import Compute, Kernel, Tensor
from .constants import ConstantPool
from .dma import Box, Resident, fill_bytes, load_box, load_patches, store_box
from .layout import Buffer, Placement, along, dense, row_major
from .plan import Plan, Tile
from .program_size import too_large
from .rolling import Rolling
from .schedule import Schedule
from .steps import Step, box_of
from .supplies import Shared, Supplies
from .tensorise import Form, form_of


@dataclass(frozen=True, slots=True)
class Target:
    """Where a tile of a step is written: all its rows, or `count` of them from `first` on."""

    buffer: Buffer
    first: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """An instruction and what it is there for, as `inspect` shows it."""

    instruction: Instruction
    kernel: str
    note: str


class Lowering:
    """Lowers kernels one after the other into one instruction stream.

    Parameters
    ----------
    configuration
        The machine.
    residents
        Where each activation lies in main memory.
    pool
        Takes the constants.
    most_instructions
        Where a program is refused as too large.
    """

    def __init__(
        self,
        configuration: Configuration,
        residents: Mapping[str, Resident],
        pool: ConstantPool,
        most_instructions: int = DEFAULT_OPTIONS.most_instructions,
    ) -> None:
        self.configuration = configuration
        self.most_instructions = most_instructions
        self.residents = residents
        self.stream: list[Emitted] = []
        self.shared = Shared.of(configuration, residents, pool)

    def lower(self, kernel: Kernel, schedule: Schedule) -> None:
        """Append a kernel's instructions to the stream.

        Raises
        ------
        CompileError
            When the stream becomes too long.
        """
        _Walk(self, kernel, schedule.plan(kernel, self.configuration)).run()


class _Walk:
    """One kernel's walk over its tiles."""

    def __init__(self, lowering: Lowering, kernel: Kernel, plan: Plan) -> None:
        self.out, self.kernel, self.plan = lowering, kernel, plan
        self.configuration = lowering.configuration
        self.makers = {step.name: index for index, step in enumerate(plan.steps[:-1])}
        self.supplies = Supplies(lowering.shared, plan, lowering.configuration, self._emit)
        self.forms: dict[object, Form] = {}
        self.computed: dict[str, tuple[int, int]] = {}
        """Of every rolling activation: image, and row up to which it is there."""
        self.rings = {name: self._place(name, ring.size) for name, ring in plan.rings.items()}

    def run(self) -> None:
        """Compute and store every tile of the last step."""
        last, output = self.plan.steps[-1], 0
        for start, tile in self._tiles():
            inside = {} if self.plan.channels_outer else {a: start[a] for a in last.channels}
            sizes = self._output_sizes(tile)
            if not any(inside.values()):
                output = self._place(last.name, math.prod(sizes.values()))
            places = dense(sizes)
            offset = sum(places[axis].inner * begin for axis, begin in inside.items())
            target = Buffer(Memory.ACT, output + offset, places)
            self._compute(len(self.plan.steps) - 1, start, tile, [Target(target)])
            if self.plan.channels_outer or all(
                start[axis] + tile[axis] == last.extents[axis] for axis in last.channels
            ):
                self._store(start, sizes, output)

    def _tiles(self) -> Iterator[tuple[Tile, Tile]]:
        """Start and extents of every tile of the last step, its reductions included."""
        step = self.plan.steps[-1]
        axes = (
            (*step.channels, *step.pixels)
            if self.plan.channels_outer
            else (*step.pixels, *step.channels)
        )
        yield from _cut(step, self.plan.tiles[-1], axes, {})

    # Computing ---------------------------------------------------------------------------------

    def _compute(self, index: int, start: Tile, tile: Tile, targets: list[Target]) -> None:
        """One tile of a step, written to every target."""
        step = self.plan.steps[index]
        where = _where(step, start)
        buffers: dict[str, Buffer] = {}
        # What comes from main memory is asked for first: its LOAD shall not queue behind others.
        for read in sorted(step.operands, key=lambda read: read.tensor in self.makers):
            buffers[read.tensor] = self._activation(read, start, tile, where)
        if step.product is not None:
            self._product(step, start, tile, buffers, where)
        buffers |= self.supplies.parameters(step, start, tile, where)
        row = step.pixels[1]
        for target in targets:
            part = {**tile, row: tile[row] if target.count is None else target.count}
            moved = {name: buffer.moved(row, target.first) for name, buffer in buffers.items()}
            moved[step.name] = target.buffer
            for instruction in self._tensorise(step.finish, part, moved):
                self._emit(instruction, f"{where}: finish")

    def _product(self, step: Step, start: Tile, tile: Tile, buffers, where: str) -> None:
        assert step.product is not None
        assert step.weights is not None
        total = step.product.output.name
        for origin in self._chunks(step, start, tile):
            part = f"{where} {step.reduced}{origin[step.reduced]}" if step.reduced else where
            made = [read for read in step.streams if read.tensor in self.makers]
            for read in made:
                # GEMM would wait for VECTOR if it multiplied what it has just made. Rows are
                # computed for the first chunk; they hold the channels of all.
                buffers[read.tensor] = self._activation(read, origin, tile, part, ahead=True)
            if total not in buffers:
                buffers[total] = self.supplies.accumulator(step, tile)
            # Weights are asked for before what must wait for a STORE, and after what was computed
            # here, whose own weights must not take their place.
            buffers[step.weights.tensor] = self.supplies.weights(step, origin, tile, part)
            for read in step.streams:
                if read not in made:
                    buffers[read.tensor] = self._activation(read, origin, tile, part)
            accumulate = step.reduced is not None and origin[step.reduced] > 0
            for instruction in self._tensorise(step.product, tile, buffers, accumulate):
                self._emit(instruction, f"{part}: product")

    def _tensorise(
        self, compute: Compute, tile: Tile, buffers: Mapping[str, Buffer], accumulate: bool = False
    ) -> list[Instruction]:
        """Instructions for a tile; most tiles differ from an earlier one in their places only."""
        names = dict.fromkeys([compute.output.name, *(r.tensor for r in reads_of(compute.body))])
        own = {name: buffers[name] for name in names}
        lying = tuple((one.memory, tuple(one.axes.items())) for one in own.values())
        key = compute.output.name, accumulate, tuple(tile.items()), lying
        if key not in self.forms:
            self.forms[key] = form_of(compute, tile, own, self.configuration, accumulate)
        return self.forms[key].at(own)

    @staticmethod
    def _chunks(step: Step, start: Tile, tile: Tile) -> Iterator[Tile]:
        """Where each chunk of the reduction begins."""
        if step.reduced is None:
            yield start
            return
        for begin in range(0, step.reductions[step.reduced], tile[step.reduced]):
            yield {**start, step.reduced: begin}

    # Activations -------------------------------------------------------------------------------

    def _activation(
        self, read: Read, start: Tile, tile: Tile, where: str, *, ahead: bool = False
    ) -> Buffer:
        """Where a tile's operand lies; it is loaded or computed as far as it is missing.

        `ahead` has the rows of the next tile computed, too, before this tile's are used.
        """
        box = box_of(read, start, tile)
        ring = self.plan.rings.get(read.tensor)
        if ring is not None:
            return self._rolled(read, ring, box, ahead)
        size = math.prod(high - low for low, high in box)
        if read.tensor in self.makers:
            base = self._place(read.tensor, size)
            maker = self.plan.steps[self.makers[read.tensor]]
            axes = [axis.name for axis in maker.finish.axes]
            extents = {axis: high - low for axis, (low, high) in zip(axes, box, strict=True)}
            begin = {axis: low for axis, (low, _) in zip(axes, box, strict=True)}
            inner = {**self.plan.tiles[self.makers[read.tensor]], **extents}
            target = Buffer(Memory.ACT, base, dense(extents))
            self._compute(self.makers[read.tensor], begin, inner, [Target(target)])
        else:
            tensor = self.kernel.tensors[read.tensor]
            base, missing = self.out.shared.arenas[Memory.ACT].take(
                (self.kernel.output.name, read.tensor, box), size, self.plan.regions[read.tensor]
            )
            if missing:
                for load in self._loads(tensor, box, base):
                    self._emit(load, f"{where}: load `{read.tensor}`")
        return Buffer(Memory.ACT, base, along(read, row_major(box)))

    def _loads(self, tensor: Tensor, box: Box, base: int) -> list[Instruction]:
        source = self.out.residents[tensor.value]
        if tensor.patches is not None:
            return load_patches(source, tensor.patches, box, base, self.configuration)
        source = source.holding(tensor)
        return load_box(source, box, Memory.ACT, base, tensor.pad, self.configuration)

    def _place(self, tensor: str, size: int) -> int:
        """Room for what is computed, in the tensor's region."""
        return self.out.shared.arenas[Memory.ACT].take(None, size, self.plan.regions[tensor])[0]

    def _rolled(self, read: Read, ring: Rolling, box: Box, ahead: bool) -> Buffer:
        """The rows of a rolling window; those that are not there yet are computed."""
        (image, _), (first, last), (left, _), (channel, _) = box
        maker = self.makers[read.tensor]
        rows = self.plan.tiles[maker][self.plan.steps[maker].pixels[1]]
        # Whole tiles, since the windows that these read must begin a multiple of tiles from the
        # top: only then do they lie together in a ring.
        more = ring.advance if ahead and self.plan.depth != 1 else rows - 1
        last = min((last + more) // rows * rows, max(last, ring.height + ring.bottom))
        done = self.computed.get(read.tensor, (-1, 0))
        begin = done[1] if done[0] == image else -ring.top
        # Padding comes after what is computed, whose LOADs need not wait until the ring is free.
        self._roll(read.tensor, ring, image, max(begin, 0), min(last, ring.height))
        if read.tensor not in self.computed:
            self._pad_columns(read.tensor, ring)
        for row, until in ((begin, min(last, 0)), (max(begin, ring.height), last)):
            if row < until:
                self._pad_rows(read.tensor, ring, row, until)
        self.computed[read.tensor] = (image, max(begin, last))
        base = self.rings[read.tensor] + ring.place(first) * ring.pitch
        base += (left + ring.left) * ring.channels + channel
        strides = (0, ring.pitch, ring.channels, 1)
        return Buffer(Memory.ACT, base, along(read, strides))

    def _roll(self, name: str, ring: Rolling, image: int, first: int, last: int) -> None:
        """Compute rows of a rolling activation, in tiles of its step."""
        index = self.makers[name]
        step, tile = self.plan.steps[index], self.plan.tiles[index]
        n, y, x = step.pixels
        (c,) = step.channels
        while first < last:
            until = min(last, first + tile[y])
            rows = {**tile, n: 1, y: until - first}
            for start, part in _cut(step, rows, (c,), {n: image, y: first, x: 0}):
                targets = []
                for low, high, place in ring.places(first, until):
                    base = self.rings[name] + place * ring.pitch
                    base += ring.left * ring.channels + start[c]
                    strides = {n: 0, y: ring.pitch, x: ring.channels, c: 1}
                    buffer = Buffer(Memory.ACT, base, {a: Placement(s) for a, s in strides.items()})
                    targets.append(Target(buffer, low - first, high - low))
                self._compute(index, start, part, targets)
            first = until

    def _pad_columns(self, name: str, ring: Rolling) -> None:
        """Fill the columns left and right of all rows; no step ever writes them."""
        rows = ring.ring + ring.overhang
        right = (ring.left + ring.width) * ring.channels
        for offset, columns in ((0, ring.left), (right, ring.right)):
            if columns:
                self._fill(name, ring, offset, [(rows, ring.pitch), (columns * ring.channels, 1)])

    def _pad_rows(self, name: str, ring: Rolling, first: int, last: int) -> None:
        """Fill rows above or below the activation."""
        for low, high, place in ring.places(first, last):
            self._fill(name, ring, place * ring.pitch, [((high - low) * ring.pitch, 1)])

    def _fill(self, name: str, ring: Rolling, offset: int, dims: list[tuple[int, int]]) -> None:
        local = self.rings[name] + offset
        for load in fill_bytes(dims, Memory.ACT, local, ring.pad, self.configuration):
            self._emit(load, f"pad `{name}`")

    # Storing -----------------------------------------------------------------------------------

    def _output_sizes(self, tile: Tile) -> dict[str, int]:
        last = self.plan.steps[-1]
        whole = () if self.plan.channels_outer else last.channels
        return {
            axis.name: axis.extent if axis.name in whole else tile[axis.name]
            for axis in last.finish.axes
        }

    def _store(self, start: Tile, sizes: Tile, base: int) -> None:
        last = self.plan.steps[-1]
        box: Box = tuple(
            (0, sizes[axis.name])
            if sizes[axis.name] == axis.extent
            else (start[axis.name], start[axis.name] + sizes[axis.name])
            for axis in last.finish.axes
        )
        output = last.finish.output
        target = self.out.residents[output.value].holding(output)
        for store in store_box(target, box, Memory.ACT, base, self.configuration):
            self._emit(store, f"{_where(last, start)}: store `{output.name}`")

    def _emit(self, instruction: Instruction, note: str) -> None:
        stream, most = self.out.stream, self.out.most_instructions
        if len(stream) >= most:
            raise too_large(f"more with `{self.kernel.name}`", most)
        stream.append(Emitted(instruction, self.kernel.name, note.strip(": ")))


def _cut(
    step: Step, sizes: Tile, axes: tuple[str, ...], start: Tile
) -> Iterator[tuple[Tile, Tile]]:
    """Start and extents of every tile along `axes`, the first axis outermost."""
    ranges = [range(0, step.extents[axis], sizes[axis]) for axis in axes]
    for begins in itertools.product(*ranges):
        begin = dict(zip(axes, begins, strict=True))
        cut = {axis: min(sizes[axis], step.extents[axis] - low) for axis, low in begin.items()}
        yield {**start, **begin}, {**sizes, **cut}


def _where(step: Step, start: Tile) -> str:
    """A tile's name in notes: where it begins, zeros but for row and channel left out."""
    shown = {step.pixels[1], step.channels[-1]}
    return " ".join(f"{axis}{low}" for axis, low in start.items() if low or axis in shown)

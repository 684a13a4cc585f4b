"""From a scheduled kernel to instructions: walk the tiles, load what is missing, compute, store.

Scratchpad memory is used as slots that are taken in turn, so that the next tile is loaded while
this one is computed; a tile that still lies in its slot is not loaded again. Which instruction must
wait for which is not decided here: tokens follow from the instructions' footprints.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Read, reads_of
from ...isa.instructions import Instruction
from ..tensor import Compute, Kernel
from .constants import ConstantPool, pack_parameters, pack_weights
from .dma import Box, Resident, box_bytes, load_box, load_bytes, store_box
from .layout import Buffer, Placement, dense
from .schedule import (
    Schedule,
    Shape,
    activation_reads,
    box_of,
    output_bytes,
    regions_of,
    shape_of,
    wgt_chunk,
)
from .tensorise import tensorise


@dataclass(frozen=True, slots=True)
class Emitted:
    """An instruction and what it is there for, as `inspect` shows it."""

    instruction: Instruction
    kernel: str
    note: str


@dataclass(slots=True)
class Slots:
    """Equal pieces of a scratchpad, taken in turn; remembers what each holds.

    Parameters
    ----------
    bases
        First element of every slot.
    """

    bases: list[int]
    held: list[object] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        self.held = [None] * len(self.bases)

    def take(self, key: object) -> tuple[int, bool]:
        """Slot for a piece: its base, and whether the piece must be loaded."""
        if key is not None and key in self.held:
            return self.bases[self.held.index(key)], False
        slot = self.turn % len(self.bases)
        self.turn += 1
        self.held[slot] = key
        return self.bases[slot], True


def slots_in(base: int, size: int, piece: int, most: int = 64) -> Slots:
    """As many slots of `piece` as fit `size`, at most `most`."""
    return Slots([base + index * piece for index in range(min(most, size // piece))])


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
    """

    def __init__(
        self,
        configuration: Configuration,
        residents: Mapping[str, Resident],
        pool: ConstantPool,
    ) -> None:
        self.configuration = configuration
        self.residents = residents
        self.pool = pool
        self.stream: list[Emitted] = []

    def lower(self, kernel: Kernel, schedule: Schedule) -> None:
        """Append a kernel's instructions to the stream."""
        walk = _Walk(self, kernel, schedule)
        for start, tile, last in walk.tiles():
            walk.compute(start, tile, last)


class _Walk:
    """State of one kernel's walk over its tiles."""

    def __init__(self, lowering: Lowering, kernel: Kernel, schedule: Schedule) -> None:
        self.out, self.kernel, self.schedule = lowering, kernel, schedule
        self.configuration = configuration = lowering.configuration
        self.shape: Shape = shape_of(kernel)
        self.tile_sizes = schedule.tiles
        self.reads = activation_reads(kernel)
        regions = regions_of(len(self.reads), configuration)
        self.inputs = {
            read.tensor: slots_in(*region, box_bytes(box_of(read, {}, self.tile_sizes)))
            for read, region in zip(self.reads, regions.inputs, strict=True)
        }
        size = output_bytes(self.shape, self.tile_sizes, schedule.channels_outer)
        self.output = slots_in(*regions.output, size, most=4)
        channels = math.prod(self.tile_sizes[axis] for axis in self.shape.channels)
        rows = -(-channels // configuration.vector_lanes)
        self.params = slots_in(0, configuration.param_depth, rows)
        self.tables = slots_in(0, configuration.lut_tables, 1)
        bank = configuration.acc_depth * configuration.lanes_out
        self.accumulators = slots_in(0, bank * configuration.acc_banks, bank)
        self.weights = Slots([])
        if self.shape.product is not None:
            tiles = wgt_chunk(self.shape.product, self.tile_sizes, configuration)
            most = configuration.rows(Memory.WGT) // configuration.lanes_in
            self.weights = slots_in(0, most, tiles)
        self.output_base = 0

    # Walking -----------------------------------------------------------------------------------

    def tiles(self) -> Iterator[tuple[dict[str, int], dict[str, int], bool]]:
        """Start and extents of every data tile, and whether it completes its output buffer."""
        extents = self.shape.finish.extents
        axes = (
            (*self.shape.channels, *self.shape.pixels)
            if self.schedule.channels_outer
            else (*self.shape.pixels, *self.shape.channels)
        )
        ranges = [range(0, extents[axis], self.tile_sizes[axis]) for axis in axes]
        for starts in itertools.product(*ranges):
            start = dict(zip(axes, starts, strict=True))
            tile = {
                axis: min(self.tile_sizes[axis], extents[axis] - begin)
                for axis, begin in start.items()
            }
            last = self.schedule.channels_outer or all(
                start[axis] + tile[axis] == extents[axis] for axis in self.shape.channels
            )
            yield start, tile, last

    def compute(self, start: dict[str, int], tile: dict[str, int], last: bool) -> None:
        """One data tile: product chunks, the finishing compute, and the store where due."""
        where = " ".join(f"{axis}{begin}" for axis, begin in start.items() if begin or axis in "yo")
        buffers: dict[str, Buffer] = {}
        self._parameters(start, tile, buffers, where)
        if self.shape.product is not None:
            self._product(self.shape.product, start, tile, buffers, where)
        else:
            whole = {**tile, **{axis.name: axis.extent for axis in self.shape.finish.reductions}}
            for read in self.reads:
                buffers[read.tensor] = self._activation(read, start, whole, where)
        finish = self.shape.finish
        target = self._output(start, tile)
        buffers[finish.output.name] = target
        whole = {**tile, **{axis.name: axis.extent for axis in finish.reductions}}
        for instruction in tensorise(finish, whole, buffers, self.configuration):
            self._emit(instruction, f"{where}: finish")
        if last:
            self._store(start, tile, where)

    def _product(self, product: Compute, start, tile, buffers, where: str) -> None:
        reduced = self.shape.reduced
        assert reduced is not None
        chunk = self.tile_sizes[reduced]
        key = object()
        base, _ = self.accumulators.take(key)
        buffers[product.output.name] = self._accumulator(base, tile)
        whole = {**tile, **{axis.name: axis.extent for axis in product.reductions}, reduced: chunk}
        for begin in range(0, product.extents[reduced], chunk):
            part = f"{where} {reduced}{begin}"
            origin = {**start, reduced: begin}
            for read in reads_of(product.body):
                if read.tensor in self.kernel.constants:
                    buffers[read.tensor] = self._weights(read, origin, whole, part)
            for read in self.reads:
                if read in reads_of(product.body):
                    buffers[read.tensor] = self._activation(read, origin, whole, part)
            for instruction in tensorise(
                product, whole, buffers, self.configuration, accumulate=begin > 0
            ):
                self._emit(instruction, f"{part}: product")

    # Buffers -----------------------------------------------------------------------------------

    def _activation(self, read: Read, start, tile, where: str) -> Buffer:
        box = box_of(read, start, tile)
        base, missing = self.inputs[read.tensor].take(box)
        if missing:
            tensor = self.kernel.tensors[read.tensor]
            source = replace(self.out.residents[tensor.value], shape=tensor.shape)
            loads = load_box(source, box, Memory.ACT, base, tensor.pad, self.configuration)
            for load in loads:
                self._emit(load, f"{where}: load `{read.tensor}`")
        return Buffer(Memory.ACT, base, _along(read, box))

    def _weights(self, read: Read, start, tile, where: str) -> Buffer:
        lanes_in, lanes_out = self.configuration.lanes_in, self.configuration.lanes_out
        box = box_of(read, start, tile)
        base, missing = self.weights.take(box)
        area = lanes_in * lanes_out
        if missing:
            values = self.kernel.constants[read.tensor][tuple(slice(a, b) for a, b in box)]
            data = pack_weights(values, self.configuration)
            address = self.out.pool.add(data)
            for load in load_bytes(address, len(data), Memory.WGT, base * area, self.configuration):
                self._emit(load, f"{where}: load weights")
        _, kh, kw, ci, co = (high - low for low, high in box)
        taps = kh * kw * area
        names = [affine.terms[0][0] if affine.terms else "" for affine in read.index]
        placements = (
            Placement(taps * (ci // lanes_in) * (co // lanes_out)),
            Placement(kw * area),
            Placement(area),
            Placement(lanes_out, lanes_in, taps),
            Placement(1, lanes_out, taps * (ci // lanes_in)),
        )
        return Buffer(
            Memory.WGT,
            base * area,
            {name: place for name, place in zip(names, placements, strict=True) if name},
        )

    def _accumulator(self, base: int, tile: Mapping[str, int]) -> Buffer:
        """Rows ordered channel block, then pixel; lanes innermost."""
        lanes = self.configuration.lanes_out
        *outer, last = self.shape.channels
        pixels = {axis: tile[axis] for axis in self.shape.pixels}
        rows = dense(pixels)
        placements = {axis: Placement(place.inner * lanes) for axis, place in rows.items()}
        block = math.prod(pixels.values()) * lanes
        placements[last] = Placement(1, lanes, block)
        stride = block * (tile[last] // lanes)
        for axis in reversed(outer):
            placements[axis] = Placement(stride)
            stride *= tile[axis]
        return Buffer(Memory.ACC, base, placements)

    def _parameters(self, start, tile, buffers: dict[str, Buffer], where: str) -> None:
        constants, lanes = self.kernel.constants, self.configuration.vector_lanes
        if "table" in constants:
            base, missing = self.tables.take("table")
            if missing:
                address = self.out.pool.add(constants["table"].tobytes())
                for load in load_bytes(address, 256, Memory.LUT, base * 256, self.configuration):
                    self._emit(load, f"{where}: load table")
            buffers["table"] = Buffer(Memory.LUT, base, {})
        if "bias" not in constants:
            return
        read = next(r for r in reads_of(self.shape.finish.body) if r.tensor == "bias")
        box = box_of(read, start, tile)
        base, missing = self.params.take(box)
        if missing:
            piece = tuple(slice(low, high) for low, high in box)
            data = pack_parameters(constants["bias"][piece], constants["scale"][piece])
            address = self.out.pool.add(data)
            for load in load_bytes(
                address, len(data), Memory.PARAM, base * lanes * 8, self.configuration
            ):
                self._emit(load, f"{where}: load parameters")
        buffer = Buffer(Memory.PARAM, base * lanes, _along(read, box))
        buffers["bias"] = buffers["scale"] = buffer

    def _output(self, start, tile) -> Buffer:
        """This tile's place inside the output buffer; a new slot at the buffer's first tile."""
        finish, channels = self.shape.finish, self.shape.channels
        sizes = self._output_sizes(tile)
        inside = {} if self.schedule.channels_outer else {axis: start[axis] for axis in channels}
        if not any(inside.values()):
            self.output_base, _ = self.output.take(object())
        placements = dense(sizes)
        offset = sum(placements[axis].inner * begin for axis, begin in inside.items())
        assert tuple(sizes) == tuple(axis.name for axis in finish.axes)
        return Buffer(Memory.ACT, self.output_base + offset, placements)

    def _output_sizes(self, tile: Mapping[str, int]) -> dict[str, int]:
        finish = self.shape.finish
        whole = () if self.schedule.channels_outer else self.shape.channels
        return {
            axis.name: axis.extent if axis.name in whole else tile[axis.name]
            for axis in finish.axes
        }

    def _store(self, start, tile, where: str) -> None:
        finish = self.shape.finish
        sizes = self._output_sizes(tile)
        box: Box = tuple(
            (0, sizes[axis.name])
            if sizes[axis.name] == axis.extent
            else (start[axis.name], start[axis.name] + sizes[axis.name])
            for axis in finish.axes
        )
        target = replace(self.out.residents[finish.output.value], shape=finish.output.shape)
        for store in store_box(target, box, Memory.ACT, self.output_base, self.configuration):
            self._emit(store, f"{where}: store `{finish.output.name}`")

    def _emit(self, instruction: Instruction, note: str) -> None:
        self.out.stream.append(Emitted(instruction, self.kernel.name, note.strip(": ")))


def _along(read: Read, box: Box) -> dict[str, Placement]:
    """How far each axis moves through a dense box of the tensor it indexes."""
    extents = [high - low for low, high in box]
    strides: dict[str, int] = {}
    stride = 1
    for affine, extent in zip(reversed(read.index), reversed(extents), strict=True):
        for axis, factor in affine.terms:
            strides[axis] = strides.get(axis, 0) + factor * stride
        stride *= extent
    return {axis: Placement(moved) for axis, moved in strides.items()}

"""How a kernel is cut into tiles: chosen by a bound of its cycles over all that fit.

A schedule fixes the tile of every data axis, the chunk of the reduced channel axis, and whether
channels or pixels are the outer loop. Only legal ones are compared; the choice is deterministic.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Read, reads_of
from ..tensor import Compute, Kernel
from .dma import Box, box_bytes
from .tensorise import find_pattern, lane_axes

INSTRUCTION_OVERHEAD_CYCLES = 30
"""Filling and draining a unit's pipeline, as the bound counts it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tile extent per axis (data axes and reductions), loop order, and the bound it was chosen by.

    `channels_outer` walks all pixels for one tile of channels before the next; otherwise all
    channels of a tile of pixels are computed and stored together.
    """

    tile: tuple[tuple[str, int], ...]
    channels_outer: bool
    bound_cycles: int

    @property
    def tiles(self) -> dict[str, int]:
        """Tile extents by axis."""
        return dict(self.tile)

    def __str__(self) -> str:
        sizes = " ".join(f"{axis}:{extent}" for axis, extent in self.tile)
        return f"tile {sizes}, {'channels' if self.channels_outer else 'pixels'} outer"


@dataclass(frozen=True, slots=True)
class Shape:
    """What scheduling needs to know of a kernel, read off its computes.

    Parameters
    ----------
    pixels, channels
        Data axes of the last compute, the channel axes being those of its innermost dimension.
    reduced
        The reduction axis that fills lanes, None where there is no matrix product.
    product, finish
        The compute that accumulates, if any, and the last one.
    """

    pixels: tuple[str, ...]
    channels: tuple[str, ...]
    reduced: str | None
    product: Compute | None
    finish: Compute


def shape_of(kernel: Kernel) -> Shape:
    """Tell pixel axes from channel axes, and find the reduced lane axis.

    Raises
    ------
    CompileError
        When a stage matches no instruction, or there are not one or two stages.
    """
    if len(kernel.stages) not in (1, 2):
        raise CompileError(f"kernel `{kernel.name}`: expected one or two stages")
    finish = kernel.stages[-1]
    names = [axis.name for axis in finish.axes]
    product = kernel.stages[0] if len(kernel.stages) == 2 else None
    reduced = None
    if product is not None:
        pattern, found = find_pattern(product)
        lanes = lane_axes(pattern, product, found)
        inner = [a for lane, a in lanes.items() if lane not in pattern.output.lanes]
        reduced = inner[0] if inner else None
    return Shape(tuple(names[:3]), tuple(names[3:]), reduced, product, finish)


def box_of(read: Read, start: dict[str, int], tile: dict[str, int]) -> Box:
    """The box of a tensor that a read touches over a tile."""
    box = []
    for affine in read.index:
        low = high = affine.constant
        for axis, factor in affine.terms:
            first = factor * start.get(axis, 0)
            reach = factor * (tile[axis] - 1)
            low += first + min(0, reach)
            high += first + max(0, reach)
        box.append((low, high + 1))
    return tuple(box)


def activation_reads(kernel: Kernel) -> list[Read]:
    """Reads of the kernel's inputs, one each, in order."""
    reads = {
        read.tensor: read
        for stage in kernel.stages
        for read in reads_of(stage.body)
        if read.tensor in kernel.inputs
    }
    return [reads[name] for name in kernel.inputs]


@dataclass(frozen=True, slots=True)
class Regions:
    """Bytes of ACT set aside: `(first byte, size)` per input, and for the output."""

    inputs: tuple[tuple[int, int], ...]
    output: tuple[int, int]


def regions_of(inputs: int, configuration: Configuration) -> Regions:
    """Divide ACT between inputs and output by whole banks, so that their ports never meet.

    With fewer than four banks, the last input and the output share one.
    """
    bank, banks = configuration.bank_bytes(Memory.ACT), configuration.act_banks
    if banks < 4 and inputs > 1:
        half = bank // 2
        return Regions(((0, bank), (bank, half)), (bank + half, half))
    split = banks // 2
    if inputs == 1:
        return Regions(((0, split * bank),), (split * bank, (banks - split) * bank))
    first = split // 2 * bank
    return Regions(((0, first), (first, split * bank - first)), (split * bank, split * bank))


def choose_schedule(kernel: Kernel, configuration: Configuration) -> Schedule:
    """The legal schedule with the least bound; the first of equals.

    Raises
    ------
    CompileError
        When not even the smallest tile fits, naming what is too small.
    """
    legal = legal_schedules(kernel, configuration)
    best = min(legal, key=lambda schedule: schedule.bound_cycles, default=None)
    if best is None:
        raise CompileError(
            f"kernel `{kernel.name}`: no tile fits configuration `{configuration.name}` "
            f"(ACT {configuration.size_bytes(Memory.ACT)} bytes, WGT "
            f"{configuration.size_bytes(Memory.WGT)}, ACC bank {configuration.acc_depth} rows, "
            f"PARAM {configuration.param_depth} rows); raise these depths"
        )
    return best


def legal_schedules(kernel: Kernel, configuration: Configuration) -> Iterator[Schedule]:
    """Every schedule considered that fits the scratchpads; the lowering takes any of them."""
    shape, reads = shape_of(kernel), activation_reads(kernel)
    regions = regions_of(len(reads), configuration)
    for tile in _tiles(shape, configuration):
        for channels_outer in (False, True):
            bound = _bound(
                shape,
                reads,
                regions,
                "bias" in kernel.constants,
                tile,
                channels_outer,
                configuration,
            )
            if bound is not None:
                yield Schedule(tuple(tile.items()), channels_outer, bound)


def _steps(extent: int, unit: int = 1) -> list[int]:
    """Tile extents worth trying: the fewest units for each number of tiles."""
    units = -(-extent // unit)
    sizes = {-(-units // count) * unit for count in range(1, min(units, 64) + 1)} | {unit}
    return sorted((min(size, extent) for size in sizes), reverse=True)


def _tiles(shape: Shape, configuration: Configuration) -> Iterator[dict[str, int]]:
    extents = shape.finish.extents
    lane = configuration.lanes_out if shape.product else configuration.vector_lanes
    outer, last = shape.channels[:-1], shape.channels[-1]
    split_outer = any(extents[axis] > 1 for axis in outer)
    reductions = shape.product.reductions if shape.product else shape.finish.reductions
    whole = {axis.name: axis.extent for axis in reductions}
    chunks = [1]
    if shape.reduced:
        chunks = [
            size
            for size in _steps(whole[shape.reduced], configuration.lanes_in)
            if whole[shape.reduced] % size == 0
        ]
    n, y, x = shape.pixels
    channel_choices = (
        [{**dict.fromkeys(outer, size), last: extents[last]} for size in _steps(extents[outer[0]])]
        if split_outer
        else [{**dict.fromkeys(outer, 1), last: size} for size in _steps(extents[last], lane)]
    )
    for channels in channel_choices:
        for chunk in chunks:
            reduced = {**whole, shape.reduced: chunk} if shape.reduced else whole
            for rows in _steps(extents[y]):
                columns = _steps(extents[x]) if rows == 1 else [extents[x]]
                for width in columns:
                    yield {n: 1, y: rows, x: width, **channels, **reduced}


def wgt_chunk(product: Compute, tile: dict[str, int], configuration: Configuration) -> int:
    """Weight tiles of one chunk: every channel, tap and lane block of the tile."""
    return (
        math.prod(tile[axis.name] for axis in product.axes[3:])
        * math.prod(tile[axis.name] for axis in product.reductions)
        // (configuration.lanes_in * configuration.lanes_out)
    )


def output_bytes(shape: Shape, tile: dict[str, int], channels_outer: bool) -> int:
    """Bytes of the output buffer: one tile, or all channels of its pixels."""
    pixels = math.prod(tile[axis] for axis in shape.pixels)
    sizes = tile if channels_outer else shape.finish.extents
    return pixels * math.prod(sizes[axis] for axis in shape.channels)


def _bound(
    shape: Shape,
    reads: list[Read],
    regions: Regions,
    parametric: bool,
    tile: dict[str, int],
    channels_outer: bool,
    configuration: Configuration,
) -> int | None:
    """A bound of the cycles of a schedule, None where it does not fit the scratchpads."""
    extents = shape.finish.extents
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    bus, overhead = configuration.bus_bytes, INSTRUCTION_OVERHEAD_CYCLES
    pixels = math.prod(tile[axis] for axis in shape.pixels)
    channels = math.prod(tile[axis] for axis in shape.channels)
    spatial = math.prod(-(-extents[a] // tile[a]) for a in shape.pixels)
    groups = math.prod(-(-extents[a] // tile[a]) for a in shape.channels)
    boxes = [box_bytes(box_of(read, {}, tile)) for read in reads]
    slots = [size // box for (_, size), box in zip(regions.inputs, boxes, strict=True)]
    output = output_bytes(shape, tile, channels_outer)
    output_slots = regions.output[1] // output
    if min(slots) < 1 or output_slots < 1:
        return None
    param_rows = -(-channels // configuration.vector_lanes)
    if parametric and param_rows > configuration.param_depth:
        return None
    chunks, weights, gemm = 1, 0, 0
    if shape.product is not None:
        assert shape.reduced is not None
        if pixels * channels > configuration.acc_depth * lanes_out:
            return None
        tiles = wgt_chunk(shape.product, tile, configuration)
        wgt_slots = configuration.rows(Memory.WGT) // lanes_in // tiles
        if wgt_slots < 1:
            return None
        chunks = shape.product.extents[shape.reduced] // tile[shape.reduced]
        gemm = tiles * max(pixels, lanes_in, 4) + overhead
        fits = (chunks if channels_outer else groups * chunks) <= wgt_slots
        weight_loads = groups * chunks * (1 if fits else spatial)
        weights = weight_loads * (tiles * lanes_in * lanes_out // bus + overhead)
        if wgt_slots < 2 and not fits:
            gemm += tiles * lanes_in * lanes_out // bus
    channel_boxes = shape.product is None or any(
        axis in shape.channels and factor
        for read in reads
        for affine in read.index
        for axis, factor in affine.terms
    )
    acts = 0
    for box, slot in zip(boxes, slots, strict=True):
        if channel_boxes:
            loads = spatial * groups * chunks
        elif channels_outer:
            loads = spatial * chunks * (1 if spatial * chunks <= slot else groups)
        else:
            loads = spatial * chunks * (1 if chunks <= slot else groups)
        acts += loads * (box // bus + 2 * overhead)
    window = math.prod(a.extent for a in shape.finish.reductions)
    vector = pixels * channels // configuration.vector_lanes * window + overhead
    store = spatial * (groups if channels_outer else 1) * (output // bus + overhead)
    busy = [spatial * groups * chunks * gemm, spatial * groups * vector, weights + acts, store]
    serial = sum(boxes) // bus + vector + output // bus
    if min(slots) < 2:
        serial += acts // 2
    return max(busy) + serial + sum(busy) // 64

"""From tiles to buffers: what of a kernel lies where in ACT, and whether all of it fits.

A tensor that enters or leaves a kernel has room for several tiles. One between two steps has room
for tiles where the next step works element by element, and a rolling window of rows otherwise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...isa.configuration import Configuration, Memory
from ..tensor import Kernel
from .dma import box_bytes
from .regions import Demand, Region, divide_act
from .rolling import Rolling, rolling
from .sliding import channel_block
from .steps import Step, box_of, is_pointwise

Tile = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel with tiles that fit.

    Parameters
    ----------
    kernel
        What is computed.
    steps, tiles
        Its steps, and per step the extent of every axis in a tile.
    channels_outer, depth
        Loop order of the last step, and most tiles of an operand on chip; 0 for no limit.
    regions
        Bytes of ACT for every activation, by tensor.
    pieces
        Bytes of one tile of it.
    rings
        Activations between steps that are rolling windows.
    """

    kernel: Kernel
    steps: tuple[Step, ...]
    tiles: tuple[Tile, ...]
    channels_outer: bool
    depth: int
    regions: Mapping[str, Region]
    pieces: Mapping[str, int]
    rings: Mapping[str, Rolling]

    def limit(self, room: int, pieces: int) -> int:
        """How much of `room` the tiles of all steps take, `pieces` being one of each."""
        return min(room, self.depth * pieces) if self.depth else room

    def tiles_in(self, tensor: str) -> int:
        """How many tiles of an activation its region holds."""
        low, high = self.regions[tensor]
        return (high - low) // self.pieces[tensor]


def make_plan(
    kernel: Kernel,
    steps: tuple[Step, ...],
    tiles: tuple[Tile, ...],
    channels_outer: bool,
    depth: int,
    configuration: Configuration,
) -> Plan | None:
    """Divide ACT between the activations; None where something does not fit.

    Parameters
    ----------
    depth
        Most tiles of an operand on chip at a time; 0 for as many as there is room for.
    """
    if not all(
        step_fits(step, tile, configuration) for step, tile in zip(steps, tiles, strict=True)
    ):
        return None
    made = {step.name: index for index, step in enumerate(steps)}
    demands: dict[str, Demand] = {}
    pieces: dict[str, int] = {}
    rings: dict[str, Rolling] = {}
    for index, (step, tile) in enumerate(zip(steps, tiles, strict=True)):
        in_order = step is steps[-1] or passes_tiles(steps, index)
        for read in step.activations:
            tensor = kernel.tensors[read.tensor]
            if read.tensor in made and not passes_tiles(steps, made[read.tensor]):
                ring = rolling(read, step, tile, tensor.shape, tensor.pad)
                if channels_outer and in_order and not ring.whole:
                    return None
                maker = made[read.tensor]
                if tiles[maker][steps[maker].pixels[1]] > ring.advance:
                    return None  # the ring has no room for so many rows at a time
                rings[read.tensor] = ring
                size = ring.size
            else:
                size = box_bytes(box_of(read, {}, tile))
            pieces[read.tensor] = size
            # What VECTOR writes and reads again needs no second place: it does one after the other.
            demands[read.tensor] = Demand(size, size if read.tensor in made else 2 * size)
    last = steps[-1]
    size = output_bytes(last, tiles[-1], channels_outer)
    pieces[last.name] = size
    demands[last.name] = Demand(size, 2 * size)
    # What VECTOR writes comes last: it may share banks without holding up a LOAD.
    order = sorted(demands, key=lambda name: (name in made) + (name == last.name))
    wanted = tuple(demands[name] for name in order)
    regions = divide_act(wanted, 2 if len(steps) > 1 else 1, configuration)
    if not regions and len(steps) == 1:
        regions = divide_act(wanted, 2, configuration)
    if not regions:
        return None
    regions_of = {
        name: region if name in rings or not depth else (low, min(high, low + depth * pieces[name]))
        for name, region in zip(order, regions, strict=True)
        for low, high in [region]
    }
    return Plan(kernel, steps, tiles, channels_outer, depth, regions_of, pieces, rings)


def passes_tiles(steps: tuple[Step, ...], index: int) -> bool:
    """Whether an inner step's activation is read, tile by tile, by the last step alone."""
    reads = [
        (step, read)
        for step in steps
        for read in step.activations
        if read.tensor == steps[index].name
    ]
    if len(reads) != 1:
        return False
    reader, read = reads[0]
    return reader is steps[-1] and reader.product is None and is_pointwise(read, reader)


def step_fits(step: Step, tile: Tile, configuration: Configuration) -> bool:
    """Whether accumulators, weights and parameters of a tile fit."""
    if parameter_rows(step, tile, configuration) > configuration.param_depth:
        return False
    if step.product is None:
        return True
    if accumulator_rows(step, tile, configuration) > configuration.acc_depth:
        return False
    return weight_tiles(step, tile, configuration) <= wgt_room(configuration)


def parameter_rows(step: Step, tile: Tile, configuration: Configuration) -> int:
    """Rows of PARAM that a tile's biases and scales take."""
    if step.parameters is None:
        return 0
    channels = math.prod(tile[axis] for axis in step.channels)
    return -(-channels // configuration.vector_lanes)


def wgt_room(configuration: Configuration) -> int:
    """Weight tiles that WGT holds."""
    return configuration.rows(Memory.WGT) // configuration.lanes_in


def streamed_rows(step: Step, tile: Tile, configuration: Configuration) -> int:
    """ACT rows that pass one weight tile: a pixel each, and what a sliding window starts with."""
    batch, rows, columns = (tile[axis] for axis in step.pixels)
    if step.window is not None:
        columns = step.window.steps(columns, configuration)
    return batch * rows * columns


def accumulator_rows(step: Step, tile: Tile, configuration: Configuration) -> int:
    """Rows of ACC that a tile of a product takes."""
    channels = math.prod(tile[axis] for axis in step.channels)
    block = channel_block(configuration) if step.window else configuration.lanes_out
    return streamed_rows(step, tile, configuration) * -(-channels // block)


def weight_tiles(step: Step, tile: Tile, configuration: Configuration) -> int:
    """Weight tiles of one chunk: every channel, tap and lane block of the tile."""
    if step.weights is None:
        return 0
    if step.window is None:
        area = configuration.lanes_in * configuration.lanes_out
        return box_bytes(box_of(step.weights, {}, tile)) // area
    channels = math.prod(tile[axis] for axis in step.channels)
    reduced = math.prod(tile[axis] for axis in step.reductions)
    count, _ = step.window.groups(configuration)
    lines = reduced // tile[step.window.tap]
    return -(-channels // channel_block(configuration)) * lines * count


def output_bytes(step: Step, tile: Tile, channels_outer: bool) -> int:
    """Bytes of the output buffer: one tile, or all channels of its pixels."""
    pixels = math.prod(tile[axis] for axis in step.pixels)
    sizes = tile if channels_outer else step.extents
    return pixels * math.prod(sizes[axis] for axis in step.channels)

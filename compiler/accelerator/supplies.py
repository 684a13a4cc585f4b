"""What a product needs beside activations: weights, parameters and tables on chip, accumulators.

Constants are loaded where they do not lie already, whichever tile or layer brought them.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction
from .arena import Arena
from .blocks import load_blocks
from .constants import ConstantPool, pack_parameters, pack_weights
from .dma import Box, Resident, load_bytes
from .layout import Buffer, Placement, along, dense, row_major
from .plan import Plan, Tile, parameter_rows, weight_tiles, wgt_room
from .sliding import channel_block, pack_taps
from .steps import Step, box_of

Emit = Callable[[Instruction, str], None]
"""Takes an instruction and what it is there for."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all kernels of a program share: scratchpads, accumulator banks, constants in memory.

    Parameters
    ----------
    arenas
        What lies where in each scratchpad.
    accumulators
        Banks of ACC, taken in turn, so that VECTOR reads one while GEMM fills another.
    residents
        Where each activation lies in main memory.
    pool
        Takes the constants.
    """

    arenas: Mapping[Memory, Arena]
    accumulators: Iterator[int]
    residents: Mapping[str, Resident]
    pool: ConstantPool

    @staticmethod
    def of(
        configuration: Configuration, residents: Mapping[str, Resident], pool: ConstantPool
    ) -> "Shared":
        """Empty scratchpads of a machine."""
        arenas = {
            Memory.ACT: Arena(
                configuration.size_bytes(Memory.ACT), row=configuration.row_bytes(Memory.ACT)
            ),
            Memory.WGT: Arena(wgt_room(configuration)),
            Memory.PARAM: Arena(configuration.param_depth),
            Memory.LUT: Arena(configuration.lut_tables),
        }
        banks = itertools.cycle(range(configuration.acc_banks))
        return Shared(arenas, banks, residents, pool)


class Supplies:
    """The constants and accumulators of one kernel.

    Parameters
    ----------
    shared
        What it shares with the kernels before and after it.
    emit
        Takes the LOADs.
    """

    def __init__(
        self, shared: Shared, plan: Plan, configuration: Configuration, emit: Emit
    ) -> None:
        self.shared, self.plan, self.configuration, self.emit = shared, plan, configuration, emit
        self.kernel = plan.kernel
        self.pieces = {
            Memory.WGT: sum(self._per_step(weight_tiles)),
            Memory.PARAM: sum(self._per_step(parameter_rows)),
        }
        """What one tile of every step takes."""

    def _per_step(self, size: Callable[[Step, Tile, Configuration], int]) -> Iterator[int]:
        for step, tile in zip(self.plan.steps, self.plan.tiles, strict=True):
            yield size(step, tile, self.configuration)

    def weights(self, step: Step, start: Tile, tile: Tile, where: str) -> Buffer:
        """A tile's weights in WGT."""
        read = step.weights
        assert read is not None
        box = box_of(read, start, tile)
        area = self.configuration.lanes_in * self.configuration.lanes_out
        count = weight_tiles(step, tile, self.configuration)
        room = 0, self.plan.limit(wgt_room(self.configuration), self.pieces[Memory.WGT])
        base, missing = self.shared.arenas[Memory.WGT].take(
            (self.kernel.output.name, read, box), count, room
        )
        places = self._weight_places(step, [high - low for low, high in box])
        if missing:
            for load in self._weight_loads(step, box, base * area, places):
                self.emit(load, f"{where}: load weights")
        names = [affine.terms[0][0] if affine.terms else "" for affine in read.index]
        return Buffer(
            Memory.WGT,
            base * area,
            {name: place for name, place in zip(names, places, strict=True) if name},
        )

    def _weight_loads(
        self, step: Step, box: Box, local: int, places: tuple[Placement, ...]
    ) -> list[Instruction]:
        """LOADs of a box of weights: constants as they were packed, or an activation in blocks."""
        assert step.weights is not None
        tensor = self.kernel.tensors[step.weights.tensor]
        if tensor.name not in self.kernel.constants:
            source = self.shared.residents[tensor.value].holding(tensor)
            return load_blocks(source, box, local, places, tensor.pad, self.configuration)
        values = self.kernel.constants[tensor.name][tuple(slice(a, b) for a, b in box)]
        data = (
            pack_weights(values, self.configuration)
            if step.window is None
            else pack_taps(values, step.window, self.configuration)
        )
        address = self.shared.pool.add(data)
        return load_bytes(address, len(data), Memory.WGT, local, self.configuration)

    def _weight_places(self, step: Step, extents: list[int]) -> tuple[Placement, ...]:
        """Per dimension of the weights, in the order in which they are packed."""
        lanes_in, lanes_out = self.configuration.lanes_in, self.configuration.lanes_out
        area = lanes_in * lanes_out
        if step.window is not None:
            line = step.window.groups(self.configuration)[0] * area
            block = channel_block(self.configuration)
            return Placement(line), Placement(0), Placement(1, block, extents[0] * line)
        _, kh, kw, ci, co = extents
        taps = kh * kw * area
        return (
            Placement(taps * (ci // lanes_in) * (co // lanes_out)),
            Placement(kw * area),
            Placement(area),
            Placement(lanes_out, lanes_in, taps),
            Placement(1, lanes_out, taps * (ci // lanes_in)),
        )

    def accumulator(self, step: Step, tile: Tile) -> Buffer:
        """The next bank's rows, ordered channel block, then pixel; lanes innermost.

        Where a window slides, a row of pixels begins with sums that are not complete, and has
        others between its outputs; neither is part of the buffer.
        """
        lanes, block, stride = self.configuration.lanes_out, self.configuration.lanes_out, 1
        bank = next(self.shared.accumulators) % self.plan.limit(self.configuration.acc_banks, 1)
        base = bank * self.configuration.acc_depth * lanes
        *outer, last = step.channels
        pixels = {axis: tile[axis] for axis in step.pixels}
        if step.window is not None:
            stride, block = step.window.stride, channel_block(self.configuration)
            pixels[step.pixels[2]] = step.window.steps(tile[step.pixels[2]], self.configuration)
            base += (step.window.taps(self.configuration) - 1) * lanes
        placements = {axis: Placement(p.inner * lanes) for axis, p in dense(pixels).items()}
        placements[step.pixels[2]] = Placement(stride * lanes)
        rows = math.prod(pixels.values()) * lanes
        placements[last] = Placement(1, block, rows)
        size = rows * (tile[last] // block)
        for axis in reversed(outer):
            placements[axis] = Placement(size)
            size *= tile[axis]
        return Buffer(Memory.ACC, base, placements)

    def parameters(self, step: Step, start: Tile, tile: Tile, where: str) -> dict[str, Buffer]:
        """Biases and scales of a tile's channels, and the table that it looks up in."""
        buffers: dict[str, Buffer] = {}
        constants, lanes = self.kernel.constants, self.configuration.vector_lanes
        if step.table is not None:
            values = constants[step.table.tensor]
            key = self.kernel.output.name, step.table
            base, missing = self.shared.arenas[Memory.LUT].take(key, 1)
            if missing:
                address = self.shared.pool.add(values.tobytes())
                for load in load_bytes(address, 256, Memory.LUT, base * 256, self.configuration):
                    self.emit(load, f"{where}: load table")
            buffers[step.table.tensor] = Buffer(Memory.LUT, base, {})
        read = step.parameters
        if read is None:
            return buffers
        box = box_of(read, start, tile)
        rows = -(-math.prod(high - low for low, high in box) // lanes)
        key = self.kernel.output.name, read, box
        room = 0, self.plan.limit(self.configuration.param_depth, self.pieces[Memory.PARAM])
        base, missing = self.shared.arenas[Memory.PARAM].take(key, rows, room)
        if missing:
            piece = tuple(slice(low, high) for low, high in box)
            bias, scale = (
                constants[one.tensor][piece] if one is not None else None
                for one in (step.bias, step.scale)
            )
            data = pack_parameters(bias, scale)
            address = self.shared.pool.add(data)
            for load in load_bytes(
                address, len(data), Memory.PARAM, base * lanes * 8, self.configuration
            ):
                self.emit(load, f"{where}: load parameters")
        places = along(read, row_major(box))
        for one in (step.bias, step.scale):
            if one is not None:
                buffers[one.tensor] = Buffer(Memory.PARAM, base * lanes, places)
        return buffers

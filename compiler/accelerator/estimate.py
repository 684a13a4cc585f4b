"""Estimates of a plan: its cycles and its number of instructions.

The cycles are those of the busiest unit, plus the latencies that no other work hides. They are
close enough to compare plans; the timing model gives the exact number. The number of instructions
serves to reject absurd programs before generation.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...isa.configuration import Configuration, Memory
from ...isa.durations import tile_cycles
from ...isa.expressions import Read
from ..te.box import Box, box_size, whole_box
from ..tensor import Kernel
from .phases import Phase, Tile, box_of, phases_of
from .strided_copy import run_cycles, transposed_cycles
from .tile_plan import TilePlan, streamed_rows, tiles_of, weight_tiles
from .weights import fits_four_bits, four_bits_load, stored_bytes

INSTRUCTION_OVERHEAD_CYCLES = 30
"""Cycles to fill and drain a unit's pipeline."""


def estimate(plan: TilePlan, cycles: "Sequence[PhaseCycles]", configuration: Configuration) -> int:
    """Cycles of a plan whose phases have these busy cycles."""
    resident = _resident(plan, configuration)
    units = [_Units(plan, one, resident) for one in cycles]
    last, tile = plan.phases[-1], plan.tiles[-1]
    bus = configuration.bus_bytes
    spatial = _count(last, tile, last.pixels)
    stores = spatial * (_count(last, tile, last.channels) if plan.channels_outer else 1)
    sizes = {**tile, **({} if plan.channels_outer else _whole(last, last.channels))}
    box = whole_box(tuple(sizes[axis.name] for axis in last.finish.axes))
    moving = transfer(box, last.finish.output.shape, configuration)
    moving *= np.dtype(last.finish.output.dtype).itemsize
    store = stores * (moving + INSTRUCTION_OVERHEAD_CYCLES) * (1 + len(plan.kernel.kept))
    filling = next((unit.filling for unit in units if unit.filling), 0)
    turns = (stores - 1) * moving if _shares_banks(plan, configuration) else 0
    busy = [
        filling + sum(unit.gemm for unit in units),
        filling + sum(unit.vector for unit in units) + turns,
        sum(unit.weights + unit.activations for unit in units),
        store,
    ]
    entering = {name for unit in units for name in unit.loads}
    serial = sum(plan.pieces[name] for name in entering) // bus + moving
    serial += units[-1].vector_piece + sum(unit.waiting for unit in units)
    if any(one.early for one in last.partials):
        # Their sums take a turn of the banks of ACC, so GEMM waits until VECTOR is done.
        serial += (spatial - 1) * units[-1].vector_piece
    if not plan.ahead:  # GEMM waits for the last rows of each of its tiles
        serial += sum(
            (_count(reader, tile, reader.pixels) - 1) * units[index].vector_piece
            for index, phase in enumerate(plan.phases)
            for reader, tile in zip(plan.phases, plan.tiles, strict=True)
            if any(read.tensor == phase.name for read in reader.streams)
            and phase.name in plan.rings
        )
    crowding = _crowding(plan, resident, configuration)
    serial += crowding * sum(unit.weights for unit in units) // 2
    return max(busy) + serial + sum(busy) // 64


def least_cycles(phases: "Sequence[PhaseCycles]") -> int:
    """A lower bound of `estimate` for all plans with these tiles; it ignores STORE."""
    gemm, vector = sum(one.gemm for one in phases), sum(one.vector for one in phases)
    filling = next((one.weights for one in phases if one.step.product), 0)
    busy = gemm + filling, vector + filling, sum(one.least_load for one in phases)
    entering = {name: size for one in phases for name, size in one.entering.items()}
    serial = sum(entering.values()) // phases[0].configuration.bus_bytes + phases[-1].vector_piece
    return max(busy) + serial + sum(busy) // 64


def estimate_instructions(plan: TilePlan, configuration: Configuration) -> int:
    """Estimated instructions of a plan, ignoring splits by the machine's loop limits."""
    last, tile = plan.phases[-1], plan.tiles[-1]
    stored = (*last.pixels, *last.channels) if plan.channels_outer else last.pixels
    resident = _resident(plan, configuration)
    phases = zip(plan.phases, plan.tiles, strict=True)
    units = (
        _Units(plan, PhaseCycles(plan.kernel, *each, configuration), resident) for each in phases
    )
    return sum(unit.instructions for unit in units) + _count(last, tile, stored)


def _shares_banks(plan: TilePlan, configuration: Configuration) -> bool:
    """Whether VECTOR waits for STORE, as digits of sums lie in the banks of results."""
    last, bank = plan.phases[-1], configuration.bank_bytes(Memory.ACT)
    digits = [one.name for one in last.partials if one.name in plan.regions]
    if not digits:
        return False
    low, high = plan.regions[last.name]
    return any(low // bank <= plan.regions[one][0] // bank <= (high - 1) // bank for one in digits)


def _crowding(plan: TilePlan, resident: int, configuration: Configuration) -> int:
    """Whether weights of several products leave no room for the next ones: 0, 1, or 2 for none."""
    pieces = [
        weight_tiles(step, tile, configuration)
        for step, tile in zip(plan.phases, plan.tiles, strict=True)
        if step.product is not None
    ]
    capacity = configuration.weight_tiles
    if len(pieces) < 2 or resident <= capacity:
        return 0
    return 2 if sum(pieces) > capacity else int(sum(pieces) + max(pieces) > capacity)


def _count(step: Phase, tile, axes) -> int:
    count, extents = 1, step.extents
    for axis in axes:
        count *= -(-extents[axis] // tile[axis])
    return count


class PhaseCycles:
    """Busy cycles of GEMM and VECTOR in a phase, if all weights have room.

    Attributes
    ----------
    spatial, groups, chunks
        Pixel tiles, channel tiles, and parts of the reduction.
    weight_tiles
        Weight tiles of one part, without those of `further_tiles`; 0 without a product.
    further_tiles
        Weight tiles of all parts that wide weights add.
    vector_piece
        Cycles of VECTOR for one tile.
    weights, further_weights
        Cycles to load one part of the weights, and all of `further_tiles`.
    own
        Pixel tiles that have weights of their own; 1 if all have the same.
    reads, pieces, loads
        Reads of inputs from main memory; for each of them, the cycles to load a tile of it, and how
        often that is done, at least.
    least_load, entering
        Least cycles of LOAD, and bytes of the first tiles of inputs.
    """

    def __init__(
        self, kernel: Kernel, step: Phase, tile: Tile, configuration: Configuration
    ) -> None:
        self.kernel, self.step, self.tile, self.configuration = kernel, step, tile, configuration
        self.spatial = _count(step, tile, step.pixels)
        self.groups = _count(step, tile, step.channels)
        self.chunks = step.reductions[step.reduced] // tile[step.reduced] if step.reduced else 1
        size = window = 1
        for axis in (*step.pixels, *step.channels):
            size *= tile[axis]
        self.gemm = self.weight_tiles = self.further_tiles = 0
        if step.product is not None:
            self.weight_tiles, further = tiles_of(step, tile, configuration)
            rows = streamed_rows(step, tile, configuration)
            cycles = self._passes(self.weight_tiles, rows)
            count = self.spatial * self.groups * self.chunks
            self.gemm = count * (cycles + INSTRUCTION_OVERHEAD_CYCLES)
            self.further_tiles = further.total
            more = self._passes(further.total, rows)
            more += further.total * INSTRUCTION_OVERHEAD_CYCLES
            self.gemm += self.spatial * (more + self.groups * self._early())
        else:
            window = math.prod(step.reductions.values())
        # A partial value that is broadcast takes few steps.
        whole = sum(one.compute.extents == step.finish.extents for one in step.partials)
        steps = size // configuration.vector_lanes * (window * step.passes + whole)
        overhead = INSTRUCTION_OVERHEAD_CYCLES * step.passes
        self.vector_piece = 0 if step.is_bare else steps + overhead
        self.vector = self.spatial * self.groups * self.vector_piece
        self._load()

    def _load(self) -> None:
        kernel, step, tile, overhead = (
            self.kernel,
            self.step,
            self.tile,
            INSTRUCTION_OVERHEAD_CYCLES,
        )
        made = {phase.name for phase in phases_of(kernel)}
        self.reads = [read for read in step.activations if read.tensor not in made]
        self.pieces = {read.tensor: self._loading(read) for read in self.reads}
        self.weights = self.further_weights = self.least_load = 0
        self.own = 1
        if step.product is not None:
            self.weights = self._loading_weights(self.weight_tiles)
            self.further_weights = self._loading_weights(self.further_tiles)
            self.own = _count(step, tile, _moved(step.weights) & set(step.pixels))
            brought = self.groups * self.chunks * self.own
            self.least_load = brought * (self.weights + overhead) + self.own * self.further_weights
        self.loads, self.entering = dict[str, int](), dict[str, int]()
        for read in self.reads:
            whole = _moved(read).isdisjoint(step.channels)
            count = self.spatial * (
                1 if step.shares_inputs else self.chunks * (1 if whole else self.groups)
            )
            self.loads[read.tensor] = count
            self.entering[read.tensor] = box_size(box_of(read, {}, step.streamed(tile)))
            self.least_load += count * (self.pieces[read.tensor] + 2 * overhead)

    def _passes(self, tiles: int, rows: int) -> int:
        """Cycles of all weight tiles; each tile is multiplied by its rows."""
        step, tile = self.step, self.tile
        apart = math.prod(tile[axis] for axis in _moved(step.weights) & set(step.pixels))
        again = math.prod(tile[axis] for axis in set(step.reductions) - _moved(step.weights))
        return tiles * again * max(rows // apart, tile_cycles(self.configuration))

    def _early(self) -> int:
        """A tile's share of the cycles of products that are the same for all channels."""
        found = 0
        for one in self.step.partials:
            if one.weights is not None:
                depth = math.prod(axis.extent for axis in one.compute.reductions)
                passes = -(-depth // self.configuration.lanes_in)
                found += passes * math.prod(one.sizes(self.tile)[:-1])
        return found // self.groups

    def _loading_weights(self, tiles: int) -> int:
        """Cycles to load a chunk of weights: packed constants, or runs of an activation."""
        kernel, step, configuration = self.kernel, self.step, self.configuration
        size = tiles * configuration.tile_bytes
        assert step.weights is not None
        view = kernel.tensors[step.weights.tensor].view
        if view is not None:
            if not view.rows_are_runs:
                return transposed_cycles(size, configuration)
            return run_cycles(size, configuration.lanes_out, configuration)
        if fits_four_bits(kernel, step.weights.tensor, step.window, configuration):
            return four_bits_load(size, configuration)[1]
        run = stored_bytes(step.window, configuration)
        if run < configuration.tile_bytes:
            return run_cycles(tiles * run, run, configuration)
        return size // configuration.bus_bytes

    def _loading(self, read: Read) -> int:
        """Cycles to load one tile of an input."""
        tensor = self.kernel.tensors[read.tensor]
        box = box_of(read, {}, self.step.streamed(self.tile))
        if tensor.patches is None:
            return transfer(box, tensor.shape, self.configuration)
        runs = box_size(box[:-1]) * tensor.patches.rows
        if tensor.patches.whole_pixels:
            return run_cycles(box_size(box), box_size(box[-1:]), self.configuration)
        # A run is seldom aligned to a beat or to a row of the scratchpad.
        run = tensor.patches.run + 3 * self.configuration.bus_bytes // 2
        return run_cycles(runs * run, run, self.configuration)


class _Units:
    """Busy cycles of each unit in one step of a plan that has `resident` weight tiles in all."""

    def __init__(self, plan: TilePlan, phase: PhaseCycles, resident: int) -> None:
        self.plan, self.phase, overhead = plan, phase, INSTRUCTION_OVERHEAD_CYCLES
        self.gemm, self.vector, self.vector_piece = phase.gemm, phase.vector, phase.vector_piece
        spatial, groups, chunks = phase.spatial, phase.groups, phase.chunks
        step = phase.step
        ring = plan.rings.get(step.name)
        outer = plan.channels_outer and (step is plan.phases[-1] or bool(ring and ring.narrow))
        outer &= not any(one.early for one in step.partials)  # these go by tiles of pixels
        self.weights = self.filling = 0
        self.instructions = spatial * groups
        if step.product is not None:
            tiles, capacity = phase.weight_tiles, phase.configuration.weight_tiles
            fits = (chunks * tiles if outer else resident) <= capacity
            load = phase.weights
            if 2 * tiles > capacity and resident > capacity:
                self.gemm += spatial * groups * chunks * load
            times = phase.own if fits else spatial
            brought = groups * chunks * times
            self.weights = brought * (load + overhead) + times * phase.further_weights
            # GEMM waits for the first part of the weights, and in the first tile for the others.
            parts = chunks if outer else groups * chunks
            part = phase.gemm // max(1, spatial * groups * chunks)
            self.filling = load + overhead + (parts - 1) * max(0, load + overhead - part)
            self.instructions += spatial * groups * chunks + brought
        self.loads = {read.tensor: self._loads(read, outer) for read in phase.reads}
        self.instructions += sum(self.loads.values())
        pieces = phase.pieces
        self.activations = sum(
            count * (pieces[name] + 2 * overhead) for name, count in self.loads.items()
        )
        # With room for only one tile, the next LOAD waits for the product of this tile.
        self.waiting = sum(
            (self.loads[read.tensor] - 1) * pieces[read.tensor]
            for read in (step.streams or step.operands)
            if read.tensor in self.loads and plan.tiles_in(read.tensor) < 2
        )

    def _loads(self, read: Read, outer: bool) -> int:
        """How often a tile of an input is loaded."""
        phase = self.phase
        slots, tiles = self.plan.tiles_in(read.tensor), phase.spatial * phase.chunks
        again = (tiles if outer else phase.chunks) > slots
        return max(phase.loads[read.tensor], tiles * phase.groups if again else 0)


def _moved(read: Read | None) -> set[str]:
    """The axes that a read depends on."""
    return {axis for affine in read.index for axis, _ in affine.terms} if read else set()


def transfer(box: Box, shape: tuple[int, ...], configuration: Configuration) -> int:
    """Cycles to move a box of a row-major tensor, run by run."""
    run = 1
    for (low, high), extent in zip(reversed(box), reversed(shape), strict=True):
        run *= high - low
        if high - low != extent:
            break
    return run_cycles(box_size(box), run, configuration)


def _whole(step: Phase, axes: tuple[str, ...]) -> dict[str, int]:
    return {axis: step.extents[axis] for axis in axes}


def _resident(plan: TilePlan, configuration: Configuration) -> int:
    """Weight tiles of all steps, if all of them stay on chip."""
    total = 0
    for step, tile in zip(plan.phases, plan.tiles, strict=True):
        if step.product is not None:
            full = {**tile, **{axis: step.extents[axis] for axis in step.channels}}
            if step.reduced:
                full[step.reduced] = step.reductions[step.reduced]
            total += weight_tiles(step, full, configuration)
    return total

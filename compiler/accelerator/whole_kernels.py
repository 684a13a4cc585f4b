"""A schedule for any kernel that instructions can compute: all of it on chip, or tile by tile.

Each operand is copied to the first scratchpad from which an instruction takes it. While the machine
refuses the sizes, the axis is cut in two that frees most of the scratchpads. `search` knows more of
the layers of networks, and makes faster schedules.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...errors import CompileError
from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ...isa.instructions import Role
from ...isa.patterns import patterns_of
from ..te.footprint import footprint
from ..te.loop_steps import Reorder, Split
from ..te.schedule import Schedule
from ..te.stage_steps import CacheRead, CacheWrite, ComputeAt, SetScope, Tensorise
from ..te.steps import Step
from ..te.storage_steps import Arena
from ..tensor import Compute, Kernel
from .lower_kernel import lower
from .matching import find_pattern, lane_axes, memories_of
from .search import choose_candidate
from .target import Accelerator

NETWORK_AXES = 4
"""Axes of a network's activations, [N, H, W, C]."""

READ_FROM = Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT
"""Scratchpads that LOAD fills, the usual one first."""


MAX_TILES = 1 << 12
"""More tiles make programs of millions of words; a schedule by hand has loops of instructions."""


class _Placed(NamedTuple):
    """A stage, the scratchpads of its result and operands, and the reduction in the lanes."""

    compute: Compute
    places: Mapping[str, Memory]
    reduced: str | None


def schedule_whole(kernel: Kernel, configuration: Configuration) -> Schedule:
    """A schedule with which a kernel runs on a machine.

    Raises
    ------
    CompileError
        When no instruction computes one of its stages, or the smallest tile does not fit.
    """
    if all(len(stage.axes) == NETWORK_AXES for stage in kernel.stages):
        try:
            return choose_candidate(kernel, configuration).schedule(kernel, configuration)
        except CompileError:
            pass  # not the form of a network's layer
    return _WholeKernel(kernel, configuration).schedule()


class _WholeKernel:
    """A kernel whose stages share a tile of its output."""

    def __init__(self, kernel: Kernel, configuration: Configuration) -> None:
        self.kernel, self.configuration = kernel, configuration
        self.stages = [self.placed(stage) for stage in kernel.stages]

    def schedule(self) -> Schedule:
        """The schedule with the largest tile that the machine accepts; see `schedule_whole`."""
        compute, reduced = self.stages[-1].compute, {s.reduced: s.compute for s in self.stages}
        extents = dict(compute.extents) | {
            axis: stage.extents[axis] for axis, stage in reduced.items() if axis is not None
        }
        tile: dict[str, int] | None = {axis.name: axis.extent for axis in compute.axes}
        tile |= {axis: extents[axis] for axis in reduced if axis is not None}
        refused: CompileError | None = None
        while tile is not None and math.prod(-(-extents[a] // tile[a]) for a in tile) <= MAX_TILES:
            made, error = self.tried(tile)
            if error is None:
                return made
            refused = error
            tile = self.smaller(tile)
        assert refused is not None
        raise refused

    def tried(self, tile: dict[str, int]) -> tuple[Schedule, CompileError | None]:
        """The schedule for a tile, and what the machine refuses about it.

        An arena overlaps copies with work, and has room for the sums of windows that slide, but its
        turns are for constants in PARAM alone.
        """
        steps, refused = tuple(_steps(self.kernel, self.stages, tile)), None
        for first in ((Arena(),), ()):
            schedule = Schedule(self.kernel, Accelerator(self.configuration))
            try:
                schedule.apply(*first, *steps)
                lower(schedule)
            except CompileError as error:
                refused = refused or error
            else:
                return schedule, None
        return schedule, refused

    def smaller(self, tile: dict[str, int]) -> dict[str, int] | None:
        """The tile with an axis cut in two that leaves least over what the scratchpads hold."""
        *outer, _ = (axis.name for axis in self.stages[-1].compute.axes)
        lanes = max(self.configuration.lanes_in, self.configuration.lanes_out)
        choices = []
        for axis, size in tile.items():
            unit = 1 if axis in outer else lanes
            if size > unit:
                cut = {**tile, axis: -(-size // (2 * unit)) * unit}
                choices.append((self.excess(cut), axis not in outer, -size, len(choices), cut))
        return min(choices)[-1] if choices else None

    def excess(self, tile: dict[str, int]) -> float:
        """The parts of scratchpads that a tile needs and the machine lacks; infinite if refused."""
        schedule = Schedule(self.kernel, Accelerator(self.configuration))
        try:
            schedule.apply(*_steps(self.kernel, self.stages, tile))
        except CompileError:
            return math.inf
        used = footprint(schedule.program())
        sizes = ((memory.name, self.configuration.size_bytes(memory)) for memory in SCRATCHPADS)
        return sum(max(0.0, used.get(name, 0) / size - 1) for name, size in sizes)

    def placed(self, stage: Compute) -> _Placed:
        """Choose the first scratchpads from which an instruction takes the operands of a stage."""
        kernel = self.kernel
        made = {one.output.name for one in kernel.stages}
        known = memories_of([*kernel.tensors.values(), *(one.output for one in kernel.stages)])
        for name, memories in known.items():
            usual = (Memory.ACT, Memory.ACC) if name in made else READ_FROM
            known[name] = [memory for memory in usual if memory in memories]
        pattern, found = find_pattern(stage, known, patterns_of(self.configuration))
        reads = ((slot, read.tensor) for slot, read in found.reads)
        places = {
            name: next(memory for memory in known[name] if memory in pattern.places[slot.operand])
            for slot, name in ((pattern.output, stage.output.name), *reads)
        }
        lanes = {} if pattern.window else lane_axes(pattern, stage, found)
        sums = pattern.role(pattern.output) is Role.ACCUMULATOR
        inner = [axis for lane, axis in lanes.items() if lane not in pattern.output.lanes]
        return _Placed(stage, places, inner[0] if sums and inner else None)


def _steps(kernel: Kernel, stages: list[_Placed], tile: Mapping[str, int]) -> Iterator[Step]:
    """The steps for a tile: operands are copied where the tile is computed."""
    output = kernel.output.name
    scope = stages[-1].places[output].name
    names = {stage.compute.output.name: stage.compute.output.name for stage in stages}
    names[output] = f"{output}.{scope}"
    yield CacheWrite(output, scope)
    copies: dict[tuple[str, str], list[str]] = {}
    for compute, places, _ in stages:
        name = compute.output.name
        if name != output:
            yield SetScope(name, places[name].name)
        for tensor, memory in places.items():
            if tensor not in names:
                copies.setdefault((tensor, memory.name), []).append(names[name])
    for (tensor, memory), readers in copies.items():
        yield CacheRead(tensor, memory, tuple(readers))
    axes = [axis.name for axis in stages[-1].compute.axes]
    cut = [axis for axis in axes if tile[axis] < stages[-1].compute.extents[axis]]
    for axis in cut:
        yield Split(output, axis, tile[axis])
    where = {}
    if cut:
        inner = [f"{axis}.i" if axis in cut else axis for axis in axes]
        yield Reorder(output, (*(f"{axis}.o" for axis in cut), *inner))
        where = dict.fromkeys(names.values(), (output, f"{cut[-1]}.o"))
    for compute, _, reduced in reversed(stages):
        name = names[compute.output.name]
        if name in where:
            yield ComputeAt(name, *where[name])
        if reduced is not None and tile[reduced] < compute.extents[reduced]:
            loops = [axis.name for axis in (*compute.axes, *compute.reductions)]
            yield Split(name, reduced, tile[reduced])
            inner = [f"{axis}.i" if axis == reduced else axis for axis in loops]
            yield Reorder(name, (f"{reduced}.o", *inner))
            where[name] = (name, f"{reduced}.o")
    for (tensor, memory), readers in copies.items():
        if len(readers) == 1 and readers[0] in where:
            yield ComputeAt(f"{tensor}.{memory}", *where[readers[0]])
        elif cut:
            yield ComputeAt(f"{tensor}.{memory}", output, f"{cut[-1]}.o")
    for compute, _, _ in stages:
        yield Tensorise(names[compute.output.name], compute.axes[0].name)

"""How a kernel is cut into tiles: chosen by a bound of its cycles over all that fit.

A schedule fixes the tile of every step of the kernel, and whether channels or pixels are the outer
loop of the last one. Only legal ones are compared; the choice is deterministic.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ..tensor import Kernel
from .estimate import estimate
from .plan import Plan, make_plan, passes_tiles
from .steps import Step, steps_of


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tile extents of every step, loop order of the last, and the bound it was chosen by.

    Parameters
    ----------
    tiles
        Per step, `(axis, extent)` of data axes and reductions.
    channels_outer
        Walk all pixels for one tile of channels before the next; otherwise all channels of a tile
        of pixels are computed and stored together.
    """

    tiles: tuple[tuple[tuple[str, int], ...], ...]
    channels_outer: bool
    bound_cycles: int

    def plan(self, kernel: Kernel, configuration: Configuration) -> Plan:
        """Where everything lies.

        Raises
        ------
        CompileError
            When the schedule belongs to another kernel or another machine.
        """
        steps = steps_of(kernel)
        tiles = tuple(map(dict, self.tiles))
        plan = make_plan(kernel, steps, tiles, self.channels_outer, configuration)
        if plan is None:
            raise CompileError(
                f"kernel `{kernel.name}`: `{self}` does not fit `{configuration.name}`; it was "
                "made for another kernel or configuration"
            )
        return plan

    def __str__(self) -> str:
        sizes = ", then ".join(
            " ".join(f"{axis}:{extent}" for axis, extent in tile) for tile in self.tiles
        )
        return f"tile {sizes}, {'channels' if self.channels_outer else 'pixels'} outer"


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
    steps = steps_of(kernel)
    for data in _data_tiles(steps, kernel, configuration):
        for tiles in _with_inner(steps, data, kernel, configuration):
            for channels_outer in (False, True):
                plan = make_plan(kernel, steps, tiles, channels_outer, configuration)
                if plan is not None:
                    yield Schedule(
                        tuple(tuple(tile.items()) for tile in tiles),
                        channels_outer,
                        estimate(plan, kernel, configuration),
                    )


def _steps(extent: int, unit: int = 1) -> list[int]:
    """Tile extents worth trying: the fewest units for each number of tiles."""
    units = -(-extent // unit)
    sizes = {-(-units // count) * unit for count in range(1, min(units, 64) + 1)} | {unit}
    return sorted((min(size, extent) for size in sizes), reverse=True)


def _chunks(step: Step, configuration: Configuration) -> list[dict[str, int]]:
    """Tiles of the reductions: the lane axis in equal chunks, all others whole."""
    whole = step.reductions
    if not step.reduced:
        return [whole]
    extent = whole[step.reduced]
    sizes = _steps(extent, configuration.lanes_in)
    return [{**whole, step.reduced: size} for size in sizes if extent % size == 0]


def _data_tiles(
    steps: tuple[Step, ...], kernel: Kernel, configuration: Configuration
) -> Iterator[dict[str, int]]:
    """Tiles of the last step's data axes."""
    last, extents = steps[-1], steps[-1].extents
    products = any(
        step.product is not None and (step is last or passes_tiles(steps, index, kernel))
        for index, step in enumerate(steps)
    )
    lane = configuration.lanes_out if products else configuration.vector_lanes
    *outer, inner = last.channels
    if any(extents[axis] > 1 for axis in outer):
        channel_choices = [
            {**dict.fromkeys(outer, size), inner: extents[inner]}
            for size in _steps(extents[outer[0]])
        ]
    else:
        channel_choices = [
            {**dict.fromkeys(outer, 1), inner: size} for size in _steps(extents[inner], lane)
        ]
    n, y, x = last.pixels
    rolls = any(not passes_tiles(steps, index, kernel) for index in range(len(steps) - 1))
    for channels in channel_choices:
        for rows in _steps(extents[y]):
            columns = _steps(extents[x]) if rows == 1 and not rolls else [extents[x]]
            for width in columns:
                yield {n: 1, y: rows, x: width, **channels}


def _with_inner(
    steps: tuple[Step, ...], data: dict[str, int], kernel: Kernel, configuration: Configuration
) -> Iterator[tuple[dict[str, int], ...]]:
    """Tiles of all steps for one of the last: reductions in chunks, inner steps to match."""
    partial: list[tuple[dict[str, int], ...]] = [()]
    for index, step in enumerate(steps):
        if step is steps[-1]:
            own = [data]
        elif passes_tiles(steps, index, kernel):
            axes = (axis.name for axis in step.finish.axes)
            own = [dict(zip(axes, data.values(), strict=True))]
        else:
            own = _rolling_tiles(step, configuration)
        partial = [
            (*before, {**tile, **chunk})
            for before in partial
            for tile in own
            for chunk in _chunks(step, configuration)
        ]
    yield from partial


def _rolling_tiles(step: Step, configuration: Configuration) -> list[dict[str, int]]:
    """Tiles of a step whose rows roll: whole rows, as many channels as accumulators hold."""
    n, y, x = step.pixels
    extents = step.extents
    *outer, inner = step.channels
    room = configuration.acc_depth * configuration.lanes_out
    fitting = [
        {n: 1, y: rows, x: extents[x], **dict.fromkeys(outer, 1), inner: size}
        for rows in (1, 2, 4, 8)
        for size in _steps(extents[inner], configuration.lanes_out)
        if rows <= max(1, extents[y]) and rows * extents[x] * size <= room
    ]
    return fitting

"""Search for tile sizes: the candidates that fit, sorted by their estimated cycles.

A candidate fixes the tile of every phase of the kernel, and whether channels or pixels are the
outer loop of the last phase. Only legal candidates are compared. The choice is deterministic.
"""

import itertools
import math
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from operator import itemgetter

from ...errors import CompileError, UnfitError
from ...isa.configuration import Configuration, Memory
from ..te.schedule import Schedule
from ..tensor import Kernel
from .default_schedule import default_steps
from .estimate import PhaseCycles, estimate, least_cycles
from .phases import Phase, Tile, phases_of
from .target import Accelerator
from .tile_plan import TilePlan, Tiling, make_plan, passes_tiles, reads_own_channels, tile_fits


@dataclass(frozen=True, slots=True)
class Candidate:
    """Tile extents of every phase, the loop order of the last one, and the estimated cycles.

    Parameters
    ----------
    tiles
        For each phase, `(axis, extent)` of data axes and reductions.
    channels_outer
        Compute all pixels of one tile of channels before the next tile of channels. Otherwise, all
        channels of a tile of pixels are computed and stored together.
    estimated_cycles
        The result of `estimate`; it may be too large or too small.
    depth
        Maximum number of tiles of an operand on chip at a time; 0 for as many as fit.
    ahead
        Whether the rows of a ring are computed a tile before they are read, in a ring of two tiles.
    """

    tiles: tuple[tuple[tuple[str, int], ...], ...]
    channels_outer: bool
    estimated_cycles: int
    depth: int = 0
    ahead: bool = True

    def schedule(
        self,
        kernel: Kernel,
        configuration: Configuration,
        alike: MutableMapping[object, Schedule] | None = None,
    ) -> Schedule:
        """The schedule steps for this candidate.

        Parameters
        ----------
        alike
            Schedules of other candidates for this kernel and configuration, by what determines the
            form of their steps; this schedule may be added.

        Raises
        ------
        ScheduleError
            When the candidate belongs to another kernel.
        """
        tiling = self._tiling(kernel)
        steps = default_steps(tiling)
        joins_images = tiling.tiles[-1][tiling.phases[-1].pixels[0]] > 1
        form = self.channels_outer, self.depth > 0, joins_images
        if alike is not None and form in alike:
            return alike[form].with_numbers(steps)
        schedule = Schedule(kernel, Accelerator(configuration))
        schedule.apply(*steps)
        if alike is not None:
            alike[form] = schedule
        return schedule

    def plan(self, kernel: Kernel, configuration: Configuration) -> TilePlan:
        """The plan for this candidate.

        Raises
        ------
        CompileError
            When the schedule belongs to another kernel or another machine.
        """
        tiling = self._tiling(kernel)
        fits = all(map(tile_fits, tiling.phases, tiling.tiles, itertools.repeat(configuration)))
        plan = make_plan(tiling, configuration)
        if plan is None or not fits:
            raise CompileError(
                f"kernel `{kernel.name}`: `{self}` does not fit `{configuration.name}`; it was "
                "made for another kernel or configuration"
            )
        return plan

    def _tiling(self, kernel: Kernel) -> Tiling:
        tiles = tuple(map(dict, self.tiles))
        phases = phases_of(kernel)
        return Tiling(kernel, phases, tiles, self.channels_outer, self.depth, self.ahead)

    def __str__(self) -> str:
        sizes = ", then ".join(
            " ".join(f"{axis}:{extent}" for axis, extent in tile) for tile in self.tiles
        )
        depth = f", depth {self.depth}" if self.depth else ""
        ahead = "" if self.ahead else ", no rows ahead"
        order = "channels" if self.channels_outer else "pixels"
        return f"tile {sizes}, {order} outer{depth}{ahead}"


def choose_candidate(kernel: Kernel, configuration: Configuration, depth: int = 0) -> Candidate:
    """The legal candidate with the least estimate; the first of equals.

    Raises
    ------
    UnfitError
        When not even the smallest tile fits, naming what is too small.
    """
    return likely_candidates(kernel, configuration, depth, 1)[0]


def likely_candidates(
    kernel: Kernel, configuration: Configuration, depth: int, count: int
) -> list[Candidate]:
    """The `count` legal candidates with the least estimates; see `TileSearch.likely`."""
    return TileSearch(kernel, configuration, depth).likely(count)


def legal_candidates(
    kernel: Kernel, configuration: Configuration, depth: int = 0
) -> Iterator[Candidate]:
    """Every candidate that fits the scratchpads; the lowering accepts all of them."""
    search = TileSearch(kernel, configuration, depth)
    for ahead in search.leads:
        for tiles, narrow in search.all_tiles():
            yield from search.candidates(tiles, ahead, narrow)


_Ranking = tuple[
    list[Candidate],
    list[tuple[int, int, Candidate]],
    list[tuple[int, int, tuple[PhaseCycles, ...], bool]],
]
"""Candidates by their estimates; a heap of others that are planned; and tiles that are not planned
yet, the least bound last. Both have places by which equals are ordered."""


class TileSearch:
    """The candidates for a kernel, found as they are asked for; see `Candidate` for `depth`."""

    def __init__(self, kernel: Kernel, configuration: Configuration, depth: int) -> None:
        self.kernel, self.configuration, self.depth = kernel, configuration, depth
        self.phases = phases_of(kernel)
        self.passing = [passes_tiles(self.phases, place) for place in range(len(self.phases) - 1)]
        """For each phase but the last, True if it passes its tiles on."""

    @property
    def leads(self) -> tuple[bool, ...]:
        """The values to try for `Candidate.ahead`, the usual one first."""
        if self.depth == 1:
            return (False,)
        return (True,) if all(self.passing) else (True, False)

    def likely(self, count: int, below: float = math.inf) -> list[Candidate]:
        """The legal candidates with the least estimates, at least one; equals keep their order.

        Parameters
        ----------
        count
            Maximum number of candidates.
        below
            Candidates with an estimate of so many cycles or more, except the first, may be missing.

        Raises
        ------
        UnfitError
            When not even the smallest tile fits, naming what is too small.
        """
        for ahead in self.leads:
            if self._least(ahead, 1):
                return self._least(ahead, count, below)
        configuration = self.configuration
        raise UnfitError(
            f"kernel `{self.kernel.name}`: no tile fits configuration `{configuration.name}` "
            f"(ACT {configuration.size_bytes(Memory.ACT)} bytes, WGT "
            f"{configuration.size_bytes(Memory.WGT)}, ACC bank {configuration.acc_depth} rows, "
            f"PARAM {configuration.param_depth} rows); raise these depths"
        )

    def just_in_time(self, count: int, below: float = math.inf) -> list[Candidate]:
        """At most `count` further candidates with rings, which then hold no rows ahead.

        In each tile GEMM waits for VECTOR, but the room that is left may hold larger tiles. Those
        with an estimate of `below` cycles or more may be missing.
        """
        return [one for ahead in self.leads[1:] for one in self._least(ahead, count, below)]

    def _least(self, ahead: bool, count: int, below: float = math.inf) -> list[Candidate]:
        """Plan tiles until no others can be among the `count` candidates that are asked for."""
        found, waiting, tiles = self._rankings[ahead]
        while len(found) < count:
            least = tiles[-1][0] if tiles else math.inf
            if waiting and waiting[0][0] < least:
                found.append(heappop(waiting)[-1])
            elif least >= below:
                break
            else:
                _, place, cycles, narrow = tiles.pop()
                for candidate in self.candidates(cycles, ahead, narrow):
                    place += 1
                    heappush(waiting, (candidate.estimated_cycles, place, candidate))
        return found[:count]

    @cached_property
    def _rankings(self) -> dict[bool, _Ranking]:
        every = [
            (least_cycles(cycles), 2 * place, cycles, narrow)
            for place, (cycles, narrow) in enumerate(self.all_tiles())
        ]
        every.sort(key=itemgetter(0, 1), reverse=True)
        return {ahead: ([], [], every.copy()) for ahead in self.leads}

    def candidates(
        self, cycles: Sequence[PhaseCycles], ahead: bool, narrow: bool
    ) -> Iterator[Candidate]:
        """The candidates with these tiles that fit."""
        last, tiles = self.phases[-1], tuple(one.tile for one in cycles)
        # If one tile has all channels, both orders are the same.
        cut = any(tiles[-1][axis] < last.extents[axis] for axis in last.channels)
        orders = (True,) if last.is_bare else (False, True) if cut else (False,)
        items = tuple(tuple(tile.items()) for tile in tiles)
        for channels_outer in orders[-1:] if narrow else orders:
            tiling = Tiling(self.kernel, self.phases, tiles, channels_outer, self.depth, ahead)
            plan = make_plan(tiling, self.configuration)
            if plan is not None and plan.has_narrow_rings == narrow:
                estimated = estimate(plan, cycles, self.configuration)
                yield Candidate(items, channels_outer, estimated, self.depth, ahead)

    def all_tiles(self) -> Iterator[tuple[tuple[PhaseCycles, ...], bool]]:
        """Tiles of all phases: those of the last phase, and matching tiles of the others.

        Each with whether rings hold a part of the channels at a time. That makes room for taller
        tiles, which save steps where GEMM keeps lines.
        """
        steps, passing = self.phases, self.passing
        together = [step for step, passes in zip(steps, [*passing, True], strict=True) if passes]
        lane = max(map(self.lane_unit, together))
        chunks = [self.chunks(step) for step in steps]
        has_parts = self.configuration.window_lines > 1 and not all(passing)
        data_tiles = _data_tiles(steps[-1], lane, all(passing))
        rolling: dict[tuple[int, int, int], list[PhaseCycles]] = {}
        for data, narrow in itertools.product(data_tiles, (False, True)[: 1 + has_parts]):
            choices = [self._sized(steps[-1], data, chunks[-1])]
            for index in reversed(range(len(passing))):
                step = steps[index]
                if passing[index]:
                    axes = (axis.name for axis in step.finish.axes)
                    own: Tile = dict(zip(axes, data.values(), strict=True))
                    choices.append(self._sized(step, own, chunks[index]))
                else:
                    reader = next(
                        place
                        for place in range(index + 1, len(steps))
                        if any(read.tensor == step.name for read in steps[place].activations)
                    )
                    later = choices[len(steps) - 1 - reader]
                    rows, part = _needed_of(step, steps[reader], later[0].tile) if later else (1, 1)
                    most = part if narrow else step.extents[step.channels[-1]]
                    if (index, rows, most) not in rolling:
                        fitting = self.rolling_tiles(step, rows, most, chunks[index])
                        rolling[index, rows, most] = fitting
                    choices.append(rolling[index, rows, most])
            yield from ((tiles, narrow) for tiles in itertools.product(*reversed(choices)))

    def rolling_tiles(
        self, step: Phase, rows: int, most: int, chunks: list[Tile]
    ) -> list[PhaseCycles]:
        """Tiles of a rolling phase: some whole rows, and as many channels as fit, up to `most`."""
        n, y, x = step.pixels
        *outer, inner = step.channels
        sizes = _steps(most, self.lane_unit(step))
        base = {n: 1, x: step.extents[x], **dict.fromkeys(outer, 1)}
        tiles = []
        for count in {rows: None, -(-rows // 2): None, 1: None}:
            rolling = ({**base, y: count, inner: size} for size in sizes)
            fitting = (tile for data in rolling for tile in self.fitting(step, data, chunks))
            # The last tile of channels is small if the largest that fits does not divide them.
            for number, tile in enumerate(fitting):
                even = most % tile[inner] == 0
                tiles += (
                    [PhaseCycles(self.kernel, step, tile, self.configuration)]
                    if even or not number
                    else []
                )
                if even:
                    break
        return tiles

    def lane_unit(self, step: Phase) -> int:
        """Channels of a tile are a multiple of this."""
        configuration = self.configuration
        if step.window is not None:
            return max(configuration.lanes_in, configuration.lanes_out)
        sums = step.product or any(one.compute.output.dtype == "int32" for one in step.partials)
        return configuration.lanes_out if sums else configuration.vector_lanes

    def fitting(self, step: Phase, data: Tile, chunks: list[Tile]) -> Iterator[Tile]:
        """Tiles of a phase with each chunk of its reductions, if they fit."""
        tiles = ({**data, **chunk} for chunk in chunks)
        return (tile for tile in tiles if tile_fits(step, tile, self.configuration))

    def _sized(self, step: Phase, data: Tile, chunks: list[Tile]) -> list[PhaseCycles]:
        tiles = self.fitting(step, data, chunks)
        return [PhaseCycles(self.kernel, step, tile, self.configuration) for tile in tiles]

    def chunks(self, step: Phase) -> list[Tile]:
        """Tiles of the reductions: equal chunks of the lane axis; the other axes are whole."""
        whole = step.reductions
        patches = [self.kernel.tensors[read.tensor].patches for read in step.streams]
        if not step.reduced or any(one and not one.whole_pixels for one in patches):
            return [whole]
        extent = whole[step.reduced]
        sizes = _steps(extent, self.configuration.lanes_in)
        return [{**whole, step.reduced: size} for size in sizes if extent % size == 0]


def _needed_of(step: Phase, reader: Phase, tile: Tile) -> tuple[int, int]:
    """Rows by which a reader's tiles advance through a phase's activation, and their channels."""
    row = reader.pixels[1]
    read = next(read for read in reader.activations if read.tensor == step.name)
    rows = tile[row] * read.index[1].coefficient(row)
    channels = step.extents[step.channels[-1]]
    part = tile[reader.channels[-1]] if reads_own_channels(read, reader) else channels
    return max(1, min(rows, step.extents[step.pixels[1]])), part


def _data_tiles(step: Phase, lane: int, may_cut_rows: bool) -> Iterator[Tile]:
    """Tiles of the last phase's data axes: whole lanes of channels; images, rows, parts of one."""
    extents = step.extents
    *outer, inner = step.channels
    if any(extents[axis] > 1 for axis in outer):
        sizes = _steps(extents[outer[0]])
        channels = [{**dict.fromkeys(outer, size), inner: extents[inner]} for size in sizes]
    else:
        sizes = _steps(extents[inner], lane)
        channels = [{**dict.fromkeys(outer, 1), inner: size} for size in sizes]
    n, y, x = step.pixels
    for chosen in channels:
        if may_cut_rows:
            whole = {y: extents[y], x: extents[x], **chosen}
            yield from ({n: images, **whole} for images in _steps(extents[n]) if images > 1)
        for rows in _steps(extents[y]):
            widths = _steps(extents[x]) if rows == 1 and may_cut_rows else [extents[x]]
            for width in widths:
                yield {n: 1, y: rows, x: width, **chosen}


def _steps(extent: int, unit: int = 1) -> list[int]:
    """Tile extents to try: for each number of tiles, the fewest units per tile."""
    units = -(-extent // unit)
    sizes = {-(-units // count) * unit for count in range(1, min(units, 64) + 1)} | {unit}
    return sorted((min(size, extent) for size in sizes), reverse=True)

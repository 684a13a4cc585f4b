"""Plans for the search: whether tiles fit the scratchpads, and how they share ACT.

A tensor that enters or leaves a kernel has room for several tiles. A tensor between two phases has
room for tiles if the next phase works element by element; otherwise it is a ring of rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from ...isa.configuration import Configuration
from ...isa.expressions import Affine, Read
from ..te.box import Range, box_size, extents_of
from ..te.rolling import Interval, Rolling, rolling_through
from ..tensor import Kernel
from .phases import Phase, Tile, box_of, is_pointwise
from .regions import RegionRequest, act_regions, limited_region, region_request
from .sliding import lane_channels
from .weights import weight_layout
from .wide_weights import FurtherCounts, further_counts


@dataclass(frozen=True, slots=True)
class Tiling:
    """The choices for a kernel that determine its schedule.

    Parameters
    ----------
    kernel
        The kernel.
    phases, tiles
        Its phases, and the extent of every axis in a tile of each phase.
    channels_outer
        Store each tile of channels on its own, and compute all pixels of one before the next tile
        of channels, unless the channels of a tile of pixels share sums. Otherwise, all channels of
        a tile of pixels are computed and stored together.
    depth
        Maximum number of tiles of an operand on chip at a time; 0 for as many as fit.
    ahead
        Whether the rows of rings are computed a tile before they are read.
    """

    kernel: Kernel
    phases: tuple[Phase, ...]
    tiles: tuple[Tile, ...]
    channels_outer: bool
    depth: int
    ahead: bool


@dataclass(frozen=True, slots=True)
class TilePlan(Tiling):
    """A kernel with tiles that fit.

    Parameters
    ----------
    regions
        Bytes of ACT for every activation, by tensor.
    pieces
        Bytes of one tile of every activation, by tensor.
    rings
        Activations between phases that are rings of rows.
    """

    regions: Mapping[str, Range]
    pieces: Mapping[str, int]
    rings: Mapping[str, Rolling]

    def limit(self, capacity: int, pieces: int) -> int:
        """Units of `capacity` for all phases' tiles; `pieces` units hold one tile of each."""
        return min(capacity, self.depth * pieces) if self.depth else capacity

    @property
    def has_narrow_rings(self) -> bool:
        """Whether a ring holds a part of the channels at a time."""
        return any(ring.narrow for ring in self.rings.values())

    def tiles_in(self, tensor: str) -> int:
        """The number of tiles of an activation that its region holds."""
        low, high = self.regions[tensor]
        return (high - low) // self.pieces[tensor]


def make_plan(tiling: Tiling, configuration: Configuration) -> TilePlan | None:
    """Divide ACT between the activations of tiles that fit the other scratchpads; see `tile_fits`.

    Returns None if they do not fit ACT, or the parameters of phases with rows PARAM.
    """
    kernel, phases, tiles = tiling.kernel, tiling.phases, tiling.tiles
    parameters = map(parameter_rows, phases, tiles, repeat(configuration))
    if phases[-1].has_rows and sum(parameters) > configuration.param_depth:
        return None  # those of rows stay while those of the phases before are loaded
    made = {phase.name: index for index, phase in enumerate(phases)}
    requests: dict[str, RegionRequest] = {}
    pieces: dict[str, int] = {}
    rings: dict[str, Rolling] = {}
    digits: dict[str, RegionRequest] = {}
    for index, (phase, tile) in enumerate(zip(phases, tiles, strict=True)):
        in_order = phase is phases[-1] or passes_tiles(phases, index)
        for read in phase.activations:
            tensor = kernel.tensors[read.tensor]
            if read.tensor in made and not passes_tiles(phases, made[read.tensor]):
                maker = made[read.tensor]
                rows = tiles[maker][phases[maker].pixels[1]]
                lead = rows_ahead(read, phase, tile) if tiling.ahead else 0
                ring = ring_between(read, phase, tile, tensor.shape, rows, lead)
                if tiling.channels_outer and in_order and not ring.whole:
                    before, parts = phases[maker], tiles[maker]
                    # What is read for each part of the channels is loaded, not computed, again.
                    if (
                        not reads_own_channels(read, phase)
                        or tensor.shape[-1] % tile[phase.channels[0]]
                        or tile[phase.channels[0]] % parts[before.channels[-1]]
                        or not made.keys().isdisjoint(one.tensor for one in before.activations)
                    ):
                        return None
                    ring = ring_between(read, phase, tile, tensor.shape, rows, lead, narrow=True)
                if rows > ring.advance:
                    return None  # the ring has no room for so many rows at a time
                rings[read.tensor] = ring
                size = ring.elements
            else:
                size = box_size(box_of(read, {}, phase.streamed(tile)))
            pieces[read.tensor] = size
            requests[read.tensor] = region_request(size, between=read.tensor in made)
        for one in phase.partials:
            if one.compute.output.dtype == "int8":
                pieces[one.name] = math.prod(one.sizes(tile))
                digits[one.name] = RegionRequest(pieces[one.name], pieces[one.name])
    last = phases[-1]
    if not last.is_bare:
        size = output_bytes(last, tiles[-1], tiling.channels_outer)
        pieces[last.name] = size
        requests[last.name] = region_request(size, between=False)
    # Results of VECTOR come last: they may share banks without delaying a LOAD.
    order = sorted(requests, key=lambda name: (name in made) + (name == last.name))
    made_in_act = len(phases) - last.is_bare
    regions = act_regions(
        tuple(requests[name] for name in order), made_in_act, configuration, (*digits.values(),)
    )
    if not regions:
        return None
    order += digits
    regions_of = {
        name: region if name in rings else limited_region(region, tiling.depth, pieces[name])
        for name, region in zip(order, regions, strict=True)
    }
    return TilePlan(
        kernel, phases, tiles, tiling.channels_outer, tiling.depth, tiling.ahead,
        regions_of, pieces, rings,
    )  # fmt: skip


def rows_ahead(read: Read, consumer: Phase, tile: Tile) -> int:
    """Rows of an activation by which its maker runs ahead of a consumer that would wait for it.

    Without this lead, GEMM waits for the rows that VECTOR is computing.
    """
    row = consumer.pixels[1]
    return tile[row] * read.index[1].coefficient(row) if read in consumer.streams else 0


def reads_own_channels(read: Read, phase: Phase) -> bool:
    """Whether a tile of a phase's channels needs the same channels of an activation."""
    return [Affine.of(**{axis: 1}) for axis in phase.channels] == [read.index[-1]]


def ring_between(
    read: Read,
    consumer: Phase,
    tile: Tile,
    shape: tuple[int, ...],
    made: int,
    ahead: int,
    narrow: bool = False,
) -> Rolling:
    """The ring that a consumer with these tiles needs; its schedule uses the same ring.

    Parameters
    ----------
    read
        The consumer's read of the activation int8[N, H, W, C] of `shape`.
    tile
        The consumer's tile, of full width.
    made, ahead
        Rows computed at a time, and rows computed before they are needed.
    narrow
        Whether the ring holds the channels of one tile at a time, all of whose pixels come first.
    """
    y, extents = consumer.pixels[1], consumer.extents
    whole = box_of(read, {}, {**tile, **{axis: extents[axis] for axis in consumer.pixels}})
    first, last = box_of(read, {}, tile)[1]
    advance = tile[y] * read.index[1].coefficient(y)
    images, _, columns, channels = (Interval(Affine(), extent) for extent in shape)
    rows = Interval(Affine.of(first, tile=advance), last - first)
    pixels = (Interval(Affine.of(low), high - low) for low, high in whole[1:3])
    needed, ever = (images, rows, columns, channels), (images, *pixels, channels)
    if narrow:
        part = tile[consumer.channels[-1]]
        needed = (*needed[:3], Interval(Affine.of(tile=part), part))
    return rolling_through(1, (made, ahead), needed, ever, shape, (3,) if narrow else ())


def passes_tiles(phases: Sequence[Phase], index: int) -> bool:
    """Whether an inner phase's tiles become tiles of the last phase, element by element.

    Through a phase between them only if the last one has statistics over rows; otherwise the first
    may have other tiles, whose rows a ring passes on.
    """
    reads = [
        (place, phase, read)
        for place, phase in enumerate(phases)
        for read in phase.activations
        if read.tensor == phases[index].name
    ]
    if len(reads) != 1:
        return False
    place, reader, read = reads[0]
    if reader.product is not None or not is_pointwise(read, reader):
        return False
    return reader is phases[-1] or (phases[-1].has_rows and passes_tiles(phases, place))


def tile_fits(phase: Phase, tile: Tile, configuration: Configuration) -> bool:
    """Whether accumulators, weights and parameters of a tile fit."""
    whole = (*phase.bordered, *(phase.channels if phase.has_rows else ()))
    if any(tile[axis] < phase.extents[axis] for axis in whole):
        return False
    if phase.window and not phase.window.has_lines(tile[phase.pixels[2]], configuration):
        return False
    if parameter_rows(phase, tile, configuration) > configuration.param_depth:
        return False
    if accumulator_rows(phase, tile, configuration) > configuration.acc_depth:
        return False
    return weight_tiles(phase, tile, configuration) <= configuration.weight_tiles


def parameter_rows(phase: Phase, tile: Tile, configuration: Configuration) -> int:
    """Rows of PARAM that a tile's biases and scales take, and the statistics of its rows."""
    channels = math.prod(tile[axis] for axis in phase.channels)
    rows = len(phase.parameters) * -(-channels // configuration.vector_lanes)
    return rows + (1 + math.prod(tile[axis] for axis in phase.pixels) if phase.has_rows else 0)


def streamed_rows(phase: Phase, tile: Tile, configuration: Configuration) -> int:
    """ACT rows per weight tile: one per pixel, and the extra pixels at the start of a window."""
    tile = phase.streamed(tile)
    if phase.window is not None:
        tile = {**tile, **phase.window.steps(tile, configuration)}
    return math.prod(tile[axis] for axis in phase.pixels)


def accumulator_rows(phase: Phase, tile: Tile, configuration: Configuration) -> int:
    """Rows of ACC that a tile of a product, and what VECTOR adds to it, take."""
    rows = 0
    if phase.product is not None:
        channels = math.prod(tile[axis] for axis in phase.channels)
        block = lane_channels(configuration) if phase.window else configuration.lanes_out
        rows = streamed_rows(phase, tile, configuration) * -(-channels // block)
    if phase.has_rows:
        sizes = [tile[axis.name] for axis in phase.finish.axes]
        rows = math.prod(sizes[:-1]) * -(-sizes[-1] // configuration.lanes_out)
    early = 0
    for one in phase.partials:
        if one.compute.output.dtype == "int32" and not one.in_place:
            sizes = one.sizes(tile)
            own = math.prod(sizes[:-1]) * -(-sizes[-1] // configuration.lanes_out)
            rows, early = (rows, early + own) if one.early else (rows + own, early)
    return max(rows, early)


def weight_tiles(phase: Phase, tile: Tile, configuration: Configuration) -> int:
    """Weight tiles of one chunk, at most: every channel, tap and lane block of the tile."""
    tiles, further = tiles_of(phase, tile, configuration)
    return tiles + further.most


def tiles_of(phase: Phase, tile: Tile, configuration: Configuration) -> tuple[int, FurtherCounts]:
    """Weight tiles of one chunk that hold int8 weights, and what wide weights add to them."""
    if phase.weights is None:
        return 0, FurtherCounts()
    lanes = configuration.lanes_in, configuration.lanes_out
    taps = configuration.depthwise_taps, configuration.window_lines
    key = (*lanes, *taps, *(tile[axis] for axis in phase.weight_axes))
    known = phase.weight_tiles
    if key not in known:
        box = box_of(phase.weights, {}, tile)
        extents = extents_of(box)
        tiles, further = weight_layout(extents, phase.window, configuration).tiles, FurtherCounts()
        if phase.excess is not None:
            further = further_counts(phase.excess, extents, phase.window, configuration)
        known[key] = tiles, further
    return known[key]


def output_bytes(phase: Phase, tile: Tile, channels_outer: bool) -> int:
    """Bytes of the output buffer: one tile, or all channels of its pixels."""
    pixels = math.prod(tile[axis] for axis in phase.pixels)
    sizes = tile if channels_outer else phase.extents
    return pixels * math.prod(sizes[axis] for axis in phase.channels)

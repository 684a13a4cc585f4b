"""The schedule of attention: one kernel, whose scores stay in shared memory.

A block keeps the sums of a tile of queries in registers and walks through the keys. The maximum and
the sum of a softmax are carried along, so the scores of a few keys at a time are enough.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...isa.expressions import reads_of
from ..te.carry import is_power, is_relative
from ..te.reductions import reduction_of
from ..te.schedule import Schedule
from ..te.stages import Stage
from ..te.target import SHARED
from .block_schedules import copy_together, give_to_warps
from .blocks import is_copy
from .instructions import WARP_ROWS, WIDE, WarpProduct
from .target import GpuTarget

COLUMNS = 16
"""Threads beside each other, in neighbouring columns."""

VECTOR_BYTES = 16
"""Bytes that a thread copies at once."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Queries of a block, keys of an iteration, and the queries of each thread."""

    queries: int
    keys: int
    own_queries: int

    @property
    def threads(self) -> int:
        return COLUMNS * self.queries // self.own_queries


TILES = (
    AttentionTile(64, 32, 4), AttentionTile(32, 32, 2), AttentionTile(16, 16, 1),
    AttentionTile(8, 8, 1),
)  # fmt: skip
"""The largest first."""

TENSOR_TILES = AttentionTile(64, 32, 4), AttentionTile(32, 32, 4), AttentionTile(16, 16, 4)
"""Those of tensor cores: each warp has 16 queries and half of the columns."""

COLUMN_WARPS = 2

PIPELINE_DEPTH = 2
"""Iterations whose keys and values are in shared memory, where copies run ahead."""

SPARE_BYTES = 2 << 10
"""Shared memory that is left for the ends of buffers."""

MIN_BLOCKS = 128
"""Blocks that a larger tile than the smallest must leave."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """The stages of an attention by their roles; all but `out` are computed inside of it.

    Parameters
    ----------
    queries, copies
        Copies of queries, and of what a step reads.
    law
        The product of tensor cores that computes both products; None without.
    axis, columns, keys
        The axes of `out` over queries, columns of values, and keys.
    """

    queries: Stage
    copies: tuple[Stage, ...]
    scores: Stage
    most: Stage
    weights: Stage
    mass: Stage
    out: Stage
    axis: str
    columns: str
    keys: str
    law: WarpProduct | None

    def size(self, axis: str) -> int:
        return dict(zip(self.out.axes, map(_extent, self.out.domain), strict=True))[axis]


def _extent(ends: tuple[int, int]) -> int:
    return ends[1] - ends[0]


def schedule_attention(schedule: Schedule, target: GpuTarget) -> bool:
    """Schedule attention; return False, with nothing changed, for any other kernel."""
    found = _attention(schedule, target)
    depth = PIPELINE_DEPTH if target.properties.instructions else 1
    tile = found and _tile(found, target, depth)
    if not found or not tile:
        return False
    _apply(schedule, found, tile, depth)
    return True


def _attention(schedule: Schedule, target: GpuTarget) -> _Attention | None:
    copies = [stage for stage in schedule.stages if is_copy(stage.body)]
    others = [stage for stage in schedule.stages if not is_copy(stage.body)]
    if len(others) != 5 or not copies:
        return None
    scores, most, weights, mass, out = others
    factors = [weights.name, *(c.name for c in copies if c.reads[0].tensor == weights.name)]
    factor = factors[-1]
    if not (
        is_power(weights, most.name)
        and is_relative(mass, weights.name)
        and is_relative(out, factor)
        and len(out.reductions) == len(scores.reductions) == 1
    ):
        return None
    reads = {read.tensor: read for read in out.reads}
    ((axis, _),) = reads[mass.name].index[-1].terms
    used = {name for part in reads[factor].index for name, _ in part.terms}
    (columns,) = (name for name in out.axes if name not in used)
    queries, *rest = copies
    law = None
    if factor != weights.name:  # copied, so that its taps lie side by side
        extents = [_extent(out.domain[out.axes.index(name)]) for name in (axis, columns)]
        taps = [stage.reductions[0].extent for stage in (scores, out)]
        sizes = extents[0], extents[1], taps[0], taps[1]
        law = product_of(queries.output.dtype, sizes, target)
    return _Attention(
        *(queries, tuple(rest), scores, most, weights, mass, out),
        *(axis, columns, out.reductions[0].name, law),
    )


def product_of(
    dtype: str, sizes: tuple[int, int, int, int], target: GpuTarget
) -> WarpProduct | None:
    """The product of tensor cores of which both products of an attention are whole multiples.

    Parameters
    ----------
    dtype
        Type of their operands.
    sizes
        Queries, columns of values, elements of a key, and keys.
    """
    queries, columns, inner, keys = sizes
    least = TENSOR_TILES[-1]
    for law in target.instructions:
        whole = columns % (COLUMN_WARPS * WIDE) == inner % law.taps == 0
        fits = whole and queries >= least.queries and keys % least.keys == 0
        if (dtype, dtype) in law.pairs and fits and not law.reads_shared:
            return law
    return None


def _tile(a: _Attention, target: GpuTarget, depth: int) -> AttentionTile | None:
    """The largest tile that fits and leaves enough blocks; else the smallest that fits."""
    inner, columns = a.scores.reductions[0].extent, a.size(a.columns)
    rows = math.prod(map(_extent, a.out.domain)) // columns
    room, chosen = target.properties.shared_bytes - SPARE_BYTES, None
    for tile in TENSOR_TILES if a.law else TILES:
        scores = (3 if a.law else 2) * tile.queries
        used = 4 * (tile.queries * (inner + 3) + depth * tile.keys * (inner + columns + scores))
        too_large = a.law and (
            a.size(a.axis) < tile.queries or a.out.reductions[0].extent % tile.keys
        )
        if used > room or tile.threads > target.properties.max_threads or too_large:
            continue
        chosen = tile
        if -(-rows // tile.queries) >= MIN_BLOCKS:
            break
    return chosen


def _apply(s: Schedule, a: _Attention, tile: AttentionTile, depth: int) -> None:
    out, batch = a.out.name, tuple(n for n in a.out.axes if n not in (a.axis, a.columns))
    block, inside = s.split(out, a.axis, tile.queries)
    step, key = s.split(out, a.keys, tile.keys)
    outer, half = (*batch, block, step), ""
    if a.law:
        own = (inside, WARP_ROWS), (a.columns, a.size(a.columns) // COLUMN_WARPS)
        half = give_to_warps(s, out, outer, *own, key, a.law)
    else:
        row, own_row = s.split(out, inside, tile.own_queries)
        own_column, column = s.split(out, a.columns, COLUMNS)
        s.reorder(out, *outer, row, column, key, own_row, own_column)
        s.bind(out, row, "thread")
        s.bind(out, column, "thread")
        s.unroll(out, own_row, own_column)
    s.bind(out, block, "block.x")
    if batch:
        s.bind(out, s.fuse(out, *batch), "block.y")
    _carry(s, a, tile, step)
    of_scores = _score(s, a, tile)
    for stage, loop in ((a.queries, block), *((one, step) for one in a.copies)):
        s.compute_at(stage.name, out, loop)
        s.set_scope(stage.name, SHARED)
        copy_together(s, stage.name, tile.threads, 1)
    if depth > 1:
        s.pipeline(out, step, depth)
    copies = {one.name: a.out.name for one in a.copies if one.reads[0].tensor != a.weights.name}
    for tensor, reader in _operands(a):
        copy = s.cache_read(tensor, SHARED, reader)
        copies[copy] = reader
        s.compute_at(copy, out, step)
        size = np.dtype(s.kernel.tensors[tensor].dtype).itemsize
        copy_together(s, copy, tile.threads, VECTOR_BYTES // size)
    names = [stage.name for stage in s.stages]
    for copy in copies:
        if names.index(copy) > names.index(a.scores.name):
            s.precede(copy, a.scores.name)
    if a.law:
        s.tensorise(a.scores.name, of_scores)
        s.tensorise(out, half)


def _carry(s: Schedule, a: _Attention, tile: AttentionTile, step: str) -> None:
    """Compute the scores of a step's keys, and carry the maximum and the mass along."""
    out = a.out.name
    s.carry(a.mass.name, out, step)
    for stage in a.copies:
        if stage.reads[0].tensor == a.weights.name:
            s.compute_at(stage.name, out, step)
    s.compute_at(a.weights.name, out, step)
    s.carry(a.most.name, out, step)
    s.compute_at(a.scores.name, out, step)
    for stage in (a.scores, a.most, a.weights, a.mass):
        s.set_scope(stage.name, SHARED)
    _, one = s.split(a.weights.name, s.fuse(a.weights.name, *a.weights.axes), tile.threads)
    s.bind(a.weights.name, one, "thread")
    for stage in (a.most, a.mass):
        s.bind(stage.name, stage.axes[-1], "thread")
        s.unroll(stage.name, stage.reductions[0].name)


def _score(s: Schedule, a: _Attention, tile: AttentionTile) -> str:
    """Deal the scores to the threads; return the loop of the instruction, if there is one."""
    name, taps = a.scores.name, a.scores.reductions[0]
    *batch, keys, queries = a.scores.axes
    if a.law:
        # Sums are spread over the threads from outside of their loops.
        whole, inside = s.split(name, taps.name, taps.extent)
        own = (queries, WARP_ROWS), (keys, tile.keys // COLUMN_WARPS)
        return give_to_warps(s, name, (*batch, whole), *own, inside, a.law)
    across = min(COLUMNS, tile.queries)
    own_query, query = s.split(name, queries, across)
    key, own_key = s.split(name, keys, max(1, tile.keys * across // tile.threads))
    s.reorder(name, *batch, key, query, taps.name, own_key, own_query)
    s.bind(name, key, "thread")
    s.bind(name, query, "thread")
    s.unroll(name, own_key, own_query)
    return ""


def _operands(a: _Attention) -> Iterator[tuple[str, str]]:
    """The keys and the values, with the stages that read them."""
    inner = a.scores.reductions[0].name
    made = {one.name for one in (a.queries, *a.copies, a.weights, a.mass)}
    for stage, axis in ((a.scores, inner), (a.out, a.keys)):
        for read in reads_of(reduction_of(stage.body)):
            moved = any(part.coefficient(axis) for part in read.index)
            if moved and read.tensor not in made:
                yield read.tensor, stage.name

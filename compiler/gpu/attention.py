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
from .blocks import is_copy
from .shared_copies import copy_together
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
    axis, keys
        The axes of `out` over queries and keys.
    """

    copies: tuple[Stage, ...]
    scores: Stage
    most: Stage
    weights: Stage
    mass: Stage
    out: Stage
    axis: str
    keys: str


def schedule_attention(schedule: Schedule, target: GpuTarget) -> bool:
    """Schedule attention; False, without a change, where a kernel is another one."""
    found = _attention(schedule)
    depth = PIPELINE_DEPTH if target.properties.instructions else 1
    tile = found and _tile(found, target, depth)
    if not found or not tile:
        return False
    _apply(schedule, found, tile, depth)
    return True


def _attention(schedule: Schedule) -> _Attention | None:
    if len(schedule.stages) < 5:
        return None
    *copies, scores, most, weights, mass, out = schedule.stages
    if not (
        all(is_copy(one.body) for one in copies)
        and is_power(weights, most.name)
        and is_relative(mass, weights.name)
        and is_relative(out, weights.name)
        and len(out.reductions) == len(scores.reductions) == 1
    ):
        return None
    ((axis, _),) = next(r for r in out.reads if r.tensor == mass.name).index[-1].terms
    return _Attention(tuple(copies), scores, most, weights, mass, out, axis, out.reductions[0].name)


def _tile(a: _Attention, target: GpuTarget, depth: int) -> AttentionTile | None:
    """The largest tile that fits shared memory and leaves enough blocks; else the smallest."""
    sizes = {name: high - low for name, (low, high) in zip(a.out.axes, a.out.domain, strict=True)}
    inner = a.scores.reductions[0].extent
    columns = sizes[_columns(a)]
    rows = math.prod(sizes.values()) // columns
    room, chosen = target.properties.shared_bytes - SPARE_BYTES, None
    for tile in TILES:
        step = tile.keys * (inner + columns + 2 * tile.queries)
        used = 4 * (tile.queries * (inner + 3) + depth * step)
        if used > room or tile.threads > target.properties.max_threads:
            continue
        chosen = tile
        if -(-rows // tile.queries) >= MIN_BLOCKS:
            break
    return chosen


def _columns(a: _Attention) -> str:
    """The axis of `out` over the columns of values: the one that no weight has."""
    (read,) = (one for one in a.out.reads if one.tensor == a.weights.name)
    used = {name for part in read.index for name, _ in part.terms}
    (columns,) = (name for name in a.out.axes if name not in used)
    return columns


def _apply(s: Schedule, a: _Attention, tile: AttentionTile, depth: int) -> None:
    out, columns, threads = a.out.name, _columns(a), tile.threads
    batch = tuple(name for name in a.out.axes if name not in (a.axis, columns))
    block, inside = s.split(out, a.axis, tile.queries)
    row, own_row = s.split(out, inside, tile.own_queries)
    own_column, column = s.split(out, columns, COLUMNS)
    step, key = s.split(out, a.keys, tile.keys)
    s.reorder(out, *batch, block, step, row, column, key, own_row, own_column)
    s.bind(out, block, "block.x")
    if batch:
        s.bind(out, s.fuse(out, *batch), "block.y")
    s.bind(out, row, "thread")
    s.bind(out, column, "thread")
    s.unroll(out, own_row, own_column)
    _products(s, a, tile, step)
    for stage in a.copies:
        s.compute_at(stage.name, out, block)
        s.set_scope(stage.name, SHARED)
        copy_together(s, stage.name, threads, 1)
    if depth > 1:
        s.pipeline(out, step, depth)
    for tensor, reader in _operands(a):
        copy = s.cache_read(tensor, SHARED, reader)
        s.compute_at(copy, out, step)
        if reader != a.scores.name:
            s.precede(copy, a.scores.name)
        size = np.dtype(s.kernel.tensors[tensor].dtype).itemsize
        copy_together(s, copy, threads, VECTOR_BYTES // size)


def _products(s: Schedule, a: _Attention, tile: AttentionTile, step: str) -> None:
    """Compute the scores of a step's keys, and carry the maximum and the mass along."""
    out, scores = a.out.name, a.scores.name
    s.carry(a.mass.name, out, step)
    s.compute_at(a.weights.name, out, step)
    s.carry(a.most.name, out, step)
    s.compute_at(scores, out, step)
    for stage in (a.scores, a.most, a.weights, a.mass):
        s.set_scope(stage.name, SHARED)
    *batch, keys, queries = a.scores.axes
    across = min(COLUMNS, tile.queries)
    own_query, query = s.split(scores, queries, across)
    key, own_key = s.split(scores, keys, max(1, tile.keys * across // tile.threads))
    s.reorder(scores, *batch, key, query, a.scores.reductions[0].name, own_key, own_query)
    s.bind(scores, key, "thread")
    s.bind(scores, query, "thread")
    s.unroll(scores, own_key, own_query)
    _, one = s.split(a.weights.name, s.fuse(a.weights.name, *a.weights.axes), tile.threads)
    s.bind(a.weights.name, one, "thread")
    for stage in (a.most, a.mass):
        s.bind(stage.name, stage.axes[-1], "thread")
        s.unroll(stage.name, stage.reductions[0].name)


def _operands(a: _Attention) -> Iterator[tuple[str, str]]:
    """The keys and the values, with the stages that read them."""
    inner = a.scores.reductions[0].name
    made = {one.name for one in (*a.copies, a.weights, a.mass)}
    for stage, axis in ((a.scores, inner), (a.out, a.keys)):
        for read in reads_of(reduction_of(stage.body)):
            moved = any(part.coefficient(axis) for part in read.index)
            if moved and read.tensor not in made:
                yield read.tensor, stage.name

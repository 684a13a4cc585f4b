"""Default schedules of kernels for GPUs, from their declarations alone.

A product of matrices is tiled: by tensor cores where its types and its reduction fit, otherwise by
threads that each keep a square of sums. Its rows may be pixels of an image, in rectangles of it.
Stages that compute the same rows, as a softmax does, share a block for each row: so do the parts of
a long sum. Attention is one kernel, whatever its length. Every other stage
gives each element to a thread.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...aligned import round_up
from ...isa.expressions import Call, Op, Read
from ..te.affine import variable
from ..te.reductions import has_reduction, reduction_of
from ..te.schedule import Schedule
from ..te.stages import Stage
from ..te.target import SHARED
from ..tensor import Kernel
from .attention import schedule_attention
from .block_schedules import copy_together, give_to_warps
from .blocks import LINE_BYTES, is_copy
from .instructions import WARP_THREADS, WIDE, WarpProduct
from .products import MIN_TILED
from .target import GpuTarget

FLAT_THREADS = 128
"""Threads of a block that computes elements one by one."""


ROW_THREADS = 256
"""Threads of a block that computes a row."""

MAX_ROW_BYTES = 48 << 10
"""Maximum size of the stages of a row, in bytes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a product that a block computes, and what each warp or thread computes of it."""

    rows: int
    columns: int
    taps: int
    own_rows: int
    own_columns: int


TENSOR_TILES = (Tile(128, 128, 64, 64, 32), Tile(64, 64, 64, 32, 32), Tile(32, 32, 32, 16, 16))
"""Tiles of tensor cores, the largest first; taps are those of two bytes, twice as many of one."""

GROUP_TILES = (
    Tile(128, 256, 64, 64, 256), Tile(128, 128, 64, 64, 128), Tile(64, 128, 64, 64, 128),
    Tile(64, 64, 64, 64, 64),
)  # fmt: skip
"""Tiles of warpgroups, whose products have 64 rows."""

THREAD_TILES = (Tile(64, 64, 16, 4, 4), Tile(32, 32, 16, 4, 2), Tile(16, 16, 16, 2, 1))
"""Tiles of threads without tensor cores."""

PIPELINE_DEPTH, GROUP_DEPTH = 3, 4
"""Iterations whose operands are in shared memory: one that computes, others on their way.

A warpgroup multiplies faster, so its copies start earlier.
"""

MIN_BLOCKS = 64
"""Blocks that a tile must leave: a GPU runs about a hundred at once."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A stage as a product of matrices: its axes, and the operands.

    Parameters
    ----------
    rows
        One axis, or two whose rectangles are the rows of a tile.
    outer, taps
        The reduction: `taps` innermost, `outer` around it.
    """

    rows: tuple[str, ...]
    columns: str
    batch: tuple[str, ...]
    outer: tuple[str, ...]
    taps: str
    a: Read
    b: Read
    sizes: Mapping[str, int]

    def size(self, *axes: str) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    @property
    def high(self) -> int:
        """Most rows of a tile."""
        first = self.sizes[self.rows[0]]
        return first if len(self.rows) == 1 else WIDE * first


def default_schedule(kernel: Kernel, target: GpuTarget) -> Schedule:
    """A schedule that runs any kernel; every nest at the root is a kernel of the GPU."""
    schedule = Schedule(kernel, target)
    if schedule_attention(schedule, target):
        return schedule
    if leading := _row_axes(schedule, target.properties.shared_bytes):
        _rows(schedule, leading)
        return schedule
    for stage in reversed(schedule.stages):  # a product takes its copies along
        if next(one for one in schedule.stages if one.name == stage.name).place is not None:
            continue
        product = _product(stage)
        if product is None:
            _flat(schedule, stage)
        elif (law := _law(product, schedule, target)) is not None:
            _tensor_cores(schedule, stage, product, law)
        else:
            _tiled(schedule, stage, product)
    return schedule


def _flat(schedule: Schedule, stage: Stage) -> None:
    name = stage.name
    loop = schedule.fuse(name, *stage.axes)
    outer, inner = schedule.split(name, loop, FLAT_THREADS)
    schedule.bind(name, outer, "block.x")
    schedule.bind(name, inner, "thread")


def _row_axes(schedule: Schedule, shared_bytes: int) -> int:
    """The leading axes of all stages whose rows follow from the same rows of others, all short.

    It is 0 where stages have other shapes.
    """
    *others, out = schedule.stages
    ranks = {len(stage.axes) for stage in others}
    reduced = any(stage.reductions for stage in others)
    if len(ranks) != 1 or not reduced or any(map(_product, schedule.stages)):
        return 0
    leading = ranks.pop() - 1
    if not 0 <= len(out.axes) - leading <= 1:
        return 0
    names, used = {stage.name for stage in others}, 0
    for stage in schedule.stages:
        mine = tuple(map(variable, stage.axes[:leading]))
        if any(read.index[:leading] != mine for read in stage.reads if read.tensor in names):
            return 0
        if stage.domain[:leading] != out.domain[:leading]:
            return 0
        elements = math.prod(high - low for low, high in stage.domain[leading:])
        used += round_up(elements * np.dtype(stage.output.dtype).itemsize, LINE_BYTES)
    return leading if used <= min(MAX_ROW_BYTES, shared_bytes) else 0


def _rows(schedule: Schedule, leading: int) -> None:
    """Each block computes one row; its threads share what each stage has of it."""
    *others, out = schedule.stages
    rows = schedule.fuse(out.name, *out.axes[:leading])
    schedule.bind(out.name, rows, "block.x")
    widest = max(high - low for stage in schedule.stages for low, high in stage.domain[leading:])
    threads = min(ROW_THREADS, round_up(widest, 32))
    for stage in reversed(others):
        schedule.compute_at(stage.name, out.name, rows)
        schedule.set_scope(stage.name, SHARED)
    for stage in schedule.stages:
        for axis in stage.axes[leading:]:
            _, inner = schedule.split(stage.name, axis, threads)
            schedule.bind(stage.name, inner, "thread")


def _product(stage: Stage) -> _Product | None:
    """The stage as a product, if each axis moves one operand, or both as a batch."""
    if not has_reduction(stage.body):
        return None
    reduction = reduction_of(stage.body)
    product = reduction.body
    if reduction.op is not Op.ADD or not isinstance(product, Call) or product.op is not Op.MULTIPLY:
        return None
    a, b = product.arguments
    if not (isinstance(a, Read) and isinstance(b, Read)):
        return None
    sizes = {n: high - low for n, (low, high) in zip(stage.axes, stage.domain, strict=True)}
    sizes |= {axis.name: axis.extent for axis in stage.reductions}
    moved = [[axis for part in read.index for axis, _ in part.terms] for read in (a, b)]
    *outer, taps = (axis.name for axis in stage.reductions)
    plain = all(
        len(part.terms) <= 1 and all(step == 1 for _, step in part.terms)
        for read in (a, b)
        for part in read.index
    )
    if not all(taps in names for names in moved) or (outer and not plain):
        return None
    only_a, only_b = (
        [axis for axis in own if axis in stage.axes and axis not in others and sizes[axis] > 1]
        for own, others in (moved, reversed(moved))
    )
    if not only_a or len(only_b) != 1:
        return None
    rows = tuple(only_a[-1:])
    if plain and len(only_a) > 1 and WIDE <= sizes[only_a[-1]] < WIDE * sizes[only_a[-2]]:
        rows = tuple(only_a[-2:])
    (columns,) = only_b
    batch = tuple(axis for axis in stage.axes if axis not in (*rows, columns))
    found = _Product(rows, columns, batch, tuple(outer), taps, a, b, sizes)
    extents = found.size(*rows), sizes[columns], found.size(*outer, taps)
    return found if min(extents) >= MIN_TILED else None


def _law(product: _Product, schedule: Schedule, target: GpuTarget) -> WarpProduct | None:
    """The product of tensor cores that fits: whole taps, side by side in both operands.

    Sums of a warp may lie beyond the end of the rows, but a warpgroup is for whole ones.
    """
    tensors = {**schedule.kernel.tensors}
    types = tuple(tensors[read.tensor].dtype for read in (product.a, product.b))
    for read in (product.a, product.b):
        *outer, last = read.index
        if last.terms != ((product.taps, 1),) or last.constant:
            return None
        if any(part.coefficient(product.taps) for part in outer):
            return None
    for law in target.instructions:
        whole = product.sizes[product.taps] % law.taps == 0 and product.high >= law.rows
        if types in law.pairs and whole:
            return law
    return None


def _tile(tiles: tuple[Tile, ...], product: _Product) -> Tile:
    """The largest tile that leaves enough blocks; else the smallest. None exceeds the product."""
    rows, columns = product.size(*product.rows), product.sizes[product.columns]
    chosen = tiles[-1]
    for tile in tiles:
        blocks = -(-rows // tile.rows) * -(-columns // tile.columns)
        if blocks * product.size(*product.batch) >= MIN_BLOCKS:
            chosen = tile
            break
    high, wide = _halved(chosen.rows, product.high), _halved(chosen.columns, columns)
    own = min(chosen.own_rows, high), min(chosen.own_columns, wide)
    return Tile(high, wide, chosen.taps, *own)


def _halved(size: int, most: int) -> int:
    """A size, halved until it is at most `most`."""
    while size > most:
        size //= 2
    return size


def _cut_rows(
    schedule: Schedule, name: str, product: _Product, tile: Tile
) -> tuple[list[str], str, list[str], int]:
    """Cut the rows into tiles.

    Returns
    -------
    The loops over tiles; the loop that is still to be cut, over rows of a tile; further loops over
    rows, inside of it; and how many rows these are.
    """
    *first, last = product.rows
    if not first:
        outer, rows = schedule.split(name, last, tile.rows)
        return [outer], rows, [], 1
    down, rows = schedule.split(name, first[0], tile.rows // WIDE)
    across, row = schedule.split(name, last, WIDE)
    return [down, across], rows, [row], WIDE


def _grid(
    schedule: Schedule, name: str, product: _Product, rows: Sequence[str], columns: str
) -> None:
    """Bind the blocks: columns along x, rows along y, the batch along z."""
    schedule.bind(name, columns, "block.x")
    schedule.bind(name, schedule.fuse(name, *rows), "block.y")
    if product.batch:
        schedule.bind(name, schedule.fuse(name, *product.batch), "block.z")


def _copies(
    schedule: Schedule, name: str, product: _Product, loop: str, threads: int, most: int
) -> None:
    """Let all threads of a block copy what an iteration of a loop reads, up to `most` at once."""
    for tensor in dict.fromkeys((product.a.tensor, product.b.tensor)):
        made = {stage.name: stage for stage in schedule.stages}.get(tensor)
        if made is not None and is_copy(made.body) and _readers(schedule, tensor) == [name]:
            copy = tensor
            schedule.set_scope(copy, SHARED)
        else:
            copy = schedule.cache_read(tensor, SHARED, name)
        schedule.compute_at(copy, name, loop)
        copy_together(schedule, copy, threads, most)


def _readers(schedule: Schedule, tensor: str) -> list[str]:
    return [one.name for one in schedule.stages if any(r.tensor == tensor for r in one.reads)]


def _tiled(schedule: Schedule, stage: Stage, product: _Product) -> None:
    """Each thread keeps a square of sums; operands pass through shared memory."""
    name, tile = stage.name, _tile(THREAD_TILES, product)
    ro, ri, inside, wide = _cut_rows(schedule, name, product, tile)
    own = min(tile.own_rows, tile.rows // wide)
    co, ci = schedule.split(name, product.columns, tile.columns)
    to, ti = schedule.split(name, product.taps, tile.taps)
    row, own_row = schedule.split(name, ri, own)
    # Neighbouring threads read neighbouring columns, and each thread columns far from each other.
    own_column, column = schedule.split(name, ci, tile.columns // tile.own_columns)
    outer = (*product.batch, *ro, co, *product.outer, to)
    schedule.reorder(name, *outer, row, *inside, column, ti, own_row, own_column)
    _grid(schedule, name, product, ro, co)
    for loop in (row, *inside, column):
        schedule.bind(name, loop, "thread")
    schedule.unroll(name, own_row, own_column)
    threads = (tile.rows // own) * (tile.columns // tile.own_columns)
    _copies(schedule, name, product, schedule.fuse(name, *product.outer, to), threads, 1)


def _tensor_cores(schedule: Schedule, stage: Stage, product: _Product, law: WarpProduct) -> None:
    """Give each warp or warpgroup tiles of sums, kept in the fragments of an instruction."""
    tiles, pipelined = (
        (GROUP_TILES, GROUP_DEPTH) if law.reads_shared else (TENSOR_TILES, PIPELINE_DEPTH)
    )
    name, tile = stage.name, _tile(tiles, product)
    taps, depth = law.taps, product.sizes[product.taps]
    while taps * 2 <= tile.taps * law.taps // 16 and depth % (taps * 2) == 0:
        taps *= 2
    ro, ri, inside, wide = _cut_rows(schedule, name, product, tile)
    co, ci = schedule.split(name, product.columns, tile.columns)
    to, ti = schedule.split(name, product.taps, taps)
    outer = (*product.batch, *ro, co, *product.outer, to)
    own = (ri, tile.own_rows), (ci, tile.own_columns)
    half = give_to_warps(schedule, name, outer, *own, ti, law, tuple(inside), wide)
    _grid(schedule, name, product, ro, co)
    loop = schedule.fuse(name, *product.outer, to)
    if product.size(*product.outer, product.taps) > taps:
        schedule.pipeline(name, loop, pipelined)
    units = (tile.rows // tile.own_rows) * (tile.columns // tile.own_columns)
    threads = WARP_THREADS * law.warps * units
    _copies(schedule, name, product, loop, threads, law.taps // 2)
    schedule.tensorise(name, half)

"""Default schedules of kernels for GPUs, from their declarations alone.

A product of matrices is tiled: by tensor cores where its types and its reduction fit, otherwise by
threads that each keep a square of sums. Every other stage gives each element to a thread.
"""

from dataclasses import dataclass

from ...isa.expressions import Call, Op, Read
from ..te.reductions import has_reduction, reduction_of
from ..te.schedule import Schedule
from ..te.stages import Stage
from ..te.target import SHARED
from ..tensor import Kernel
from .instructions import WarpProduct
from .target import GpuTarget

FLAT_THREADS = 128
"""Threads of a block that computes elements one by one."""

MIN_TILED = 16
"""Least rows, columns and taps of a product that is tiled."""


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

THREAD_TILES = (Tile(64, 64, 16, 4, 4), Tile(32, 32, 16, 4, 2), Tile(16, 16, 16, 2, 1))
"""Tiles of threads without tensor cores."""

PIPELINE_DEPTH = 3
"""Iterations whose operands are in shared memory: one that computes, and two on their way."""

MIN_BLOCKS = 64
"""Blocks that a tile must leave: a GPU runs about a hundred at once."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A stage as a product of matrices: its axes, and the operands."""

    rows: str
    columns: str
    batch: tuple[str, ...]
    taps: str
    a: Read
    b: Read
    extents: tuple[int, int, int]


def default_schedule(kernel: Kernel, target: GpuTarget) -> Schedule:
    """A schedule that runs any kernel; every nest at the root is a kernel of the GPU."""
    schedule = Schedule(kernel, target)
    for stage in schedule.stages:
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
    first, *others = stage.axes
    loop = schedule.fuse(name, first, *others)
    outer, inner = schedule.split(name, loop, FLAT_THREADS)
    schedule.bind(name, outer, "block.x")
    schedule.bind(name, inner, "thread")


def _product(stage: Stage) -> _Product | None:
    """The stage as a product, if each axis moves one operand, or both as a batch."""
    if not has_reduction(stage.body) or len(stage.reductions) != 1:
        return None
    reduction = reduction_of(stage.body)
    product = reduction.body
    if reduction.op is not Op.ADD or not isinstance(product, Call) or product.op is not Op.MULTIPLY:
        return None
    a, b = product.arguments
    if not (isinstance(a, Read) and isinstance(b, Read)):
        return None
    sizes = {n: high - low for n, (low, high) in zip(stage.axes, stage.domain, strict=True)}
    moved = [{axis for part in read.index for axis, _ in part.terms} for read in (a, b)]
    taps = stage.reductions[0]
    if not all(taps.name in names for names in moved):
        return None
    only_a = [axis for axis in stage.axes if axis in moved[0] - moved[1] and sizes[axis] > 1]
    only_b = [axis for axis in stage.axes if axis in moved[1] - moved[0] and sizes[axis] > 1]
    if len(only_a) != 1 or len(only_b) != 1:
        return None
    rows, columns = only_a[0], only_b[0]
    extents = sizes[rows], sizes[columns], taps.extent
    if min(extents) < MIN_TILED:
        return None
    batch = tuple(axis for axis in stage.axes if axis not in (rows, columns))
    return _Product(rows, columns, batch, taps.name, a, b, extents)


def _law(product: _Product, schedule: Schedule, target: GpuTarget) -> WarpProduct | None:
    """The product of tensor cores that fits: whole taps, side by side in both operands."""
    tensors = {**schedule.kernel.tensors}
    types = tuple(tensors[read.tensor].dtype for read in (product.a, product.b))
    for read in (product.a, product.b):
        *outer, last = read.index
        if last.terms != ((product.taps, 1),) or last.constant:
            return None
        if any(part.coefficient(product.taps) for part in outer):
            return None
        if tensors[read.tensor].shape[-1] != product.extents[2]:
            return None
    for law in target.instructions:
        if types in law.pairs and product.extents[2] % law.taps == 0:
            return law
    return None


def _tile(tiles: tuple[Tile, ...], product: _Product) -> Tile:
    """The largest tile that leaves enough blocks; else the smallest. None exceeds the product."""
    rows, columns, _ = product.extents
    chosen = tiles[-1]
    for tile in tiles:
        if -(-rows // tile.rows) * -(-columns // tile.columns) >= MIN_BLOCKS:
            chosen = tile
            break
    high, wide = _halved(chosen.rows, rows), _halved(chosen.columns, columns)
    own = min(chosen.own_rows, high), min(chosen.own_columns, wide)
    return Tile(high, wide, chosen.taps, *own)


def _halved(size: int, most: int) -> int:
    """A size, halved until it is at most `most`."""
    while size > most:
        size //= 2
    return size


def _grid(schedule: Schedule, name: str, product: _Product, outer: tuple[str, str]) -> None:
    """Bind the blocks: columns along x, rows along y, the batch along z."""
    for loop, unit in zip(outer, ("block.y", "block.x"), strict=True):
        schedule.bind(name, loop, unit)
    if product.batch:
        first, *others = product.batch
        schedule.bind(name, schedule.fuse(name, first, *others), "block.z")


def _copies(
    schedule: Schedule, name: str, product: _Product, loop: str, threads: int, vector: int
) -> None:
    """Let all threads of a block copy what an iteration of a loop reads."""
    for tensor in dict.fromkeys((product.a.tensor, product.b.tensor)):
        copy = schedule.cache_read(tensor, SHARED, name)
        schedule.compute_at(copy, name, loop)
        stage = next(one for one in schedule.stages if one.name == copy)
        *outer, last = stage.loops
        if vector > 1:
            last, lanes = schedule.split(copy, last, vector)
        fused = schedule.fuse(copy, *outer, last)
        _, inner = schedule.split(copy, fused, threads)
        schedule.bind(copy, inner, "thread")
        if vector > 1:
            schedule.vectorise(copy, lanes)


def _tiled(schedule: Schedule, stage: Stage, product: _Product) -> None:
    """Each thread keeps a square of sums; operands pass through shared memory."""
    name, tile = stage.name, _tile(THREAD_TILES, product)
    ro, ri = schedule.split(name, product.rows, tile.rows)
    co, ci = schedule.split(name, product.columns, tile.columns)
    to, ti = schedule.split(name, product.taps, tile.taps)
    row, own_row = schedule.split(name, ri, tile.own_rows)
    # Neighbouring threads read neighbouring columns, and each thread columns far from each other.
    own_column, column = schedule.split(name, ci, tile.columns // tile.own_columns)
    schedule.reorder(name, *product.batch, ro, co, to, row, column, ti, own_row, own_column)
    _grid(schedule, name, product, (ro, co))
    for loop in (row, column):
        schedule.bind(name, loop, "thread")
    schedule.unroll(name, own_row, own_column)
    threads = (tile.rows // tile.own_rows) * (tile.columns // tile.own_columns)
    _copies(schedule, name, product, to, threads, 1)


def _tensor_cores(schedule: Schedule, stage: Stage, product: _Product, law: WarpProduct) -> None:
    """Each warp keeps tiles of sums in the fragments of an instruction."""
    name, tile = stage.name, _tile(TENSOR_TILES, product)
    taps = law.taps
    while taps * 2 <= tile.taps * law.taps // 16 and product.extents[2] % (taps * 2) == 0:
        taps *= 2
    ro, ri = schedule.split(name, product.rows, tile.rows)
    co, ci = schedule.split(name, product.columns, tile.columns)
    to, ti = schedule.split(name, product.taps, taps)
    row_warp, ri = schedule.split(name, ri, tile.own_rows)
    column_warp, ci = schedule.split(name, ci, tile.own_columns)
    step, tap = schedule.split(name, ti, law.taps)
    down, ri = schedule.split(name, ri, 16)
    across, ci = schedule.split(name, ci, 8)
    half, row = schedule.split(name, ri, 8)
    pair, column = schedule.split(name, ci, 2)
    inside = (row_warp, column_warp, step, down, across, half, row, pair, column, tap)
    schedule.reorder(name, *product.batch, ro, co, to, *inside)
    _grid(schedule, name, product, (ro, co))
    for loop in (row_warp, column_warp, row, pair):
        schedule.bind(name, loop, "thread")
    schedule.unroll(name, step, down, across, half, column)
    if product.extents[2] > taps:
        schedule.pipeline(name, to, PIPELINE_DEPTH)
    warps = (tile.rows // tile.own_rows) * (tile.columns // tile.own_columns)
    _copies(schedule, name, product, to, 32 * warps, law.taps // 2)
    schedule.tensorise(name, half)

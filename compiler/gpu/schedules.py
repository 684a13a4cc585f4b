"""Default schedules of kernels for GPUs, from their declarations alone.

A product of matrices is tiled: by tensor cores where its types and its reduction fit, otherwise by
threads that each keep a square of sums. Its rows may be pixels of an image, in rectangles of it.
Stages that compute the same rows, as a softmax does, share a block for each row: so do the parts of
a long sum. Attention is one kernel, whatever its length. Every other stage
gives each element to a thread.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...aligned import round_up
from ..cpu.kernels.choices import Choices
from ..te.affine import variable
from ..te.schedule import Schedule
from ..te.stages import Stage
from ..te.target import SHARED
from ..tensor import Kernel
from .attention import schedule_attention
from .block_schedules import copy_together, give_to_warps
from .blocks import LINE_BYTES, is_copy
from .instructions import WIDE
from .product_plans import ProductAxes, ProductPlan, Tile, find_product, plan_product
from .products import MIN_TILED
from .target import GpuTarget

FLAT_THREADS = 128
"""Threads of a block that computes elements one by one."""


ROW_THREADS = 256
"""Threads of a block that computes a row."""

MAX_ROW_BYTES = 48 << 10
"""Maximum size of the stages of a row, in bytes."""


def default_schedule(kernel: Kernel, target: GpuTarget, choices: Choices | None = None) -> Schedule:
    """A schedule that runs any kernel; every nest at the root is a kernel of the GPU.

    Parameters
    ----------
    choices
        Answers to the questions of `plan_product` for the kernel's product.

    Raises
    ------
    CompileError
        For an answer that is not legal.
    """
    choices = choices or Choices()
    schedule = Schedule(kernel, target)
    if schedule_attention(schedule, target):
        return schedule
    if leading := _row_axes(schedule, target.properties.shared_bytes):
        _rows(schedule, leading)
        return schedule
    for stage in reversed(schedule.stages):  # a product takes its copies along
        if _stage(schedule, stage.name).place is not None:
            continue
        product = find_product(stage, MIN_TILED)
        if product is None:
            _flat(schedule, stage)
            continue
        plan = plan_product(product, kernel.tensors, target, choices)
        if plan.split:
            parts = schedule.split_reduction(stage.name, *plan.split)
            _flat(schedule, _stage(schedule, stage.name))
            stage = _stage(schedule, parts)
            product = find_product(stage, 1)
            assert product is not None
            plan = replace(plan, product=product)
        _planned(schedule, stage.name, plan)
    return schedule


def product_plan(kernel: Kernel, target: GpuTarget, choices: Choices) -> ProductPlan | None:
    """The plan of the product for which `default_schedule` asks first; None without one."""
    for stage in reversed(Schedule(kernel, target).stages):
        if (product := find_product(stage, MIN_TILED)) is not None:
            return plan_product(product, kernel.tensors, target, choices)
    return None


def _stage(schedule: Schedule, name: str) -> Stage:
    return next(stage for stage in schedule.stages if stage.name == name)


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
    if (
        len(ranks) != 1
        or not reduced
        or any(find_product(stage, MIN_TILED) for stage in schedule.stages)
    ):
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


def _cut_rows(
    schedule: Schedule, name: str, product: ProductAxes, tile: Tile
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
    schedule: Schedule, name: str, plan: ProductPlan, rows: Sequence[str], columns: str
) -> None:
    """Bind the blocks: columns along x, rows along y, the batch along z; or groups along x."""
    down = schedule.fuse(name, *rows)
    if plan.group > 1:
        outer, inner = schedule.split(name, down, plan.group)
        schedule.reorder(name, outer, columns, inner)
        schedule.bind(name, schedule.fuse(name, outer, columns, inner), "block.x")
    else:
        schedule.bind(name, columns, "block.x")
        schedule.bind(name, down, "block.y")
    if plan.product.batch:
        schedule.bind(name, schedule.fuse(name, *plan.product.batch), "block.z")


def _copies(schedule: Schedule, name: str, plan: ProductPlan, loop: str, most: int) -> None:
    """Let all threads of a block copy what an iteration of a loop reads, up to `most` at once."""
    if plan.depth > 1:
        schedule.pipeline(name, loop, plan.depth)
    for tensor in dict.fromkeys((plan.product.a.tensor, plan.product.b.tensor)):
        made = {stage.name: stage for stage in schedule.stages}.get(tensor)
        if made is not None and is_copy(made.body) and _readers(schedule, tensor) == [name]:
            copy = tensor
            schedule.set_scope(copy, SHARED)
        else:
            copy = schedule.cache_read(tensor, SHARED, name)
        schedule.compute_at(copy, name, loop)
        copy_together(schedule, copy, plan.threads, most)


def _readers(schedule: Schedule, tensor: str) -> list[str]:
    return [one.name for one in schedule.stages if any(r.tensor == tensor for r in one.reads)]


def _planned(schedule: Schedule, name: str, plan: ProductPlan) -> None:
    """Tile a product for thread blocks, whose operands pass through shared memory."""
    product, tile = plan.product, plan.tile
    ro, ri, inside, wide = _cut_rows(schedule, name, product, tile)
    co, ci = schedule.split(name, product.columns, tile.columns)
    to, ti = schedule.split(name, product.taps, plan.taps)
    outer = (*product.batch, *ro, co, *product.outer, to)
    if plan.law is None:
        _give_to_threads(schedule, name, plan, (outer, ri, inside, ci, ti), wide)
        half, most = None, 1
    else:
        # Each warp or warpgroup has tiles of sums, kept in the fragments of an instruction.
        own = (ri, tile.own_rows), (ci, tile.own_columns)
        half = give_to_warps(schedule, name, outer, *own, ti, plan.law, tuple(inside), wide)
        most = plan.law.taps // 2
    _grid(schedule, name, plan, ro, co)
    _copies(schedule, name, plan, schedule.fuse(name, *product.outer, to), most)
    if half is not None:
        schedule.tensorise(name, half)


def _give_to_threads(
    schedule: Schedule,
    name: str,
    plan: ProductPlan,
    loops: tuple[tuple[str, ...], str, list[str], str, str],
    wide: int,
) -> None:
    """Let each thread keep a square of sums."""
    tile, (outer, ri, inside, ci, ti) = plan.tile, loops
    row, own_row = schedule.split(name, ri, min(tile.own_rows, tile.rows // wide))
    # Neighbouring threads read neighbouring columns, and each thread columns far from each other.
    own_column, column = schedule.split(name, ci, tile.columns // tile.own_columns)
    schedule.reorder(name, *outer, row, *inside, column, ti, own_row, own_column)
    for loop in (row, *inside, column):
        schedule.bind(name, loop, "thread")
    schedule.unroll(name, own_row, own_column)

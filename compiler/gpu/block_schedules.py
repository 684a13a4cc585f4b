"""Parts of schedules for a block: copies by all of its threads, and products by its warps."""

import math
from collections.abc import Sequence

from ..te.schedule import Schedule
from ..te.stages import Stage
from ..tensor import Kernel
from .instructions import WarpProduct


def copy_together(schedule: Schedule, copy: str, threads: int, most: int) -> None:
    """Let all threads of a block run a copy, each up to `most` elements at once."""
    stage = next(one for one in schedule.stages if one.name == copy)
    *outer, last = stage.loops
    vector = _vector(stage, schedule.kernel, most)
    if vector > 1:
        last, lanes = schedule.split(copy, last, vector)
    fused = schedule.fuse(copy, *outer, last)
    _, inner = schedule.split(copy, fused, threads)
    schedule.bind(copy, inner, "thread")
    if vector > 1:
        schedule.vectorise(copy, lanes)


def _vector(copy: Stage, kernel: Kernel, most: int) -> int:
    """The most elements that a copy may move at once: side by side, and none across an end."""
    (read,) = copy.reads
    *outer, last = read.index
    axis = copy.axes[-1]
    if last.coefficient(axis) != 1 or any(part.coefficient(axis) for part in outer):
        return 1
    ends = (kernel.tensors[read.tensor].shape[-1], last.constant)
    return math.gcd(most, *ends, *(step for name, step in last.terms if name != axis))


def give_to_warps(
    schedule: Schedule,
    name: str,
    outer: tuple[str, ...],
    rows: tuple[str, int],
    columns: tuple[str, int],
    taps: str,
    law: WarpProduct,
    inside: tuple[str, ...] = (),
    wide: int = 1,
) -> str:
    """Give each warp, or warpgroup, tiles of sums in the fragments of an instruction.

    Parameters
    ----------
    outer
        Loops around, which stay as they are.
    rows, columns
        Loops over rows and columns, and what a warp or warpgroup has of them.
    inside, wide
        A second loop over rows, which is that of an instruction, and its extent.

    Returns
    -------
    The outermost loop of the instruction.
    """
    row_warp, down = schedule.split(name, rows[0], rows[1] // wide)
    column_warp, across = schedule.split(name, *columns)
    step, tap = schedule.split(name, taps, law.taps)
    sizes = [size for _, size in law.row_parts]
    down, *row_parts = _cut(schedule, name, down, sizes[:-1] if inside else sizes)
    across, *column_parts = _cut(schedule, name, across, [size for _, size in law.column_parts])
    around = (*outer, row_warp, column_warp, step, down, across)
    parts = (*row_parts, *inside, *column_parts, tap)
    schedule.reorder(name, *around, *parts)
    named = dict(zip((each for each, _ in law.lanes), parts, strict=True))
    for loop in (row_warp, column_warp, *(named[each] for each in law.bound)):
        schedule.bind(name, loop, "thread")
    own = [loop for each, loop in named.items() if each not in (*law.bound, "tap")]
    schedule.unroll(name, step, down, across, *own)
    return parts[0]


def _cut(schedule: Schedule, name: str, loop: str, sizes: Sequence[int]) -> list[str]:
    """Split off loops of these extents, outermost first; the first result is what is left."""
    found = []
    for place in range(len(sizes)):
        outer, loop = schedule.split(name, loop, math.prod(sizes[place:]))
        found.append(outer)
    return [*found, loop]

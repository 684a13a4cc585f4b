"""Schedules of copies into shared memory: all threads of a block take part."""

import math

from ..te.schedule import Schedule
from ..te.stages import Stage
from ..tensor import Kernel


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

"""A schedule for any kernel on a processor: threads share the outer axis, vectors the inner one."""

from ...errors import CompileError
from ..te.loop_steps import Parallelise, Reorder, Split, Vectorise
from ..te.schedule import Schedule
from ..te.steps import Step
from ..tensor import Compute, Kernel
from .processor import Processor

LANES = 32
"""Elements that are computed side by side."""


def schedule_loops(kernel: Kernel, processor: Processor) -> Schedule:
    """A schedule of plain loops, each stage in the first of the ways below that it allows."""
    schedule = Schedule(kernel, processor)
    for stage in kernel.stages:
        for steps in _ways(stage):
            tried = Schedule(kernel, processor)
            try:
                tried.apply(*schedule.steps, *steps)
                tried.program()
            except CompileError:
                continue
            schedule = tried
            break
    return schedule


def _ways(stage: Compute) -> list[list[Step]]:
    """Sums run outside the vector, so that each lane adds in the order of the declaration."""
    name, long = stage.output.name, [axis for axis in stage.axes if axis.extent > 1]
    if not long:
        return []
    inner, sums = long[-1].name, [axis.name for axis in stage.reductions]
    vector: list[Step] = [Split(name, inner, min(LANES, long[-1].extent))]
    if sums:
        outer = [axis.name for axis in stage.axes if axis.name != inner]
        vector += [Reorder(name, (*outer, f"{inner}.o", *sums, f"{inner}.i"))]
    vector += [Vectorise(name, f"{inner}.i")]
    shared: list[Step] = [Parallelise(name, long[0].name)] if len(long) > 1 else []
    return [[*vector, *shared], vector, shared]

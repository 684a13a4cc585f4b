"""Choose schedules again by the cycles of the whole program, in which results stay on chip.

`scheduling.refine` times kernels whose operands and results pass main memory. Without these
transfers, other tiles may be faster.
"""

from contextlib import suppress
from dataclasses import replace

from ...errors import CompileError
from ..accelerator.residents import frames_of
from ..graph import Graph
from ..scheduling.candidate_timer import CandidateTimer
from ..scheduling.issue_order import issue
from ..scheduling.refine import other_schedules
from .lower import lower
from .request import CompileRequest, Lowered, ScheduledLayer
from .schedule import addresses, timer_for

MAX_LOWERED = 6_000
"""The most instructions to lower in this search, at some half a millisecond each."""


def refine_program(
    request: CompileRequest, graph: Graph, lowered: Lowered, timer: CandidateTimer
) -> Lowered:
    """Return the fastest program found by changing one schedule at a time.

    Programs are compared with their loads in order.

    Parameters
    ----------
    lowered
        A program with activations that stay on chip.
    timer
        Has chosen its schedules; those of the user stay.
    """
    if len(lowered.stream) > MAX_LOWERED:
        return lowered
    machine, layout = request.configuration, lowered.scheduled.grouped.layout
    alone = timer_for(timer, machine)
    # With other schedules, values that stay on chip now may have to be stored.
    groups = [layer.group for layer in lowered.scheduled.layers]
    plan, bound = addresses(request, graph, layout, groups)
    now = replace(lowered.scheduled, plan=plan, bound=bound)
    least, left = issue(lowered.instructions, machine, timer.measure).cycles, MAX_LOWERED
    for place, layer in enumerate(now.layers):
        if layer.gap.name in request.schedules:
            continue
        for (group,) in other_schedules(layer.group, timer, request.options):
            left -= len(lowered.stream)
            if left < 0:
                return lowered
            schedules = tuple(timer.programs.schedule(*part) for part in group.work)
            gap = replace(layer.gap, cycles=alone.cycles(*group.work))
            layers = list(now.layers)
            layers[place] = ScheduledLayer(group, schedules, gap)
            scheduled = replace(now, layers=tuple(layers))
            frames = frames_of(one.program() for each in layers for one in each.schedules)
            with suppress(CompileError):
                other = next(lower(request, graph, scheduled, timer.programs.pieces, frames))
                cycles = issue(other.instructions, machine, timer.measure).cycles
                if cycles < least:
                    least, lowered, now = cycles, other, scheduled
    return lowered

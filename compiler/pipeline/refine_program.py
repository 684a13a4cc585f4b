"""Choose schedules again by the cycles of the whole program, in which results stay on chip.

`scheduling.refine` times kernels whose operands and results pass main memory. Without these
transfers, other tiles may be faster.
"""

import itertools
from contextlib import suppress
from dataclasses import replace

from ...errors import CompileError
from ..accelerator.residents import frames_of
from ..graph import Graph
from ..main_memory.segment_layout import between_kernels
from ..scheduling.candidate_timer import CandidateTimer
from ..scheduling.fusion import Group
from ..scheduling.issue_order import issue
from ..scheduling.refine import other_schedules
from .lower import lower
from .request import CompileRequest, Lowered
from .schedule import addresses, scheduled_layer, timer_for

MAX_LOWERED = 6_000
"""The most instructions to lower in this search, at some half a millisecond each."""


def refine_program(
    request: CompileRequest, graph: Graph, lowered: Lowered, timer: CandidateTimer
) -> Lowered:
    """Return the fastest program found by changing one layer at a time.

    A fused layer is divided, or a kernel gets another schedule. Programs are compared with their
    loads in order.

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
    now = lowered.scheduled
    least, left = issue(lowered.instructions, machine, timer.measure).cycles, MAX_LOWERED
    place = 0
    while place < len(now.layers):
        layer = now.layers[place]
        place += 1
        if layer.gap.name in request.schedules:
            continue
        halves = layer.group.halves if isinstance(layer.group, Group) else None
        others = other_schedules(layer.group, timer, request.options)
        for changed in itertools.chain([list(halves)] if halves else [], others):
            left -= len(lowered.stream)
            if left < 0:
                return lowered
            groups = [one.group for one in now.layers]
            groups[place - 1 : place] = changed
            on_chip = between_kernels((kernel for one in groups for kernel, _ in one.work), layout)
            layers = list(now.layers)
            layers[place - 1 : place] = [
                scheduled_layer(request, group, alone, on_chip) for group in changed
            ]
            # Values that stay on chip now, or in a fused layer, may have to be stored.
            plan, bound = addresses(request, graph, layout, groups)
            scheduled = replace(now, layers=tuple(layers), plan=plan, bound=bound)
            frames = frames_of(one.program() for each in layers for one in each.schedules)
            with suppress(CompileError):
                other = next(lower(request, graph, scheduled, timer.programs.pieces, frames))
                cycles = issue(other.instructions, machine, timer.measure).cycles
                if cycles < least:
                    least, lowered, now = cycles, other, scheduled
                    if len(changed) > 1:
                        place -= 1  # each half has schedules of its own
                        break
    return lowered

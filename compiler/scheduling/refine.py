"""Choices among neighbours: kernels overlap, so what is fastest alone is not always best.

While a kernel computes, the next one may load its weights, if its first tiles are small enough and
the scratchpads have room. So each kernel's likely schedules are timed once more between the kernels
before and after it, and so is the question whether it is fused.
"""

from collections.abc import Iterator, Sequence

from ..accelerator.search import likely_candidates
from ..options import Options
from .candidate_timer import HOPELESS, NEAR, CandidateTimer
from .fusion import Group, Movement
from .given_schedules import Part

Groups = list[Group | Movement]

WINDOW_INSTRUCTIONS = 150
"""Kernels around one are timed with it if all of them have at most this many instructions. Longer
kernels gain little from their neighbours, and timing them takes long."""

ALTERNATIVES = 8
"""Maximum number of schedules to compare for each kernel."""

PATIENCE = 1.5
"""Refinement times at most about this many times the instructions that the search has timed."""


def refine(groups: Sequence[Group | Movement], timer: CandidateTimer, options: Options) -> Groups:
    """Choose schedules and fusion by the time of the kernels around each one.

    Parameters
    ----------
    groups
        The groups of a program in order, with the schedules that are fastest alone.
    timer
        Has timed these schedules.

    Returns
    -------
    list of Group or Movement
        Groups that compute the same values, in the same order.
    """
    now = list(groups)
    most = (1 + PATIENCE) * timer.instructions
    place = 0
    while place < len(now) and timer.instructions <= most:
        first, last = _window(now, place, timer)
        before, after = now[first:place], now[place + 1 : last]
        best = [now[place]]
        if before or after:
            kernels = _work(now[first:last])
            least = timer.cycles(*kernels)
            enough = NEAR * timer.bound(*kernels)
            for other in _alternatives(now[place], timer, options):
                if least <= enough:
                    break
                cycles = timer.cycles(*_work([*before, *other, *after]))
                if cycles < least:
                    best, least = other, cycles
        now[place : place + 1] = best
        place += len(best)
    return now


def _alternatives(
    group: Group | Movement, timer: CandidateTimer, options: Options
) -> Iterator[Groups]:
    """Groups that compute the same as one, and that are not much slower alone."""
    if isinstance(group, Group) and group.halves is not None:
        yield list(group.halves)
    for index, (kernel, chosen) in enumerate(group.work):
        most = HOPELESS * timer.cycles((kernel, chosen))
        depth = options.pipeline_depth
        for candidate in likely_candidates(kernel, timer.configuration, depth, ALTERNATIVES):
            if candidate != chosen and timer.cycles((kernel, candidate)) <= most:
                work = list(group.work)
                work[index] = kernel, candidate
                yield [group.with_work(work)]


def _window(
    groups: Sequence[Group | Movement], place: int, timer: CandidateTimer
) -> tuple[int, int]:
    """Return the range of groups around one that are timed together."""
    room = WINDOW_INSTRUCTIONS - timer.instructions_of(*groups[place].work)
    first, last = place, place + 1
    grows = True
    while grows:
        grows = False
        for index in (last, first - 1):
            if 0 <= index < len(groups):
                count = timer.instructions_of(*groups[index].work)
                if count <= room:
                    room -= count
                    first, last = min(first, index), max(last, index + 1)
                    grows = True
    return first, last


def _work(groups: Sequence[Group | Movement]) -> list[Part]:
    return [part for group in groups for part in group.work]

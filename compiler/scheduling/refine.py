"""Choices among neighbours: kernels overlap, so what is fastest alone is not always best.

While a kernel computes, the next one may load its weights, if its first tiles are small enough and
the scratchpads have room. So `refine` times each kernel again between its neighbours: with its
other likely schedules and, if it is fused, as its two parts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..graph.short_names import short_name
from ..options import Options
from .candidate_timer import NEAR, CandidateTimer
from .fusion import Group, MovementGroup
from .given_schedules import Part

Groups = Sequence[Group | MovementGroup]

WINDOW_INSTRUCTIONS = 150
"""Most instructions of a kernel and the neighbours that are timed with it. Longer kernels gain
little from their neighbours and take long to time."""

SPLIT_INSTRUCTIONS = 1000
"""The same when a fused kernel is compared with its two parts: that is only one more program."""

ALTERNATIVES, TRIED = 4, 2
"""Maximum number of schedules of a kernel to time alone, and to time among its neighbours."""

SLOWEST = 1.1
"""A schedule is compared only if, alone, it takes at most this many times as long as the chosen
one."""

MAX_WORK = 2.0
"""Refinement times at most this many times as many instructions as the search did."""


def refine(
    groups: Groups,
    timer: CandidateTimer,
    options: Options,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Group | MovementGroup]:
    """Choose schedules and fusion by the time of the kernels around each one.

    Parameters
    ----------
    groups
        The groups of a program in order, with the schedules that are fastest alone.
    timer
        Has timed these schedules.
    progress
        Called with a line of text before each kernel.

    Returns
    -------
    list of Group or MovementGroup
        Groups that compute the same values, in the same order.
    """
    now = list(groups)
    most = (1 + MAX_WORK) * timer.instructions
    place = 0
    while place < len(now) and timer.instructions <= most:
        group = now[place]
        progress(f"neighbours of {short_name(group.name)}, {place + 1} of {len(now)}")
        if isinstance(group, Group) and group.halves is not None:
            halves = [group.halves]
            now[place : place + 1] = _fastest(now, place, halves, SPLIT_INSTRUCTIONS, timer)
        others = other_schedules(now[place], timer, options)
        now[place : place + 1] = _fastest(now, place, others, WINDOW_INSTRUCTIONS, timer)
        place += 1
    return now


def _fastest(
    groups: Groups, place: int, others: Iterable[Groups], most: int, timer: CandidateTimer
) -> Groups:
    """Return the fastest replacement of a group among its neighbours, or the group itself.

    Parameters
    ----------
    others
        Groups that compute the same as the one at `place`.
    most
        Instructions that are timed together.
    """
    first, last = _window(groups, place, most, timer)
    before, after = groups[first:place], groups[place + 1 : last]
    best = [groups[place]]
    if not before and not after:
        return best
    kernels = _work(groups[first:last])
    least, enough = timer.cycles(*kernels), NEAR * timer.bound(*kernels)
    for other in others:
        if least <= enough:
            break
        cycles = timer.cycles(*_work([*before, *other, *after]))
        if cycles < least:
            best, least = other, cycles
    return best


def other_schedules(
    group: Group | MovementGroup, timer: CandidateTimer, options: Options
) -> Iterator[Groups]:
    """Yield the group with other schedules: the likeliest, and those that are fast alone."""
    for index, (kernel, chosen) in enumerate(group.work):
        alone = {
            candidate: timer.cycles((kernel, candidate))
            for candidate in timer.likely(kernel, options, ALTERNATIVES)
        }
        most = SLOWEST * timer.cycles((kernel, chosen))
        others = [one for one in alone if one != chosen and alone[one] <= most]
        fastest = sorted(others, key=lambda one: alone[one])
        for candidate in list(dict.fromkeys([*others[:1], *fastest]))[:TRIED]:
            work = list(group.work)
            work[index] = kernel, candidate
            yield [group.with_work(work)]


def _window(groups: Groups, place: int, most: int, timer: CandidateTimer) -> tuple[int, int]:
    """Return the range of a group and its neighbours, without one that is too long."""
    left = most - timer.instructions_of(*groups[place].work)
    first, last = place, place + 1
    if last < len(groups) and (after := timer.instructions_of(*groups[last].work)) <= left:
        left, last = left - after, last + 1
    if first and timer.instructions_of(*groups[first - 1].work) <= left:
        first -= 1
    return first, last


def _work(groups: Groups) -> list[Part]:
    return [part for group in groups for part in group.work]

"""Causes of the cycles on the critical path: compute, memory, latency or dispatch.

The timing model says what an instruction does; the unit decides whether that is compute or
memory. While LOAD or STORE wait, the cause is memory if their channel of main memory is busy, and
latency if it is idle. While an instruction has not arrived, the cause is memory if the read channel
brings data, dispatch if it brings instructions, and latency if it is idle.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from ....isa.instructions import Unit
from ....sim.timing.beats import FETCH, Beats
from ....sim.timing.critical_path import START, PathStep, critical_path
from ....sim.timing.stalls import Wait
from ...execution.timed import NO_LAYER, TimedSegment


class Cause(StrEnum):
    """Cause of a cycle on the critical path."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    DISPATCH = "dispatch"


CAUSE_TEXT = {
    Cause.COMPUTE: "GEMM or VECTOR works",
    Cause.MEMORY: "LOAD or STORE moves data, or waits for its busy channel of main memory",
    Cause.LATENCY: "the unit waits for main memory, a token or a result; nothing moves",
    Cause.DISPATCH: "the unit waits for its next instruction",
}

PORT_CYCLES = 6
"""Cycles in the registers between two units, or between a unit and main memory."""

_COMPUTES = (Unit.GEMM, Unit.VECTOR)
_MOVES = (Unit.LOAD, Unit.STORE)


def cause_of(unit: Unit | None, wait: Wait) -> Cause:
    """Return the cause of a step.

    Parameters
    ----------
    unit : Unit or None
        None for the start, before the first instructions arrive.
    """
    if wait in (Wait.FETCH, Wait.QUEUE) or unit is None:
        return Cause.DISPATCH
    if wait in (Wait.WORK, Wait.UNIT):
        return Cause.COMPUTE if unit in _COMPUTES else Cause.MEMORY
    return Cause.LATENCY


@dataclass(frozen=True, slots=True)
class CausedStep:
    """A step of the critical path.

    Parameters
    ----------
    step : PathStep
        The step in the timing model.
    unit : Unit or None
        Unit that takes the step; None for the start.
    layer : int
        Index of the layer in its segment, or `NO_LAYER`.
    cause : Cause
        Cause of its cycles.
    """

    step: PathStep
    unit: Unit | None
    layer: int
    cause: Cause

    @property
    def cycles(self) -> int:
        return self.step.cycles


@dataclass(frozen=True, slots=True)
class BeatCounts:
    """Counts of beats on main memory before a cycle.

    Parameters
    ----------
    words, loads, stores
        For the beats of instruction words, and those of LOAD and of STORE.
    """

    words: Callable[[int], int]
    loads: Callable[[int], int]
    stores: Callable[[int], int]

    @staticmethod
    def exact(reads: Beats, writes: Beats) -> "BeatCounts":
        """Count recorded beats."""
        words = reads.instruction == FETCH
        return BeatCounts(
            count_before(reads.cycle[words]),
            count_before(reads.cycle[~words]),
            count_before(writes.cycle),
        )


def count_before(cycles: np.ndarray) -> Callable[[int], int]:
    """Return a function that counts the elements of an ascending array below its argument."""
    return lambda cycle: int(cycles.searchsorted(cycle))


def path_steps(segment: TimedSegment, counts: BeatCounts | None = None) -> list[CausedStep]:
    """Return the critical path of a segment.

    Parameters
    ----------
    counts
        The beats on main memory; the exact ones if None, which take long to find.
    """
    counts = counts or BeatCounts.exact(*segment.beats)
    units = segment.timing.links.unit
    steps: list[CausedStep] = []
    for whole in critical_path(segment.timing):
        index = whole.instruction
        known = index != START and units[index] >= 0
        unit = Unit(int(units[index])) if known else None
        layer = int(segment.layer[index]) if known else NO_LAYER
        steps += [
            CausedStep(step, unit, layer, cause)
            for step, cause in _split(segment, counts, whole, unit)
        ]
    return steps


def _split(
    segment: TimedSegment, counts: BeatCounts, step: PathStep, unit: Unit | None
) -> Iterator[tuple[PathStep, Cause]]:
    """Return a step with its cause, or parts of it with theirs."""
    if unit is not None and step.wait is Wait.FETCH:
        yield from _split_fetch(segment, counts, step)
        return
    handed_over = step.wait is Wait.FILL and step.cycles <= PORT_CYCLES
    if unit is None or unit not in _MOVES or handed_over:
        yield step, cause_of(unit, step.wait)
        return
    idle = step.cycles - _busy_cycles(segment, counts, unit, step)
    if step.wait is Wait.WORK:
        idle = min(idle, _starved_cycles(segment, step.instruction))
    turn = step.end - idle
    if turn > step.begin:
        yield replace(step, end=turn), Cause.MEMORY
    if turn < step.end:
        yield replace(step, begin=turn), Cause.LATENCY


def _split_fetch(
    segment: TimedSegment, counts: BeatCounts, step: PathStep
) -> Iterator[tuple[PathStep, Cause]]:
    """Split the wait for an instruction by what the read channel does."""
    loads, words = (count(step.end) - count(step.begin) for count in (counts.loads, counts.words))
    begin = step.begin
    for beats, cause in ((loads, Cause.MEMORY), (words, Cause.DISPATCH)):
        end = min(step.end, begin + round(beats * segment.timing.memory.beat_cycles))
        if end > begin:
            yield replace(step, begin=begin, end=end), cause
        begin = end
    if begin < step.end:
        yield replace(step, begin=begin), Cause.LATENCY


def _busy_cycles(segment: TimedSegment, counts: BeatCounts, unit: Unit, step: PathStep) -> int:
    """Return the cycles in which the unit's channel is busy during a step."""
    channel = (counts.stores,) if unit is Unit.STORE else (counts.loads, counts.words)
    beats = sum(count(step.end) - count(step.begin) for count in channel)
    return min(step.cycles, round(beats * segment.timing.memory.beat_cycles))


def _starved_cycles(segment: TimedSegment, index: int) -> int:
    """Return the cycles in which a LOAD waits for a beat after its first one."""
    timing = segment.timing
    if timing.links.unit[index] != Unit.LOAD:
        return 0
    starved, start, first = (int(timing.column(c)[index]) for c in ("starved", "start", "first"))
    return max(0, starved - (first - start))


def by_cause(steps: Sequence[CausedStep]) -> dict[Cause, int]:
    """Return the cycles of each cause."""
    cycles = Counter()
    for step in steps:
        cycles[step.cause] += step.cycles
    return {cause: cycles[cause] for cause in Cause}


def bound(cycles: Mapping[Cause, int]) -> Cause:
    """Return the cause with most cycles."""
    return max(Cause, key=lambda cause: cycles[cause])

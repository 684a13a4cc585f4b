"""Why a cycle of the critical path passes, in four words that a layer can be bound by.

The timing model names what an instruction does; whether that is compute or transfer depends on the
unit that does it. What LOAD and STORE wait for is transfer while their channel of main memory is
busy, with whatever was asked for before, and latency while it is idle. An instruction that is not
there yet waits for data while the read channel brings data, and for main memory while it is idle.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ....isa.instructions import Unit
from ....sim.timing.beats import FETCH
from ....sim.timing.critical_path import START, PathStep, critical_path
from ....sim.timing.stalls import Wait
from ...execution.timed import NO_LAYER, TimedSegment


class Cause(StrEnum):
    """What a cycle of the critical path goes to."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    DISPATCH = "dispatch"


CAUSE_TEXT = {
    Cause.COMPUTE: "GEMM or VECTOR works",
    Cause.MEMORY: "LOAD or STORE moves data, or waits while its channel of main memory is busy",
    Cause.LATENCY: "an answer of main memory, a token or a result is on its way; nothing moves",
    Cause.DISPATCH: "the next instruction comes in, or stands behind others",
}

PORT_CYCLES = 6
"""Registers between two units, and between a unit and main memory."""

_COMPUTES = (Unit.GEMM, Unit.VECTOR)
_MOVES = (Unit.LOAD, Unit.STORE)


def cause_of(unit: Unit | None, wait: Wait) -> Cause:
    """The cause of a step.

    Parameters
    ----------
    unit
        None for the start, when the first words are on their way.
    """
    if wait in (Wait.FETCH, Wait.QUEUE) or unit is None:
        return Cause.DISPATCH
    if wait in (Wait.WORK, Wait.UNIT):
        return Cause.COMPUTE if unit in _COMPUTES else Cause.MEMORY
    return Cause.LATENCY


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the critical path with what it belongs to.

    Parameters
    ----------
    step
        As the timing model gives it.
    unit
        Whose it is; None for the start.
    layer
        Index of the layer in its segment, or `NO_LAYER`.
    cause
        What its cycles go to.
    """

    step: PathStep
    unit: Unit | None
    layer: int
    cause: Cause

    @property
    def cycles(self) -> int:
        """How long it takes."""
        return self.step.cycles


def path_steps(segment: TimedSegment) -> list[Step]:
    """The critical path of a segment."""
    units = segment.timing.links.unit
    steps: list[Step] = []
    for whole in critical_path(segment.timing):
        index = whole.instruction
        known = index != START and units[index] >= 0
        unit = Unit(int(units[index])) if known else None
        layer = int(segment.layer[index]) if known else NO_LAYER
        steps += [Step(step, unit, layer, cause) for step, cause in _split(segment, whole, unit)]
    return steps


def _split(
    segment: TimedSegment, step: PathStep, unit: Unit | None
) -> Iterator[tuple[PathStep, Cause]]:
    """A step with its cause; as several where its channel is idle for a part, or brings others."""
    if unit is not None and step.wait is Wait.FETCH:
        yield from _split_fetch(segment, step)
        return
    handed_over = step.wait is Wait.FILL and step.cycles <= PORT_CYCLES
    if unit is None or unit not in _MOVES or handed_over:
        yield step, cause_of(unit, step.wait)
        return
    idle = step.cycles - _busy_cycles(segment, unit, step)
    if step.wait is Wait.WORK:
        idle = min(idle, _starved_cycles(segment, step.instruction))
    turn = step.end - idle
    if turn > step.begin:
        yield replace(step, end=turn), Cause.MEMORY
    if turn < step.end:
        yield replace(step, begin=turn), Cause.LATENCY


def _split_fetch(segment: TimedSegment, step: PathStep) -> Iterator[tuple[PathStep, Cause]]:
    """Waiting for an instruction, by what the read channel does meanwhile."""
    reads = segment.beats[0]
    first, last = reads.cycle.searchsorted([step.begin, step.end])
    words = int((reads.instruction[first:last] == FETCH).sum())
    begin = step.begin
    for beats, cause in ((last - first - words, Cause.MEMORY), (words, Cause.DISPATCH)):
        end = min(step.end, begin + round(beats * segment.timing.memory.beat_cycles))
        if end > begin:
            yield replace(step, begin=begin, end=end), cause
        begin = end
    if begin < step.end:
        yield replace(step, begin=begin), Cause.LATENCY


def _busy_cycles(segment: TimedSegment, unit: Unit, step: PathStep) -> int:
    """Cycles that the beats on the unit's channel take during a step."""
    channel = segment.beats[unit is Unit.STORE].cycle
    first, last = channel.searchsorted([step.begin, step.end])
    return min(step.cycles, round((last - first) * segment.timing.memory.beat_cycles))


def _starved_cycles(segment: TimedSegment, index: int) -> int:
    """Cycles in which a LOAD waits for a beat after its first one."""
    timing = segment.timing
    if timing.links.unit[index] != Unit.LOAD:
        return 0
    starved, start, first = (int(timing.column(c)[index]) for c in ("starved", "start", "first"))
    return max(0, starved - (first - start))


def by_cause(steps: Sequence[Step]) -> dict[Cause, int]:
    """Cycles of each cause."""
    cycles = Counter()
    for step in steps:
        cycles[step.cause] += step.cycles
    return {cause: cycles[cause] for cause in Cause}


def bound(cycles: Mapping[Cause, int]) -> Cause:
    """The cause that takes most."""
    return max(Cause, key=lambda cause: cycles[cause])

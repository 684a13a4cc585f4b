"""Why a cycle of the critical path passes, in five words that a layer can be bound by.

The timing model names what an instruction does; whether that is compute or transfer depends on the
unit that does it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...isa.instructions import Unit
from ...sim.timing.critical_path import START, PathStep, critical_path
from ...sim.timing.stalls import Wait
from ..timed import NO_LAYER, TimedSegment


class Cause(StrEnum):
    """What a cycle of the critical path goes to."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    DISPATCH = "dispatch"


CAUSE_TEXT = {
    Cause.COMPUTE: "GEMM or VECTOR works",
    Cause.MEMORY: "LOAD or STORE moves data, as fast as main memory and the bus allow",
    Cause.LATENCY: "an answer of main memory, a token or a result is on its way",
    Cause.DISPATCH: "the next instruction is not there yet: it is fetched, or stands behind others",
}

_COMPUTES = (Unit.GEMM, Unit.VECTOR)


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
    """

    step: PathStep
    unit: Unit | None
    layer: int

    @property
    def cycles(self) -> int:
        """How long it takes."""
        return self.step.cycles

    @property
    def cause(self) -> Cause:
        """What its cycles go to."""
        return cause_of(self.unit, self.step.wait)


def path_steps(segment: TimedSegment) -> list[Step]:
    """The critical path of a segment."""
    units = segment.timing.links.unit
    steps = []
    for step in critical_path(segment.timing):
        index = step.instruction
        known = index != START and units[index] >= 0
        unit = Unit(int(units[index])) if known else None
        steps.append(Step(step, unit, int(segment.layer[index]) if known else NO_LAYER))
    return steps


def by_cause(steps: Sequence[Step]) -> dict[Cause, int]:
    """Cycles of each cause."""
    cycles = Counter()
    for step in steps:
        cycles[step.cause] += step.cycles
    return {cause: cycles[cause] for cause in Cause}


def bound(cycles: Mapping[Cause, int]) -> Cause:
    """The cause that takes most."""
    return max(Cause, key=lambda cause: cycles[cause])

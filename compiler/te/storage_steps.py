"""Steps on buffers: the arena, rings of rows, and which of several stages starts first."""

from dataclasses import dataclass, replace
from typing import ClassVar

from .stages import ScheduleError, State
from .steps import Step


@dataclass(frozen=True, slots=True)
class Arena(Step):
    """Let buffers take turns in all the room that their scratchpad has.

    A copy that still lies there is not made again. `pipeline` then limits how many slots a buffer
    takes; without it there is no limit.
    """

    name: ClassVar[str] = "arena"

    def apply(self, state: State) -> State:
        """Note it."""
        if state.processor is not None:
            raise ScheduleError(f"{self}: a processor has no scratchpads; leave the step out")
        return replace(state, arena=True)


@dataclass(frozen=True, slots=True)
class Roll(Step):
    """Keep a stage's rows in a ring: each is computed once, `ahead` rows before its reader.

    The rows are what the stage's outermost loop walks over. In every iteration of the loop that it
    is computed in, the rows that its reader needs and that are not there yet are computed, by whole
    iterations. Padding that the reader needs lies around them.
    """

    name: ClassVar[str] = "roll"
    stage: str
    ahead: int

    def apply(self, state: State) -> State:
        """Note it; that the rows advance is checked for the whole state."""
        stage = state.stage(self.stage, str(self))
        if state.processor is not None:
            raise ScheduleError(f"{self}: a processor has no rings of rows; leave the step out")
        if stage.source:
            raise ScheduleError(
                f"{self}: `{self.stage}` is a copy; roll a stage that is computed on chip"
            )
        if self.ahead < 0:
            raise ScheduleError(f"{self}: expected 0 rows ahead or more, got {self.ahead}")
        return state.with_stage(replace(stage, ahead=self.ahead))


@dataclass(frozen=True, slots=True)
class Precede(Step):
    """Start a stage before another one that is computed in the same loop."""

    name: ClassVar[str] = "precede"
    stage: str
    other: str

    def apply(self, state: State) -> State:
        """Move the stage; what it reads and what is computed inside it must not come later."""
        stage, other = (state.stage(name, str(self)) for name in (self.stage, self.other))
        first, last = state.stages.index(other), state.stages.index(stage)
        if first >= last:
            raise ScheduleError(f"{self}: `{self.stage}` starts before `{self.other}` already")
        between = state.stages[first:last]
        needed = {read.tensor for read in stage.reads()}
        needed |= {one.name for one in state.attached(self.stage)}
        blocking = [f"`{one.name}`" for one in between if one.name in needed]
        if blocking:
            raise ScheduleError(
                f"{self}: `{self.stage}` needs {' and '.join(blocking)}, which would then come "
                "later; choose a later stage"
            )
        rest = state.stages[last + 1 :]
        return replace(state, stages=(*state.stages[:first], stage, *between, *rest))

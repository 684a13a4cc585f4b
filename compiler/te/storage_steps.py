"""Steps on buffers: the arena, rings of rows, and the order in which stages start."""

from dataclasses import dataclass, replace

from .stages import State
from .steps import Step
from .target import ScheduleError


@dataclass(frozen=True, slots=True)
class Arena(Step):
    """Let buffers share all the room of their scratchpad in turns.

    A copy whose data are still there is not repeated. `pipeline` limits the number of slots of a
    buffer; without it, there is no limit.
    """

    def apply(self, state: State) -> State:
        """Set the flag of the state."""
        if not any(scope.takes_turns for scope in state.target.scopes.values()):
            raise ScheduleError(
                f"{state.target.name} has no scratchpads that buffers share; leave the step out"
            )
        return replace(state, arena=True)


@dataclass(frozen=True, slots=True)
class Roll(Step):
    """Keep a stage's rows in a ring: each row is computed once, `ahead` rows before its reader.

    The stage's outermost loop is over the rows. Each iteration of the loop around the stage
    computes the rows that the reader needs and that the ring lacks, in whole iterations of the
    stage. The ring includes the padding that the reader needs. If the reader takes all rows of a
    part of the inner dimensions before those of the next part, the ring holds this part only.
    """

    stage: str
    ahead: int

    def apply(self, state: State) -> State:
        """Mark the stage; `legality` then checks that the rows advance."""
        stage = state.stage(self.stage)
        if not any(scope.has_rings for scope in state.target.scopes.values()):
            raise ScheduleError(f"{state.target.name} has no rings of rows; leave the step out")
        if stage.source:
            raise ScheduleError(f"`{self.stage}` is a copy; roll a stage that is computed on chip")
        if self.ahead < 0:
            raise ScheduleError(f"expected 0 rows ahead or more, got {self.ahead}")
        return state.with_stage(stage.changed(ahead=self.ahead))


@dataclass(frozen=True, slots=True)
class Precede(Step):
    """Start a stage before another stage that is computed in the same loop."""

    stage: str
    other: str

    def apply(self, state: State) -> State:
        """Move the stage; its inputs and the stages computed inside it must not come later."""
        stage, other = (state.stage(name) for name in (self.stage, self.other))
        first, last = state.stages.index(other), state.stages.index(stage)
        if first >= last:
            raise ScheduleError(f"`{self.stage}` starts before `{self.other}` already")
        between = state.stages[first:last]
        needed = {read.tensor for read in stage.reads}
        needed |= {one.name for one in state.attached(self.stage)}
        blocking = [f"`{one.name}`" for one in between if one.name in needed]
        if blocking:
            raise ScheduleError(
                f"`{self.stage}` needs {' and '.join(blocking)}, which would then come "
                "later; choose a later stage"
            )
        rest = state.stages[last + 1 :]
        return replace(state, stages=(*state.stages[:first], stage, *between, *rest))

"""A schedule: a kernel, and the steps that transform its loops.

The steps are the whole schedule: `str` writes them, and `parse` replays them. Each step is checked
before it takes effect. So every schedule has a loop program that computes the kernel.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence

from ...argument_types import checked_class
from ..tensor import Kernel
from .bounds import Bounds
from .build import build_program
from .carry import Carry
from .legality import check_state
from .loop_steps import (
    Bind,
    Fuse,
    Parallelise,
    Pipeline,
    Reorder,
    Split,
    SplitFirst,
    Unroll,
    Vectorise,
)
from .program import Program
from .stage_steps import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeRoot,
    SetScope,
    SplitReduction,
    Tensorise,
)
from .stages import Fusion, Stage, StepNumbers, initial_state
from .steps import Step, blame, parse_step
from .storage_steps import Arena, Precede, Roll
from .target import PLAIN, ScheduleError, Target, TensorInstruction

_MARKS: Mapping[str, type[Unroll | Vectorise | Tensorise]] = {
    "*": Unroll, "~": Vectorise, "!": Tensorise,
}  # fmt: skip
"""Marks of the loops of `Schedule.nest`."""


@checked_class("te.Schedule")
class Schedule:
    """Steps on the loops of a kernel; every stage starts as a full loop nest at the root.

    Loops are named after axes: `y` splits into `y.o` and `y.i`; `y` and `x` fuse into `y_x`. A
    stage has the name of the tensor that it defines. A refused step changes nothing.

    Parameters
    ----------
    kernel
        The kernel.
    target
        The machine; by default one of plain loops, without scratchpads and instructions.

    Raises
    ------
    ScheduleError
        When a step is illegal at its position.
    """

    def __init__(self, kernel: Kernel, target: Target = PLAIN) -> None:
        self.kernel, self.target = kernel, target
        self.steps: tuple[Step, ...] = ()
        """All steps taken."""
        self._first = self._state = initial_state(kernel, target)
        self._bounds: Bounds | None = None
        self._program: Program | None = None

    @classmethod
    def parse(
        cls, kernel: Kernel, text: str, target: Target = PLAIN, meant: Callable[[str], str] = str
    ) -> "Schedule":
        """Replay the steps of a text, one per line; empty lines and `#` comments are ignored.

        Parameters
        ----------
        meant
            Returns the whole name of a stage or loop from the one in the text.
        """
        schedule = cls(kernel, target)
        steps: dict[int, Step] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    steps[number] = parse_step(line).renamed(meant)
                except ScheduleError as error:
                    error.line = number
                    raise
        try:
            schedule.apply(*steps.values())
        except ScheduleError as error:
            error.line = next((n for n, step in steps.items() if step is error.step), 0)
            raise
        return schedule

    def apply(self, *steps: Step) -> None:
        """Apply all of the steps, or none; the state after the last step must be legal."""
        states = [self._state]
        for step in steps:
            with blame(step):
                states.append(step.apply(states[-1]))
        fault: ScheduleError | None = None
        bounds = self._bounds
        for step, state in zip(reversed(steps), reversed(states), strict=False):
            try:
                bounds = check_state(state, step)
                break
            except ScheduleError as error:
                fault = error  # the first step after which the state stays illegal
        if fault is not None:
            raise fault
        self.steps = (*self.steps, *steps)
        self._state, self._bounds, self._program = states[-1], bounds, None

    def with_numbers(self, steps: Sequence[Step]) -> "Schedule":
        """The schedule of steps that differ from these in numbers only, all of them positive.

        Whatever does not depend on numbers is neither worked out nor checked again.

        Raises
        ------
        ScheduleError
            When the numbers are illegal.
        """
        found = copy.copy(self)
        found.steps, found._program = tuple(steps), None
        numbers = StepNumbers(
            {(step.stage, step.loop): step.division for step in steps if isinstance(step, Split)},
            {(step.stage, step.loop): step.depth for step in steps if isinstance(step, Pipeline)},
            {step.stage: step.ahead for step in steps if isinstance(step, Roll)},
        )
        found._state = self._state.with_numbers(numbers)
        found._bounds = check_state(found._state, steps[-1], self._bounds)
        return found

    # Steps -------------------------------------------------------------------------------------

    def split(self, stage: str, loop: str, factor: int) -> tuple[str, str]:
        """Split a loop into blocks of `factor`; return the names of the outer and inner loops."""
        step = Split(stage, loop, factor)
        self.apply(step)
        return step.division.parts

    def split_first(self, stage: str, loop: str, factor: int, first: int) -> tuple[str, str]:
        """Split a loop like `split`, but let the first block have `first` iterations."""
        step = SplitFirst(stage, loop, factor, first)
        self.apply(step)
        return step.division.parts

    def fuse(self, stage: str, outer: str, *inner: str) -> str:
        """Fuse neighbouring loops, two at a time; return the name of the fused loop."""
        for loop in inner:
            self.apply(Fuse(stage, outer, loop))
            outer = Fusion(outer, loop).fused
        return outer

    def nest(self, stage: str, loops: str, **factors: int | tuple[int, ...]) -> str:
        """Split, order and mark the loops of a stage as a nest that is declared in text.

        `s.nest("out", "(n y) x.o c.o k/4* x.i* c.i~", x=4, c=16)`

        Parameters
        ----------
        loops
            The loops from the outermost, without those that stay in place. `x*` is unrolled, `x~`
            vectorised, and `x!` starts the instruction. `k/4*` runs `k` in unrolled steps of 4:
            `k.o k.i*`; or `k`, if the number is 1. Loops in brackets are fused, and threads share
            them.
        factors
            Factors by which a loop is split, and then its inner part.

        Returns
        -------
        The loop that threads share, or an empty text.
        """
        for loop, given in factors.items():
            for factor in given if isinstance(given, tuple) else (given,):
                _, loop = self.split(stage, loop, factor)

        def in_steps(match: re.Match[str]) -> str:
            if match[2] == "1":
                return match[1]
            outer, inner = self.split(stage, match[1], int(match[2]))
            return f"{outer} {inner}*"

        loops = re.sub(r"([\w.]+)/(\d+)\*", in_steps, loops)
        marks = dict(re.findall(r"([\w.]+)([*~!]*)", loops))
        self.reorder(stage, *marks)
        for loop, kinds in marks.items():
            for kind in kinds:
                self.apply(_MARKS[kind](stage, loop))
        shared = re.search(r"\((.*)\)", loops)
        if shared is None:
            return ""
        loop = self.fuse(stage, *shared[1].split())
        self.parallelise(stage, loop)
        return loop

    def reorder(self, stage: str, *loops: str) -> None:
        """Reorder the named loops among the positions that they occupy."""
        self.apply(Reorder(stage, loops))

    def unroll(self, stage: str, *loops: str) -> None:
        """Unroll loops, one after the other: write out their iterations."""
        for loop in loops:
            self.apply(Unroll(stage, loop))

    def vectorise(self, stage: str, loop: str) -> None:
        """Vectorise the innermost loop: run its iterations at once."""
        self.apply(Vectorise(stage, loop))

    def parallelise(self, stage: str, loop: str) -> None:
        """Parallelise a data loop: run its iterations in any order."""
        self.apply(Parallelise(stage, loop))

    def bind(self, stage: str, loop: str, unit: str) -> None:
        """Bind a data loop to `block.x`, `block.y`, `block.z` or `thread`."""
        self.apply(Bind(stage, loop, unit))

    def pipeline(self, stage: str, loop: str, depth: int) -> None:
        """Pipeline a loop: give every buffer inside it `depth` slots."""
        self.apply(Pipeline(stage, loop, depth))

    def cache_read(self, tensor: str, scope: str, *readers: str) -> str:
        """Copy the elements that stages read into a scope; return the name of the copy."""
        before = {stage.name for stage in self.stages}
        self.apply(CacheRead(tensor, scope, readers))
        return next(stage.name for stage in self.stages if stage.name not in before)

    def cache_write(self, stage: str, scope: str) -> str:
        """Compute a stage in a scope, then copy it; return the name of the computing stage."""
        self.apply(CacheWrite(stage, scope))
        return next(old.source for old in self.stages if old.name == stage)

    def split_reduction(self, stage: str, axis: str, parts: int) -> str:
        """Sum parts of a reduction in a stage of their own; return its name."""
        before = {stage.name for stage in self.stages}
        self.apply(SplitReduction(stage, axis, parts))
        return next(one.name for one in self.stages if one.name not in before)

    def compute_at(self, stage: str, consumer: str, loop: str) -> None:
        """Compute a stage inside a loop of a consumer."""
        self.apply(ComputeAt(stage, consumer, loop))

    def carry(self, stage: str, consumer: str, loop: str) -> None:
        """Advance a stage's reduction with the consumer's loop, as an online softmax does."""
        self.apply(Carry(stage, consumer, loop))

    def compute_root(self, stage: str) -> None:
        """Compute a stage in a nest of its own."""
        self.apply(ComputeRoot(stage))

    def set_scope(self, stage: str, scope: str) -> None:
        """Set the memory of a stage's output."""
        self.apply(SetScope(stage, scope))

    def tensorise(self, stage: str, loop: str) -> None:
        """Replace the nest from a loop inward by one instruction."""
        self.apply(Tensorise(stage, loop))

    def arena(self) -> None:
        """Let buffers share all the room of their scratchpad in turns."""
        self.apply(Arena())

    def roll(self, stage: str, ahead: int) -> None:
        """Keep a stage's rows in a ring, computed `ahead` rows before its reader needs them."""
        self.apply(Roll(stage, ahead))

    def precede(self, stage: str, other: str) -> None:
        """Start a stage before another stage that is computed in the same loop."""
        self.apply(Precede(stage, other))

    # The resulting program --------------------------------------------------------------------

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages with their loops, producers before consumers."""
        return self._state.stages

    @property
    def takes_turns(self) -> bool:
        """Whether buffers share their scratchpads as arenas."""
        return self._state.arena

    @property
    def instructions(self) -> Mapping[str, TensorInstruction]:
        """The instructions of tensorised stages, as far as the target keeps them."""
        return self._bounds.instructions if self._bounds else {}

    def program(self) -> Program:
        """The loop program after all steps.

        Raises
        ------
        ScheduleError
            When the target does not run it.
        """
        if self._program is None:
            self._program = self.target.complete(build_program(self._state, self._bounds))
        return self._program

    def history(self) -> list[tuple[str, str]]:
        """The text of each step with the program after it, starting with the plain program."""
        state = self._first
        found = [("", str(build_program(state)))]
        for step in self.steps:
            state = step.apply(state)
            found.append((str(step), str(build_program(state))))
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

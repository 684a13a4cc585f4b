"""A schedule: a kernel, and the steps that say how its loops are run.

The steps are the schedule: `str` writes them, `parse` replays them. Each is checked before it is
taken, so that every schedule that exists has a loop program with the kernel's meaning.
"""

from ...isa.configuration import Configuration
from ..tensor import Kernel
from .bounds import Bounds
from .build import build_program
from .legality import check_state
from .loop_steps import Fuse, Parallelise, Pipeline, Reorder, Split, Unroll, Vectorise
from .processor import Processor
from .program import Program
from .stage_steps import CacheRead, CacheWrite, ComputeAt, ComputeRoot, SetScope, Tensorise
from .stages import Division, Fusion, ScheduleError, Stage, State, initial_state
from .steps import Step, parse_step
from .storage_steps import Arena, Precede, Roll


class Schedule:
    """Steps on the loops of a kernel; every stage starts as a full loop nest at the root.

    Loops are named after axes: `y` split becomes `y.o` and `y.i`, `y` and `x` fused `y_x`. A stage
    is named after the tensor that it defines. A step that is refused changes nothing.

    Parameters
    ----------
    kernel
        What is computed.
    configuration
        The machine, which `tensorise` needs.
    processor
        A general processor in its place.

    Raises
    ------
    ScheduleError
        By every step that is illegal where it stands.
    """

    def __init__(
        self,
        kernel: Kernel,
        configuration: Configuration | None = None,
        processor: Processor | None = None,
    ) -> None:
        self.kernel = kernel
        self.configuration = configuration
        self._states: list[tuple[Step | None, State]] = [
            (None, initial_state(kernel, configuration, processor))
        ]
        self._bounds: Bounds | None = None

    @classmethod
    def parse(
        cls,
        kernel: Kernel,
        text: str,
        configuration: Configuration | None = None,
        processor: Processor | None = None,
    ) -> "Schedule":
        """Replay the steps of a text, one a line; empty lines and `#` comments are passed over."""
        schedule = cls(kernel, configuration, processor)
        lines = (line for line in text.splitlines() if line.strip())
        schedule.apply(*(parse_step(line) for line in lines if not line.lstrip().startswith("#")))
        return schedule

    def apply(self, *steps: Step) -> None:
        """Take steps, all of them or none; the state after the last one must be legal."""
        states = self._states[:]
        for step in steps:
            states.append((step, step.apply(states[-1][1])))
        fault: ScheduleError | None = None
        bounds = self._bounds
        for step, state in reversed(states[len(self._states) :]):
            try:
                bounds = check_state(state, str(step))
                break
            except ScheduleError as error:
                fault = error  # of the first step after which nothing mends it
        if fault is not None:
            raise fault
        self._states, self._bounds = states, bounds

    # Steps -------------------------------------------------------------------------------------

    def split(self, stage: str, loop: str, factor: int) -> tuple[str, str]:
        """Cut a loop into blocks of `factor`; the names of the outer and the inner loop."""
        self.apply(Split(stage, loop, factor))
        return Division(loop, factor).parts

    def fuse(self, stage: str, outer: str, inner: str) -> str:
        """Make one loop of two neighbours; its name."""
        self.apply(Fuse(stage, outer, inner))
        return Fusion(outer, inner).fused

    def reorder(self, stage: str, *loops: str) -> None:
        """Put the loops named into this order, at the positions that they share."""
        self.apply(Reorder(stage, loops))

    def unroll(self, stage: str, loop: str) -> None:
        """Write out a loop's iterations."""
        self.apply(Unroll(stage, loop))

    def vectorise(self, stage: str, loop: str) -> None:
        """Run the innermost loop's iterations at once."""
        self.apply(Vectorise(stage, loop))

    def parallelise(self, stage: str, loop: str) -> None:
        """Run a data loop's iterations in any order."""
        self.apply(Parallelise(stage, loop))

    def pipeline(self, stage: str, loop: str, depth: int) -> None:
        """Give every buffer inside a loop `depth` slots."""
        self.apply(Pipeline(stage, loop, depth))

    def cache_read(self, tensor: str, scope: str, reader: str) -> str:
        """Copy what a stage reads of a tensor into a scope; the name of the copy."""
        self.apply(CacheRead(tensor, scope, reader))
        stages = self.stages
        return stages[[stage.name for stage in stages].index(reader) - 1].name

    def cache_write(self, stage: str, scope: str) -> str:
        """Compute a stage into a scope and copy from there; the name of the computing stage."""
        self.apply(CacheWrite(stage, scope))
        return next(old.source for old in self.stages if old.name == stage)

    def compute_at(self, stage: str, consumer: str, loop: str) -> None:
        """Compute a stage inside a loop of a consumer."""
        self.apply(ComputeAt(stage, consumer, loop))

    def compute_root(self, stage: str) -> None:
        """Compute a stage in a nest of its own."""
        self.apply(ComputeRoot(stage))

    def set_scope(self, stage: str, scope: str) -> None:
        """Say where a stage's output lies."""
        self.apply(SetScope(stage, scope))

    def tensorise(self, stage: str, loop: str) -> None:
        """From a loop inward, let the nest be one instruction."""
        self.apply(Tensorise(stage, loop))

    def arena(self) -> None:
        """Let buffers take turns in all the room that their scratchpad has."""
        self.apply(Arena())

    def roll(self, stage: str, ahead: int) -> None:
        """Keep a stage's rows in a ring, computed so many rows ahead of its reader."""
        self.apply(Roll(stage, ahead))

    def precede(self, stage: str, other: str) -> None:
        """Start a stage before another one that is computed in the same loop."""
        self.apply(Precede(stage, other))

    # What has become of the kernel -------------------------------------------------------------

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps taken."""
        return tuple(step for step, _ in self._states if step is not None)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages with their loops, producers before consumers."""
        return self._states[-1][1].stages

    @property
    def takes_turns(self) -> bool:
        """Whether buffers take turns in the arenas of their scratchpads."""
        return self._states[-1][1].arena

    def program(self) -> Program:
        """The loops that the steps lead to."""
        return build_program(self._states[-1][1], self._bounds)

    def history(self) -> list[tuple[str, str]]:
        """Each step's text with the text of the program after it; the plain program comes first."""
        return [
            ("" if step is None else str(step), str(build_program(state)))
            for step, state in self._states
        ]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

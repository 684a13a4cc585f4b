"""The machine that a schedule is for: its memories, its kinds of loops, and its instructions.

`te` knows no machine. A target implements `Target`, and a schedule asks it. `Target` itself is a
machine of plain loops in main memory: every schedule without instructions is legal on it.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...errors import CompileError

if TYPE_CHECKING:
    from .bounds import Bounds
    from .program import Program
    from .stages import Stage, State

DRAM = "DRAM"
"""Scope of main memory, where the kernel's inputs and its output are."""

SHARED = "SHARED"
"""Scope of the memory that the threads of a block share."""

REGISTER = "REGISTER"
"""Scope of the sums of a reduction whose result the same stage processes further.

On a target with this scope, a schedule may also keep buffers here: boxes of constant size with
constant indices.
"""


class ScheduleError(CompileError):
    """A step is illegal at its position in the schedule, or its text is not a step.

    Parameters
    ----------
    step
        The step that is refused; None if the fault is not a step's.
    line
        Its line in the text that was parsed, from 1; 0 without a text.
    """

    def __init__(self, message: str, step: object = None, line: int = 0) -> None:
        super().__init__(message)
        self.step, self.line = step, line


class Kind(Enum):
    """The way in which a loop runs its iterations."""

    SERIAL = ""
    UNROLLED = "unrolled"
    VECTORISED = "vectorised"
    PARALLEL = "parallel"
    BLOCK_X = "block.x"
    BLOCK_Y = "block.y"
    BLOCK_Z = "block.z"
    THREAD = "thread"

    @property
    def keeps_order(self) -> bool:
        """Whether iterations run one after the other."""
        return self in (Kind.SERIAL, Kind.UNROLLED)


BLOCKS = (Kind.BLOCK_X, Kind.BLOCK_Y, Kind.BLOCK_Z)
"""Loops whose iterations are blocks of threads; blocks share no memory but the main one."""

BOUND = (*BLOCKS, Kind.THREAD)
"""Loops whose iterations are bound to units of the machine, by `bind`."""

LOOPS = frozenset(Kind) - frozenset(BOUND)
"""Loop kinds of a machine without blocks or threads of its own."""


class Scope(NamedTuple):
    """A memory in which a schedule may keep buffers.

    Parameters
    ----------
    capacity
        Its bytes; None where nothing limits the buffers of a kernel.
    elements
        Types of the elements that it holds; empty for all types.
    takes_turns
        Whether the buffers of an `arena` may share it in turns.
    has_rings
        Whether it may hold rings of rows.
    """

    capacity: int | None = None
    elements: tuple[str, ...] = ()
    takes_turns: bool = False
    has_rings: bool = False


class TensorInstruction(Protocol):
    """An instruction that replaces a nest of loops."""

    @property
    def mnemonic(self) -> str:
        """Its name in the assembly language."""
        ...


class Target:
    """A machine."""

    name: str = "a machine of plain loops"
    """For messages."""
    scopes: Mapping[str, Scope] = MappingProxyType({DRAM: Scope()})
    """The memories by name, main memory first."""
    kinds: frozenset[Kind] = LOOPS
    """The kinds of loops that it runs."""
    lane_kinds: frozenset[Kind] = frozenset()
    """The kinds that a loop over the lanes of an instruction may have."""
    max_register_sums = 0
    """The most sums of a tile that stay in registers until they are complete."""

    def instruction(self, stage: "Stage", state: "State", bounds: "Bounds") -> TensorInstruction:
        """The instruction whose law a tensorised stage matches from its loop inward.

        What does not depend on the sizes of loops may be kept in `bounds.instructions`.

        Raises
        ------
        ScheduleError
            When there is none; the message has the mismatch.
        """
        raise ScheduleError(
            f"{self.name} has no instructions for `{stage.name}`; give the Schedule a target that "
            "has"
        )

    def check(self, stage: "Stage", state: "State", bounds: "Bounds") -> None:
        """Refuse a tensorised stage whose loops do not have the sizes that the instruction takes.

        Raises
        ------
        ScheduleError
            When there is no instruction, or the sizes do not fit.
        """
        self.instruction(stage, state, bounds)

    def complete(self, program: "Program") -> "Program":
        """A loop program with what only the machine demands, such as barriers.

        Raises
        ------
        ScheduleError
            When the machine does not run it, though every step is legal.
        """
        return program


PLAIN = Target()
"""The target of a schedule that is only interpreted or read."""

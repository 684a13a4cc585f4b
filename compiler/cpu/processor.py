"""A general processor as a target of schedules: registers, and products of vectors and matrices."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...isa.expressions import Match, Read, Slot
from ..te.bounds import Bounds, is_whole
from ..te.matching import find_law, steps_along
from ..te.reductions import has_reduction, reduction_of
from ..te.stages import Stage, State
from ..te.target import DRAM, REGISTER, Kind, ScheduleError, Scope, Target
from .instructions import MachineInstruction

MAX_SUMS = 1 << 10
"""Maximum sums of a tile that stay apart from the output. Larger tiles fit no registers."""

_SCOPES = {DRAM: Scope(), REGISTER: Scope()}


@dataclass(frozen=True, slots=True)
class Processor(Target):
    """The properties of a general processor that schedules use.

    Parameters
    ----------
    level
        Its name, for messages.
    instructions
        The instructions from which `tensorise` chooses.
    """

    level: str
    instructions: tuple[MachineInstruction, ...] = ()

    @property
    def name(self) -> str:
        """The level's name."""
        return f"`{self.level}`"

    scopes = _SCOPES
    max_register_sums = MAX_SUMS
    lane_kinds = frozenset({Kind.VECTORISED})
    """A vector also processes the sums of an instruction further."""

    def instruction(self, stage: Stage, state: State, bounds: Bounds) -> MachineInstruction:
        """The instruction whose lanes are the loops of a stage."""
        loops = stage.loops[stage.loops.index(stage.instruction) :]
        extents = tuple(bounds.plans[stage.name].extents[loop] for loop in loops)

        def fits(law: MachineInstruction, found: Match) -> bool:
            types = tuple(state.tensors[read.tensor].dtype for _, read in found.reads)
            return (
                types in law.pairs
                and _has_lanes(law, extents)
                and _follow(law, found.reads, stage, loops)
            )

        # Extra rows and lanes do no harm to sums in registers.
        private = stage.nested or stage.scope == REGISTER
        needed = [loop for loop in loops if stage.reduces(loop) or not private]
        if has_reduction(stage.body) and all(is_whole(stage, bounds, loop) for loop in needed):
            found = find_law(self.instructions, reduction_of(stage.body), fits)
            if found is not None:
                return found[0]
        known = "; ".join(map(str, self.instructions))
        raise ScheduleError(
            f"the loops {', '.join(loops)} of {' x '.join(map(str, extents))} match no "
            f"instruction of {self.name} ({known or 'it has none'}); split a data loop by the "
            "lanes and a reduction loop by the taps, and for matrices by rows and groups, without "
            "a remainder, and sum a[tap] * b[lane, tap]"
        )

    def check(self, stage: Stage, state: State, bounds: Bounds) -> None:
        """Refuse a stage without an instruction, or without a reduction loop around it."""
        self.instruction(stage, state, bounds)
        if stage.first_reduction >= stage.loops.index(stage.instruction):
            raise ScheduleError(
                f"the instruction at `{stage.instruction}` has all loops of the reduction; split "
                "one, and keep its outer loop outside"
            )


def _has_lanes(law: MachineInstruction, extents: tuple[int, ...]) -> bool:
    """Whether an instruction has loops of these extents."""
    sizes = [size for _, size in law.lanes]
    if law.max_rows and len(extents) == len(sizes):
        sizes[0] = min(sizes[0], extents[0])
    return extents == tuple(sizes)


def _follow(
    law: MachineInstruction,
    reads: Sequence[tuple[Slot, Read]],
    stage: Stage,
    loops: tuple[str, ...],
) -> bool:
    """Whether the operands move with their lanes only, by one element along the innermost two.

    How rows and groups move them, and along which dimension, is left to the code's layouts.
    """
    for (lane, _), loop in zip(law.lanes, loops, strict=True):
        if stage.reduces(loop) == (lane in law.output.lanes):
            return False
        innermost = loop in loops[-2:]
        for slot, read in reads:
            steps = [steps_along(read, axis) for axis in sorted(stage.origins(loop))]
            if lane not in slot.lanes:
                if any(steps):
                    return False
            elif innermost and [list(step.values()) for step in steps] != [[1]]:
                return False
    return True

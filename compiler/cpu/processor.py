"""A general processor as a target of schedules: registers, and products of vectors and matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...isa.expressions import Call, Op, Read
from ..te.bounds import Bounds
from ..te.reductions import has_reduction, reduction_of
from ..te.stages import Division, Stage, State
from ..te.target import DRAM, REGISTER, Kind, ScheduleError, Scope, Target

MAX_SUMS = 1 << 10
"""Most sums of a tile that stay apart from the output. Larger tiles fit no registers."""


@dataclass(frozen=True, slots=True)
class DotProduct:
    """`sums[lane] += sum over tap of a[tap] * b[lane, tap]` in int32, one instruction.

    An instruction with rows multiplies matrices:
    `sums[row, lane] += sum over group and tap of a[row, group, tap] * b[group, lane, tap]`.

    Parameters
    ----------
    mnemonic
        Its name in the assembly language.
    lanes, taps
        Extents of the two inner loops.
    pairs
        Element types of `a` and `b` for which the instruction is exact.
    rows, groups
        The largest extent of the loop over rows and the extent of the loop over groups, for an
        instruction that has them.
    """

    mnemonic: str
    lanes: int
    taps: int
    pairs: tuple[tuple[str, str], ...]
    rows: int = 0
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Processor(Target):
    """The properties of a general processor that schedules use.

    Parameters
    ----------
    level
        Its name, for messages.
    instructions
        The instructions from which `tensorise` chooses: for two loops, over lanes and taps, or for
        four, over rows, groups, lanes and taps.
    """

    level: str
    instructions: tuple[DotProduct, ...] = ()

    @property
    def name(self) -> str:
        """The level's name."""
        return f"`{self.level}`"

    @property
    def scopes(self) -> Mapping[str, Scope]:
        """Main memory and the registers."""
        return _SCOPES

    @property
    def lane_kinds(self) -> frozenset[Kind]:
        """A vector also processes the sums of an instruction further."""
        return frozenset({Kind.VECTORISED})

    @property
    def max_register_sums(self) -> int:
        """See `MAX_SUMS`."""
        return MAX_SUMS

    def instruction(self, stage: Stage, state: State, bounds: Bounds) -> DotProduct:
        """The instruction that has the loops of a stage."""
        return dot_product_of(stage, state, self, bounds)

    def check(self, stage: Stage, state: State, bounds: Bounds) -> None:
        """Refuse a stage without an instruction, or without a reduction loop around it."""
        self.instruction(stage, state, bounds)
        if stage.first_reduction >= stage.loops.index(stage.instruction):
            raise ScheduleError(
                f"the instruction at `{stage.instruction}` has all loops of the reduction; split "
                "one, and keep its outer loop outside"
            )


_SCOPES = {DRAM: Scope(), REGISTER: Scope()}


def dot_product_of(
    stage: Stage, state: State, processor: "Processor", bounds: Bounds
) -> DotProduct:
    """The instruction that matches the nest of a stage from its loop `instruction` inward.

    Raises
    ------
    ScheduleError
        When no instruction matches; the message lists the processor's instructions.
    """
    loops = stage.loops[stage.loops.index(stage.instruction) :]
    extents = tuple(bounds.plans[stage.name].extents[loop] for loop in loops)
    factors = _factors(stage)
    whole = [loop for loop in loops if stage.reduces(loop) or not _private(stage)]
    if factors and len(loops) > 1 and all(_whole(stage, bounds, loop) for loop in whole):
        types = tuple(state.tensors[factor.tensor].dtype for factor in factors)
        for one in processor.instructions:
            fits = _fits(one, extents) and types in one.pairs
            if fits and _operands_follow(stage, factors, loops):
                return one
    known = "; ".join(
        f"{one.mnemonic} takes {_loops_of(one)} of "
        + " or ".join(f"{a} * {b}" for a, b in one.pairs)
        for one in processor.instructions
    )
    raise ScheduleError(
        f"the loops {', '.join(loops)} of {' x '.join(map(str, extents))} match no "
        f"instruction of {processor.name} ({known or 'it has none'}); split a data loop by the "
        "lanes and a reduction loop by the taps, and for matrices by rows and groups, without a "
        "remainder, and sum a[tap] * b[lane, tap]"
    )


def _fits(one: DotProduct, extents: tuple[int, ...]) -> bool:
    """Whether an instruction has loops of these extents."""
    if not one.rows:
        return extents == (one.lanes, one.taps)
    return extents[0] <= one.rows and extents[1:] == (one.groups, one.lanes, one.taps)


def _loops_of(one: DotProduct) -> str:
    """The loops of an instruction, for messages."""
    inner = f"{one.lanes} lanes and {one.taps} taps"
    return f"up to {one.rows} rows, {one.groups} groups, {inner}" if one.rows else inner


def _factors(stage: Stage) -> tuple[Read, Read] | None:
    """The two reads whose product is summed."""
    if not has_reduction(stage.body):
        return None
    reduction = reduction_of(stage.body)
    product = reduction.body
    if reduction.op is not Op.ADD or not isinstance(product, Call) or product.op is not Op.MULTIPLY:
        return None
    a, b = product.arguments
    return (a, b) if isinstance(a, Read) and isinstance(b, Read) else None


def _private(stage: Stage) -> bool:
    """Whether the sums are in registers, where extra rows and lanes do no harm."""
    return stage.nested or stage.scope == REGISTER


def _whole(stage: Stage, bounds: Bounds, loop: str) -> bool:
    """Whether all blocks of the loop are whole."""
    extents = bounds.plans[stage.name].extents
    while True:
        found = [r for r in stage.relations if isinstance(r, Division) and loop in r.parts]
        if not found:
            return not any(loop == part for r in stage.relations for part in _fused(r))
        loop = found[0].parent
        if extents[loop] % found[0].factor:
            return False


def _fused(relation) -> tuple[str, ...]:
    return () if isinstance(relation, Division) else (relation.fused,)


def _operands_follow(stage: Stage, factors: tuple[Read, Read], loops: Sequence[str]) -> bool:
    """Whether `a` moves with the tap only, and `b` with lane and tap, element by element.

    Rows move only `a`. How groups move both is left to the code's layouts.
    """
    *outer, lane, tap = loops
    rows, groups = outer[:1], outer[1:]
    if any(map(stage.reduces, (lane, *rows))) or not all(map(stage.reduces, (tap, *groups))):
        return False
    (lane_axis,), (tap_axis,) = stage.origins(lane), stage.origins(tap)
    row_axes = tuple(axis for row in rows for axis in stage.origins(row))
    a, b = (
        {
            axis: [dict(affine.terms).get(axis, 0) for affine in read.index]
            for axis in (lane_axis, tap_axis, *row_axes)
        }
        for read in factors
    )
    once = [0] * (len(a[tap_axis]) - 1) + [1]
    return (
        not any(a[lane_axis])
        and not any(step for axis in row_axes for step in b[axis])
        and a[tap_axis] == once
        and sorted(b[lane_axis]) == sorted(b[tap_axis]) == [0] * (len(b[tap_axis]) - 1) + [1]
    )

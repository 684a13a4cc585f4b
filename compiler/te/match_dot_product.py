"""Match a nest with a processor's instruction: whole loops around a sum of products."""

from collections.abc import Sequence

from ...isa.expressions import Call, Op, Read
from .bounds import Bounds
from .processor import DotProduct, Processor
from .reductions import has_reduction, reduction_of
from .stages import REGISTER, Division, ScheduleError, Stage, State


def dot_product_of(stage: Stage, state: State, processor: Processor, bounds: Bounds) -> DotProduct:
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
        f"instruction of `{processor.name}` ({known or 'it has none'}); split a data loop by the "
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

"""Match a nest with a processor's dot product: two whole loops around a sum of products."""

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
    whole = loops[1:] if _private(stage) else loops
    if factors and len(loops) == 2 and all(_whole(stage, bounds, loop) for loop in whole):
        types = tuple(state.tensors[factor.tensor].dtype for factor in factors)
        for one in processor.instructions:
            fits = extents == (one.lanes, one.taps) and types in one.pairs
            if fits and _operands_follow(stage, factors, loops[0], loops[1]):
                return one
    known = "; ".join(
        f"{one.mnemonic} takes {one.lanes} lanes and {one.taps} taps of "
        + " or ".join(f"{a} * {b}" for a, b in one.pairs)
        for one in processor.instructions
    )
    raise ScheduleError(
        f"the loops {', '.join(loops)} of {' x '.join(map(str, extents))} match no "
        f"instruction of `{processor.name}` ({known or 'it has none'}); split a data loop by the "
        "lanes and a reduction loop by the taps, without a remainder, and sum a[tap] * b[lane, tap]"
    )


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
    """Whether the sums are in registers, where extra lanes do no harm."""
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


def _operands_follow(stage: Stage, factors: tuple[Read, Read], lane: str, tap: str) -> bool:
    """Whether `a` moves with the tap only, and `b` with lane and tap, element by element."""
    if stage.reduces(lane) or not stage.reduces(tap):
        return False
    (lane_axis,), (tap_axis,) = stage.origins(lane), stage.origins(tap)
    a, b = (
        {
            axis: [dict(affine.terms).get(axis, 0) for affine in read.index]
            for axis in (lane_axis, tap_axis)
        }
        for read in factors
    )
    once = [0] * (len(a[tap_axis]) - 1) + [1]
    return (
        not any(a[lane_axis])
        and a[tap_axis] == once
        and sorted(b[lane_axis]) == sorted(b[tap_axis]) == [0] * (len(b[tap_axis]) - 1) + [1]
    )

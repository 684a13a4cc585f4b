"""Check that a nest is one instruction: operands in place, full lanes, whole boxes."""

from collections.abc import Mapping

from ...errors import CompileError
from ...isa.configuration import Memory
from ...isa.expressions import Match
from ...isa.patterns import Pattern, patterns_of
from ..accelerator.matching import find_pattern, lane_axes
from ..accelerator.sliding import window_of
from .affine import variable
from .bounds import Bounds, StagePlan, spans
from .dot_products import dot_product_of
from .exactness import check_exact
from .nodes import qualified
from .stages import Fusion, ScheduleError, Stage, State


def pattern_of(stage: Stage, state: State) -> tuple[Pattern, Match]:
    """The instruction that computes a stage, given the memories of its operands.

    Raises
    ------
    CompileError
        When there is none, or an operand is in the wrong memory.
    """
    names = (stage.name, *(read.tensor for read in stage.reads()))
    places = {name: Memory[state.scope(name)] for name in names}
    return find_pattern(stage.compute, places, patterns_of(state.configuration))


def mnemonic_of(stage: Stage, state: State, bounds: Bounds) -> str:
    """The mnemonic of a tensorised stage's instruction."""
    if state.processor is not None:
        return dot_product_of(stage, state, state.processor, bounds, stage.name).mnemonic
    pattern, _ = pattern_of(stage, state)
    return pattern.family.mnemonic


def check_tensorised(stage: Stage, state: State, bounds: Bounds, doing: str) -> None:
    """Refuse a nest that is not an instruction.

    Parameters
    ----------
    doing
        The step that led to the state, for the message.

    Raises
    ------
    ScheduleError
        Says what does not match.
    """
    text = f"tensorise({stage.name}, {stage.instruction})"
    if doing != text:
        doing = f"{doing}: `{text}` would no longer hold"
    opened = stage.loops.index(stage.instruction)
    for inside in stage.loops[opened:]:
        for attached in state.attached(stage.name, inside):
            raise ScheduleError(
                f"{doing}: `{attached.name}` is computed at `{inside}`, inside the instruction; "
                "compute it further out"
            )
    if state.processor is not None:
        dot_product_of(stage, state, state.processor, bounds, doing)
        return
    if state.configuration is None:
        raise ScheduleError(f"{doing}: lanes are unknown; give the Schedule a Configuration")
    try:
        pattern, found = pattern_of(stage, state)
    except CompileError as error:
        raise ScheduleError(f"{doing}: {error}; see `set_scope` and `cache_read`") from error
    plan = bounds.plans[stage.name]
    tile = spans(plan, opened)
    if tile is None:
        raise ScheduleError(
            f"{doing}: the loops {', '.join(stage.loops[opened:])} do not cover a box; if the "
            "outer part of a split or fused loop is inside, its inner part must be inside too"
        )
    family = pattern.family
    outside = [loop for loop in stage.loops[:opened] if stage.reduces(loop)]
    if outside and not family.continue_field:
        raise ScheduleError(
            f"{doing}: {family.mnemonic} cannot add to an earlier sum; move the reduction loop "
            f"`{outside[0]}` inside `{stage.instruction}`"
        )
    check_exact(stage, state, bounds, found, family, doing)
    if pattern.window:
        _check_window(doing, stage, state, found, plan, bounds, tile)
        return
    _check_operands(doing, stage, pattern, found)
    for lane, axis in lane_axes(pattern, stage.compute, found).items():
        assert axis is not None
        parameter = pattern.lanes[lane]
        lanes = getattr(state.configuration, parameter)
        _check_lane(doing, plan, bounds, axis, tile, lanes, f"{family.mnemonic} takes", parameter)


def _check_window(
    doing: str,
    stage: Stage,
    state: State,
    found: Match,
    plan: StagePlan,
    bounds: Bounds,
    tile: Mapping[str, int],
) -> None:
    """The instruction must contain all of a sliding window."""
    window, configuration = window_of(stage.compute, found), state.configuration
    assert window is not None
    assert configuration is not None
    if not state.arena:
        raise ScheduleError(
            f"{doing}: the sums of a window that slides need rows of ACC between the outputs; add "
            "`arena()`, which leaves room for them"
        )
    if tile[window.tap] != stage.compute.extents[window.tap]:
        raise ScheduleError(
            f"{doing}: a window slides over all of `{window.tap}`; keep that loop inside"
        )
    axis = stage.axes[-1]
    for parameter in ("lanes_in", "lanes_out"):
        lanes = getattr(configuration, parameter)
        _check_lane(doing, plan, bounds, axis, tile, lanes, "a window takes", parameter)


def _check_operands(doing: str, stage: Stage, pattern: Pattern, found: Match) -> None:
    """Every operand must move with exactly the lanes of its law, one element per lane."""
    mnemonic = pattern.family.mnemonic
    for lane, axis in lane_axes(pattern, stage.compute, found).items():
        for slot, read in found.reads:
            follows = {
                dimension - len(read.index): dict(affine.terms)[axis]
                for dimension, affine in enumerate(read.index)
                if axis in dict(affine.terms)
            }
            wanted = {slot.lanes.index(lane) - len(slot.lanes): 1} if lane in slot.lanes else {}
            if follows != wanted:
                shown = ", ".join(("..", *slot.lanes))
                raise ScheduleError(
                    f"{doing}: {mnemonic} takes `{slot.operand}` as [{shown}], but `{axis}` does "
                    f"not move `{read}` like its lane `{lane}`; give the tensor another order of "
                    "dimensions"
                )


def _check_lane(
    doing: str,
    plan: StagePlan,
    bounds: Bounds,
    axis: str,
    tile: Mapping[str, int],
    lanes: int,
    taker: str,
    parameter: str,
) -> None:
    """Every tile of the axis must start at a multiple of the lanes, and have such an extent."""
    needed = f"{taker} `{axis}` in lanes of {lanes} (`{parameter}`)"
    whole = plan.stage.compute.extents[axis]
    if whole % lanes:
        raise ScheduleError(f"{doing}: {needed}, but its extent is {whole}; declare it padded")
    if tile[axis] % lanes:
        raise ScheduleError(
            f"{doing}: {needed}, but the tile has {tile[axis]}; split `{axis}` by a multiple of "
            f"{lanes} and keep the inner loop inside"
        )
    fixed = plan.bound(plan.stage.loops.index(plan.stage.instruction))
    low = bounds.interval(variable(qualified(plan.stage.name, axis)), fixed).low
    steps = [low.constant, *(factor for _, factor in low.terms)]
    ends = [plan.extents[loop] for loop in _cut_loops(plan, axis)]
    if any(step % lanes for step in (*steps, *ends)):
        raise ScheduleError(
            f"{doing}: {needed}, but some tiles start or end inside a lane block; split `{axis}` "
            f"by multiples of {lanes}"
        )


def _cut_loops(plan: StagePlan, axis: str) -> list[str]:
    """Loops whose last block is cut off, because a split does not divide the extent."""
    cut = []
    for relation in plan.stage.relations:
        if isinstance(relation, Fusion) or axis not in plan.stage.origins(relation.parent):
            continue
        if plan.extents[relation.parent] % relation.factor:
            cut.append(relation.parent)
    return cut

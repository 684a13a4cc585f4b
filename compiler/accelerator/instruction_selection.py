"""Check that a nest is one instruction: operands in place, full lanes, whole boxes."""

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Match
from ...isa.patterns import Pattern, patterns_of
from ..te.affine import variable
from ..te.bounds import Bounds, StagePlan, spans
from ..te.matching import steps_along
from ..te.stages import Fusion, Stage, State, qualified
from ..te.target import ScheduleError
from ..tensor import Compute
from .exactness import check_exact, check_inside, reads_at_edges
from .matching import MatchedInstruction, find_pattern, lane_axes
from .sliding import window_of


def matched_instruction(
    stage: Stage, state: State, configuration: Configuration
) -> MatchedInstruction:
    """The instruction that computes a tensorised stage, whatever the sizes of its loops.

    Raises
    ------
    ScheduleError
        When there is none, an operand is in the wrong memory, or the instruction would change the
        value or cannot read an operand in this order.
    """
    names = (stage.name, *(read.tensor for read in stage.reads))
    places = {name: (Memory[state.scope(name)],) for name in names}
    try:
        pattern, found = find_pattern(stage.compute, places, patterns_of(configuration))
    except CompileError as error:
        raise ScheduleError(f"{error}; see `set_scope` and `cache_read`") from error
    opened = stage.loops.index(stage.instruction)
    outside = [loop for loop in stage.loops[:opened] if stage.reduces(loop)]
    if outside and not pattern.family.continue_field:
        raise ScheduleError(
            f"{pattern.family.mnemonic} cannot add to an earlier sum; move the reduction loop "
            f"`{outside[0]}` inside `{stage.instruction}`"
        )
    check_exact(stage, state, found, pattern.family)
    window = window_of(stage.compute, found) if pattern.window else None
    lanes: dict[str, tuple[str, ...]] = {stage.axes[-1]: ("lanes_in", "lanes_out")}
    if window is None:
        axes = lane_axes(pattern, stage.compute, found)
        lanes = {axis: (pattern.lanes[lane],) for lane, axis in axes.items() if axis is not None}
        check_operands(stage.compute, pattern, found)
        if pattern.passes and not state.arena:
            raise ScheduleError(
                "statistics of rows need rows of ACC and of PARAM; add `arena()`, which leaves "
                "room for them"
            )
    elif not state.arena:
        raise ScheduleError(
            "the sums of a window that slides need rows of ACC between the outputs; add "
            "`arena()`, which leaves room for them"
        )
    return MatchedInstruction(pattern, found, window, lanes, reads_at_edges(stage, state))


def check_sizes(
    matched: MatchedInstruction,
    stage: Stage,
    state: State,
    bounds: Bounds,
    configuration: Configuration,
) -> None:
    """Refuse loops whose sizes do not fit the instruction of their stage.

    Raises
    ------
    ScheduleError
        When they do not; the message has the mismatch.
    """
    opened = stage.loops.index(stage.instruction)
    mnemonic, window = matched.mnemonic, matched.window
    plan = bounds.plans[stage.name]
    tile = spans(plan, opened)
    if tile is None:
        raise ScheduleError(
            f"the loops {', '.join(stage.loops[opened:])} do not cover a box; if the outer part of "
            "a split or fused loop is inside, its inner part must be inside too"
        )
    check_inside(matched.edges, state, bounds, mnemonic)
    for slide, _ in () if window is None else window.slides(configuration):
        if tile[slide.tap] != stage.compute.extents[slide.tap]:
            raise ScheduleError(f"a window slides over all of `{slide.tap}`; keep that loop inside")
    row = stage.axes[-1]
    if matched.pattern.passes and tile[row] != stage.compute.extents[row]:
        raise ScheduleError(f"statistics are of all of `{row}`; keep that loop inside")
    taker = f"{mnemonic} takes" if window is None else "a window takes"
    for axis, parameters in matched.lanes.items():
        for parameter in parameters:
            lanes = getattr(configuration, parameter)
            needed = f"{taker} `{axis}` in lanes of {lanes} (`{parameter}`)"
            _check_lane(plan, bounds, axis, tile[axis], lanes, needed)


def check_operands(compute: Compute, pattern: Pattern, found: Match) -> None:
    """Every operand must move with exactly the lanes of its law, one element per lane."""
    mnemonic = pattern.family.mnemonic
    for lane, axis in lane_axes(pattern, compute, found).items():
        for slot, read in found.reads:
            follows = steps_along(read, axis) if axis else {}
            wanted = {slot.lanes.index(lane) - len(slot.lanes): 1} if lane in slot.lanes else {}
            if follows != wanted:
                shown = ", ".join(("..", *slot.lanes))
                raise ScheduleError(
                    f"{mnemonic} takes `{slot.operand}` as [{shown}], but `{axis}` does "
                    f"not move `{read}` like its lane `{lane}`; give the tensor another order of "
                    "dimensions"
                )


def _check_lane(
    plan: StagePlan, bounds: Bounds, axis: str, size: int, lanes: int, needed: str
) -> None:
    """Every tile of the axis must start at a multiple of the lanes, and have such an extent."""
    whole = plan.stage.compute.extents[axis]
    if whole % lanes:
        raise ScheduleError(f"{needed}, but its extent is {whole}; declare it padded")
    if size % lanes:
        raise ScheduleError(
            f"{needed}, but the tile has {size}; split `{axis}` by a multiple of {lanes} and keep "
            "the inner loop inside"
        )
    fixed = plan.bound(plan.stage.loops.index(plan.stage.instruction))
    low = bounds.interval(variable(qualified(plan.stage.name, axis)), fixed).low
    steps = [low.constant, *(factor for _, factor in low.terms)]
    ends = [plan.extents[loop] for loop in _cut_loops(plan, axis)]
    if any(step % lanes for step in (*steps, *ends)):
        raise ScheduleError(
            f"{needed}, but some tiles start or end inside a lane block; split `{axis}` "
            f"by multiples of {lanes}"
        )


def _cut_loops(plan: StagePlan, axis: str) -> list[str]:
    """Loops whose last block is cut off, because a split does not divide the extent."""
    cut = []
    for relation in plan.stage.relations:
        if isinstance(relation, Fusion) or axis not in plan.stage.origins(relation.parent):
            continue
        if (plan.extents[relation.parent] + relation.lead) % relation.factor:
            cut.append(relation.parent)
    return cut

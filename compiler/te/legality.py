"""The rules for every schedule, checked after each step."""

from ...isa.expressions import Literal, reads_of
from .bounds import Bounds, infer_bounds
from .carry import check_carried
from .reductions import with_reduction
from .stage_steps import Tensorise
from .stages import Stage, State, qualified
from .steps import Step, blame
from .target import Kind, ScheduleError


def check_state(state: State, step: Step, known: Bounds | None = None) -> Bounds | None:
    """Refuse a state without a loop program that computes the kernel.

    Parameters
    ----------
    step
        The step that led to the state, for the message.
    known
        The bounds of a legal state that differs only in numbers; what does not depend on them is
        not checked again.

    Returns
    -------
    The bounds, if they had to be inferred.

    Raises
    ------
    ScheduleError
        When the state is illegal; the message names stage and loop.
    """
    rolling = [stage for stage in state.stages if stage.ahead is not None]
    tensorised = [stage for stage in state.stages if stage.instruction]
    if known is None:
        with blame(step):
            for stage in state.stages:
                _check_vectorised(stage)
                _check_place(stage, state)
                if stage.carried:
                    check_carried(stage, state)
            for stage in rolling:
                _check_ring(stage, state)
    if not tensorised and not rolling:
        return None
    bounds = infer_bounds(state, known)
    with blame(step):
        for stage in rolling:
            _check_forward(stage, state, bounds)
        for stage in tensorised:
            _check_tensorised(stage, state, bounds, step)
    return bounds


def _check_tensorised(stage: Stage, state: State, bounds: Bounds, step: Step) -> None:
    text = Tensorise(stage.name, stage.instruction)
    try:
        for inside in stage.loops[stage.loops.index(stage.instruction) :]:
            for attached in state.attached(stage.name, inside):
                raise ScheduleError(
                    f"`{attached.name}` is computed at `{inside}`, inside the instruction; compute "
                    "it further out"
                )
        state.target.check(stage, state, bounds)
    except ScheduleError as error:
        if step == text:
            raise
        raise ScheduleError(f"`{text}` would no longer hold: {error}") from error


def _check_vectorised(stage: Stage) -> None:
    for loop in stage.loops[:-1]:
        if stage.kind(loop) is Kind.VECTORISED and not stage.has_lanes(loop):
            raise ScheduleError(
                f"the vectorised loop `{loop}` of `{stage.name}` must be its innermost; "
                f"the loops are {', '.join(stage.loops)}"
            )


def _check_place(stage: Stage, state: State) -> None:
    """All readers of a stage must be inside the loop in which it is computed."""
    if stage.place is None:
        return
    consumer = state.stage(stage.place.consumer)
    inside = consumer.loops.index(stage.place.loop)
    for reader in state.readers(stage.name):
        if reader.name == consumer.name:
            if consumer.nested and not stage.carried and inside >= consumer.first_reduction:
                _check_finish(stage, consumer)
        elif not _stands_inside(reader, stage.place.consumer, inside, state):
            raise ScheduleError(
                f"`{reader.name}` reads `{stage.name}` outside the loop "
                f"`{stage.place.loop}` of `{stage.place.consumer}`; compute `{stage.name}` further "
                f"out, or `{reader.name}` inside that loop"
            )


def _check_ring(stage: Stage, state: State) -> None:
    """A ring of rows must be in a scope for rings and have one reader, which advances."""
    readers = state.readers(stage.name)
    rings = [name for name, scope in state.target.scopes.items() if scope.has_rings]
    if stage.place is None or len(readers) != 1 or stage.scope not in rings:
        raise ScheduleError(
            f"`{stage.name}` rolls, so it must lie in {' or '.join(rings)} and be computed at a "
            "loop of its one reader"
        )


def _check_forward(stage: Stage, state: State, bounds: Bounds) -> None:
    """The reader of a ring must not go back to rows that were dropped."""
    rolling = bounds.plans[stage.name].rolling
    assert rolling is not None
    moving = [name for name, _ in rolling.first.terms]
    if rolling.whole or not moving:
        return
    anew = bounds.behind(rolling.others)
    for variable, extent, kind in _restarting(stage, state, bounds):
        forward = kind.keeps_order
        if variable == moving[0]:
            if forward:
                return
        elif extent == 1 or variable in anew:
            continue
        raise ScheduleError(
            f"`{stage.name}` rolls forward only, and the loop `{variable}` makes its "
            f"reader go back to rows that are dropped; let `{moving[0]}` be a serial loop outside "
            "of it"
        )


def _restarting(stage: Stage, state: State, bounds: Bounds) -> list[tuple[str, int, Kind]]:
    """Loops around a stage, outermost first, without loops in which its ring continues."""
    found: list[tuple[str, int, Kind]] = []
    kept: set[str] | None = None
    while stage.place is not None:
        consumer = next(one for one in state.stages if one.name == stage.place.consumer)
        plan = bounds.plans[consumer.name]
        own = consumer.loops[: consumer.loops.index(stage.place.loop) + 1]
        names = ((qualified(consumer.name, loop), loop) for loop in own)
        found[:0] = [
            (name, plan.extents[loop], consumer.kind(loop))
            for name, loop in names
            if kept is None or name in kept
        ]
        if plan.rolling is not None:
            kept = bounds.behind(plan.rolling.others)
        stage = consumer
    return found


def _stands_inside(reader: Stage, consumer: str, position: int, state: State) -> bool:
    """Whether a stage is computed in a loop of the consumer at or inside that position."""
    while reader.place is not None:
        around = state.stage(reader.place.consumer)
        if around.name == consumer:
            return around.loops.index(reader.place.loop) >= position
        reader = around
    return False


def _check_finish(stage: Stage, consumer: Stage) -> None:
    """A stage that is read after a reduction must be computed outside the reduction."""
    after = with_reduction(consumer.body, Literal(0))
    if any(read.tensor == stage.name for read in reads_of(after)):
        loop = consumer.loops[consumer.first_reduction]
        raise ScheduleError(
            f"`{consumer.name}` reads `{stage.name}` after its reduction, outside "
            f"the reduction loop `{loop}`; compute it further out"
        )

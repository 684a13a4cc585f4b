"""What holds of every schedule, checked after each step."""

from collections.abc import Sequence

from ...isa.expressions import Call, Expression, Read
from .bounds import infer_bounds
from .stages import Kind, ScheduleError, Stage, State
from .tensorised import check_tensorised


def check_state(state: State, doing: str) -> None:
    """Refuse a state that has no loop program of the kernel's meaning.

    Parameters
    ----------
    doing
        The step that led there, for the message.

    Raises
    ------
    ScheduleError
        Naming stage and loop.
    """
    read = {stage.name: {one.tensor for one in stage.reads()} for stage in state.stages}
    for stage in state.stages:
        _check_vectorised(stage, doing)
        readers = [reader for reader in state.stages if stage.name in read[reader.name]]
        _check_place(stage, readers, state, doing)
    tensorised = [stage for stage in state.stages if stage.instruction]
    if tensorised:
        bounds = infer_bounds(state)
        for stage in tensorised:
            check_tensorised(stage, state, bounds, doing)


def _check_vectorised(stage: Stage, doing: str) -> None:
    for position, loop in enumerate(stage.loops[:-1]):
        inside = stage.loops[position + 1 :]
        taps = loop == stage.instruction and all(map(stage.reduces, inside))
        if stage.kind(loop) is Kind.VECTORISED and not taps:
            raise ScheduleError(
                f"{doing}: the vectorised loop `{loop}` of `{stage.name}` must be its innermost; "
                f"the loops are {', '.join(stage.loops)}"
            )


def _check_place(stage: Stage, readers: Sequence[Stage], state: State, doing: str) -> None:
    """All readers of a stage stand inside the loop that it is computed in."""
    if stage.place is None:
        return
    consumer = state.stage(stage.place.consumer, doing)
    inside = consumer.loops.index(stage.place.loop)
    for reader in readers:
        if reader.name == consumer.name:
            if consumer.nested and inside >= consumer.first_reduction:
                _check_finish(stage, consumer, doing)
        elif not _stands_inside(reader, stage.place.consumer, inside, state, doing):
            raise ScheduleError(
                f"{doing}: `{reader.name}` reads `{stage.name}` outside the loop "
                f"`{stage.place.loop}` of `{stage.place.consumer}`; compute `{stage.name}` further "
                f"out, or `{reader.name}` inside that loop"
            )


def _stands_inside(reader: Stage, consumer: str, position: int, state: State, doing: str) -> bool:
    """Whether a stage is computed in a loop of the consumer, at that position or further in."""
    while reader.place is not None:
        around = state.stage(reader.place.consumer, doing)
        if around.name == consumer:
            return around.loops.index(reader.place.loop) >= position
        reader = around
    return False


def _check_finish(stage: Stage, consumer: Stage, doing: str) -> None:
    """What is read after a reduction must be computed outside of it."""
    if any(read.tensor == stage.name for read in _read_after(consumer.body)):
        loop = consumer.loops[consumer.first_reduction]
        raise ScheduleError(
            f"{doing}: `{consumer.name}` reads `{stage.name}` after its reduction, outside "
            f"the reduction loop `{loop}`; compute it further out"
        )


def _read_after(tree: Expression) -> tuple[Read, ...]:
    if isinstance(tree, Read):
        return (tree,)
    if isinstance(tree, Call):
        return tuple(read for part in tree.arguments for read in _read_after(part))
    return ()

"""Reductions that advance with the loop of another one, so that an online softmax is a schedule.

Stages inside the loop read the maximum so far. A sum of terms `exp(x - maximum)` stays relative to
it: when it grows, the sum is multiplied by `exp(old - new)`, up to rounding the same as if the
maximum had been known before.
Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from ...isa.expressions import (
    Affine,
    Call,
    Expression,
    Literal,
    Op,
    Read,
    Real,
    Reduction,
    reads_of,
)
from .affine import scaled, total
from .reductions import has_reduction, reduction_of, with_reduction
from .stage_steps import ComputeAt
from .stages import Division, Stage, State
from .steps import Step
from .target import Kind, ScheduleError

POWERS = (Op.EXP, Op.DECAY)


@dataclass(frozen=True, slots=True)
class Carry(Step):
    """Advance a stage's reduction with the consumer's loop: each iteration adds its share."""

    stage: str
    consumer: str
    loop: str

    @override
    def apply(self, state: State) -> State:
        if any(scope.has_rings for scope in state.target.scopes.values()):
            raise ScheduleError(
                f"{state.target.name} does not carry reductions; compute `{self.stage}` before "
                "the loop"
            )
        moved = ComputeAt(self.stage, self.consumer, self.loop).apply(state)
        return moved.with_stage(moved.stage(self.stage).changed(carried=True))


def carried_axis(stage: Stage, state: State) -> str:
    """The consumer's reduction axis along which a stage is carried."""
    assert stage.place is not None
    consumer = state.stage(stage.place.consumer)
    (axis,) = consumer.origins(stage.place.loop)
    return axis


def running_maximum(stage: Stage, state: State) -> Read | None:
    """Return the carried maximum to which the terms of a sum are relative, in the sum's axes."""
    stages = {one.name: one for one in state.stages}

    def behind(read: Read) -> Read | None:
        """The maximum behind a power, or behind a copy of it."""
        made = stages.get(read.tensor)
        if made is None or has_reduction(made.body):
            return None
        at = dict(zip(made.axes, read.index, strict=True))
        for inner in made.reads:
            most = stages.get(inner.tensor)
            index = tuple(_composed(part, at) for part in inner.index)
            if most is not None and most.carried and _is_maximum(most):
                return Read(inner.tensor, index)
            if isinstance(made.body, Read):
                return behind(Read(inner.tensor, index))
        return None

    reads = reads_of(reduction_of(stage.body)) if stage.reductions else ()
    return next(filter(None, map(behind, reads)), None)


def _composed(part: Affine, at: dict[str, Affine]) -> Affine:
    return total(*(scaled(at[name], factor) for name, factor in part.terms), part.constant)


def _is_maximum(stage: Stage) -> bool:
    return isinstance(stage.body, Reduction) and stage.body.op is Op.MAXIMUM


def check_carried(stage: Stage, state: State) -> None:
    """Refuse a loop that cannot advance the reduction, and readers that need its final result."""
    assert stage.place is not None
    consumer, loop = state.stage(stage.place.consumer), stage.place.loop
    if not isinstance(stage.body, Reduction) or len(stage.reductions) != 1:
        raise ScheduleError(
            f"`{stage.name}` is not one sum or maximum over one axis, so it cannot be carried; "
            "compute the rest of its expression in a stage of its own"
        )
    extents = {axis.name: axis.extent for axis in consumer.reductions}
    axis = _advancing_axis(consumer, loop)
    if axis is None or consumer.loops[consumer.first_reduction] != loop:
        raise ScheduleError(
            f"`{stage.name}` is carried by `{loop}`, which must be the outermost reduction loop of "
            f"`{consumer.name}`, serial, and run through blocks of one axis in order"
        )
    (own,) = stage.reductions
    if own.extent != extents[axis]:
        raise ScheduleError(
            f"`{stage.name}` reduces {own.extent} elements and `{consumer.name}` {extents[axis]}, "
            "so one loop cannot advance both"
        )
    for reader in state.readers(stage.name):
        if not (reader is consumer and _only_after(stage.name, reader)):
            _check_running(stage, reader, state)


def _advancing_axis(consumer: Stage, loop: str) -> str | None:
    """The reduction axis through whose blocks a loop runs in order, if it does."""
    if not consumer.reduces(loop) or consumer.kind(loop) is not Kind.SERIAL:
        return None
    parents = {r.outer: r.parent for r in consumer.relations if isinstance(r, Division)}
    while loop in parents:
        loop = parents[loop]
    return loop if loop in {axis.name for axis in consumer.reductions} else None


def _only_after(name: str, consumer: Stage) -> bool:
    """Whether a stage is read after the consumer's reduction alone, where its result is known."""
    return all(read.tensor != name for read in reads_of(reduction_of(consumer.body)))


def _check_running(most: Stage, power: Stage, state: State) -> None:
    """Refuse readers of a partial result whose own results later iterations could not correct."""
    if not (_is_maximum(most) and most.output.dtype == "float32" and is_power(power, most.name)):
        raise ScheduleError(
            f"`{power.name}` reads `{most.name}` before it is complete; only `exp(x - maximum)` "
            f"may, so compute `{most.name}` before the loop"
        )
    _check_sums(most, power, state)


def _check_sums(most: Stage, power: Stage, state: State) -> None:
    """Refuse readers of powers, or of their copies, unless they are sums that are rescaled."""
    for reader in state.readers(power.name):
        if isinstance(reader.body, Read):
            _check_sums(most, reader, state)
            continue
        relative = is_relative(reader, power.name)
        advances = reader.carried and reader.place == most.place
        is_consumer = most.place is not None and reader.name == most.place.consumer
        if not (relative and (advances or is_consumer)):
            raise ScheduleError(
                f"`{reader.name}` reads `{power.name}`, which is relative to the maximum so far; "
                "only sums of its products that the same loop carries may read it"
            )
        found = running_maximum(reader, state)
        reduced = {axis.name for axis in reader.reductions}
        if found is None or any(name in reduced for part in found.index for name, _ in part.terms):
            raise ScheduleError(
                f"`{reader.name}` sums terms that are relative to different elements of "
                f"`{most.name}`; reduce both over the same axis"
            )


def is_power(stage: Stage, most: str) -> bool:
    """Whether a stage is `exp(x - maximum)`."""
    body = stage.body
    if not (isinstance(body, Call) and body.op in POWERS):
        return False
    (inner,) = body.arguments
    if not (isinstance(inner, Call) and inner.op is Op.ADD):
        return False
    x, taken = inner.arguments
    negated = (
        isinstance(taken, Call)
        and taken.op is Op.MULTIPLY
        and isinstance(taken.arguments[0], Read)
        and taken.arguments[0].tensor == most
        and taken.arguments[1] in (Real(-1.0), Literal(-1))
    )
    return negated and all(read.tensor != most for read in reads_of(x))


def is_relative(stage: Stage, power: str) -> bool:
    """Whether a stage sums products with one factor of `power`."""
    if not has_reduction(stage.body) or reduction_of(stage.body).op is not Op.ADD:
        return False
    factors = list(_factors(reduction_of(stage.body).body))
    direct = sum(isinstance(one, Read) and one.tensor == power for one in factors)
    inside = [read for one in factors for read in reads_of(one) if read.tensor == power]
    after = reads_of(with_reduction(stage.body, Literal(0)))
    return direct == len(inside) == 1 and all(read.tensor != power for read in after)


def _factors(tree: Expression) -> Iterator[Expression]:
    if isinstance(tree, Call) and tree.op is Op.MULTIPLY:
        for part in tree.arguments:
            yield from _factors(part)
    else:
        yield tree

"""Build the loop program of a schedule's state."""

import math
from collections.abc import Iterator
from dataclasses import replace

from ...isa.expressions import Affine, Call, Expression, Op, Read, Real, reads_of
from ..tensor import Tensor, element_type
from .affine import scaled, total, variable, with_names
from .bounds import Bounds, StagePlan, infer_bounds, spans
from .box import extents_of
from .carry import running_maximum
from .nodes import (
    Allocate,
    Assign,
    Block,
    Condition,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    Node,
    TransferNest,
    Update,
)
from .program import Program
from .reductions import reduction_of, with_reduction
from .stages import Stage, State, qualified
from .target import REGISTER


def build_program(state: State, bounds: Bounds | None = None) -> Program:
    """The loop program: a nest per stage, at the root or at the stage's `compute_at` loop.

    Parameters
    ----------
    bounds
        The state's bounds, if they are known.
    """
    body = _Builder(state, bounds or infer_bounds(state)).root()
    return Program(state.kernel, state.tensors, state.domains, body)


class _Builder:
    def __init__(self, state: State, bounds: Bounds) -> None:
        self.state, self.bounds = state, bounds

    def root(self) -> Block:
        rings = (plan for plan in self.bounds.plans.values() if plan.rolling is not None)
        slots = 0 if self.state.arena else 1
        return (
            *map(_ring, rings),
            *(
                node
                for stage in self.state.stages
                if stage.place is None
                for node in self.placed(stage, slots)
            ),
        )

    def placed(self, stage: Stage, slots: int) -> tuple[Node, ...]:
        """The buffer of a stage and its nest; a ring is already allocated."""
        plan = self.bounds.plans[stage.name]
        if self.state.attached(stage.name):
            return tuple(self._nodes(stage, plan, slots))
        if slots not in plan.built:
            plan.built[slots] = tuple(self._nodes(stage, plan, slots))
        return plan.built[slots]

    def _nodes(self, stage: Stage, plan: StagePlan, slots: int) -> Iterator[Node]:
        if plan.rolling is None and not stage.carried:
            yield _buffer(plan, stage.output, slots)
        yield Nest(
            stage=stage.name,
            axes=stage.axes,
            reductions=stage.reductions,
            domain=stage.domain,
            compute=None if stage.source else stage.compute,
            place=stage.place,
            body=_StageBuilder(self, plan, slots).level(0),
        )


def _buffer(plan: StagePlan, tensor: Tensor, slots: int) -> Allocate:
    """The buffer for the box of a stage."""
    origin = tuple(part.low for part in plan.box)
    shape = tuple(part.extent for part in plan.box)
    return Allocate(tensor, plan.stage.scope, origin, shape, slots)


def _ring(plan: StagePlan) -> Allocate:
    """The buffer of a rolling stage; it lives as long as the program."""
    stage = plan.stage
    origin = tuple(Affine((), low) for low, _ in stage.domain)
    shape = extents_of(stage.domain)
    return Allocate(stage.output, stage.scope, origin, shape, 1, plan.rolling)


class _StageBuilder:
    """Builds the nest of one stage from the outside in; `slots` comes from `pipeline`."""

    def __init__(self, builder: _Builder, plan: StagePlan, slots: int) -> None:
        self.builder, self.plan, self.stage = builder, plan, plan.stage
        self.slots = [slots]
        for loop in self.stage.loops:
            asked = dict(self.stage.depths).get(loop, 0)
            least = 1 if builder.state.arena else 2
            self.slots.append(asked if asked >= least else self.slots[-1])
        self.wrapped = self.wrapper_position()
        self.apart = self.stage.nested or self.stage.carried or self.sums_are_few()

    def wrapper_position(self) -> int | None:
        """Position of the loop at which the instruction starts, or the transfer of a copy."""
        stage = self.stage
        if stage.instruction:
            return stage.loops.index(stage.instruction)
        if not stage.source:
            return None
        attached = self.builder.state.attached(stage.name)
        places = [stage.loops.index(s.place.loop) + 1 for s in attached if s.place is not None]
        position = max(places, default=0)
        while spans(self.plan, position) is None:
            position += 1
        return position

    def sums_are_few(self) -> bool:
        """Whether the sums stay in registers until they are complete."""
        stage, most = self.stage, self.builder.state.target.max_register_sums
        if not most or not stage.reductions or stage.scope == REGISTER:
            return False
        return math.prod(self.partial_box()[1]) <= most

    def level(self, opened: int) -> Block:
        """The nodes inside the outermost `opened` loops."""
        content: list[Node] = []
        if opened:
            attached = self.builder.state.attached(self.stage.name, self.stage.loops[opened - 1])
            for stage in attached:
                content += self.builder.placed(stage, self.slots[opened])
            if any(stage.carried for stage in attached):
                content += self.rescaled(opened)
        inner = self.rest(opened)
        if opened == self.wrapped:
            if self.stage.source:
                inner = (TransferNest(self.stage.source, inner),)
            else:
                state, bounds = self.builder.state, self.builder.bounds
                found = state.target.instruction(self.stage, state, bounds)
                inner = (InstructionNest(found, inner),)
        return self.bound(opened, (*content, *inner))

    def bound(self, opened: int, content: Block) -> Block:
        """Add the bindings and guards that apply once `opened` loops are open."""
        for binding in reversed(self.plan.bindings[opened]):
            if binding.conditions:
                content = (Guard(binding.conditions, content),)
            if binding.let is not None:
                content = (binding.let, *content)
        return content

    def rest(self, opened: int) -> Block:
        stage = self.stage
        if opened == len(stage.loops):
            return self.statement()
        loop = (self.loop(opened, self.level(opened + 1)),)
        if opened != stage.first_reduction:
            return loop
        loop = (*self.carried(stage.loops[opened]), *loop)
        if self.apart:
            return (self.partial(), *loop, *self.each(opened, self.result()))
        return loop

    def loop(self, position: int, body: Block) -> For:
        name = self.stage.loops[position]
        return For(
            qualified(self.stage.name, name),
            self.plan.starts.get(name, Affine()),
            self.plan.extents[name],
            self.stage.kind(name),
            self.stage.depth(name),
            body,
            self.plan.rolling if position == 0 else None,
        )

    # Reductions ----------------------------------------------------------------------------------

    @property
    def partial_name(self) -> str:
        """The tensor of partial sums."""
        reduction = reduction_of(self.stage.body)
        name = f"{self.stage.name}.{'sum' if reduction.op is Op.ADD else 'max'}"
        while name in self.builder.state.tensors:
            name += "_"
        return name

    def statement(self) -> Block:
        stage = self.stage
        if not stage.reductions:
            return (Assign(stage.element, stage.value),)
        reduction = reduction_of(stage.value)
        first = tuple(qualified(stage.name, axis.name) for axis in stage.reductions)
        if not stage.carried:
            return (Update(self.sums, reduction.op, reduction.body, first),)
        start = self.plan.starts[stage.reductions[0].name]
        place = Let(f"{first[0]}.share", total(variable(first[0]), scaled(start, -1)))
        return place, Update(self.sums, reduction.op, reduction.body, (place.variable,))

    @property
    def sums(self) -> Read:
        return self.partial_sum if self.apart else self.stage.element

    @property
    def partial_sum(self) -> Read:
        """The partial sum of the element that an iteration computes."""
        return Read(self.partial_name, self.stage.element.index)

    def partial(self) -> Allocate:
        """The buffer of the partial sums."""
        reduction = reduction_of(self.stage.body)
        dtype = element_type(reduction, self.builder.state.tensors)
        tensor = Tensor(self.partial_name, dtype, self.stage.output.shape)
        return Allocate(tensor, REGISTER, *self.partial_box(), 1)

    def partial_box(self) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
        """Origin and shape of the sums that are formed side by side."""
        fixed = self.plan.bound(self.stage.first_reduction)
        box = [self.builder.bounds.interval(index, fixed) for index in self.stage.element.index]
        return tuple(part.low for part in box), tuple(part.extent for part in box)

    def result(self) -> Block:
        """Use the sums of an element."""
        stage = self.stage
        if not stage.carried:
            return (Assign(stage.element, with_reduction(stage.value, self.partial_sum)),)
        assert stage.place is not None
        begins, goes_on = _iterations(qualified(*stage.place))
        known, share, decay = stage.element, self.partial_sum, self.decay()
        if reduction_of(stage.body).op is Op.ADD:
            kept = known if decay is None else Call(Op.MULTIPLY, (known, decay))
            rest: Block = (Assign(known, Call(Op.ADD, (kept, share))),)
        else:
            most = Call(Op.MAXIMUM, (known, share))
            change = Call(Op.ADD, (known, Call(Op.MULTIPLY, (most, Real(-1.0)))))
            factor = Assign(Read(decay_name(stage), known.index), Call(Op.DECAY, (change,)))
            rest = (factor, Assign(known, most))
        return Guard((begins,), (Assign(known, share),)), Guard((goes_on,), rest)

    def each(self, opened: int, content: Block) -> Block:
        """Repeat the data loops from a position on, around statements for each element."""
        if opened == len(self.stage.loops):
            return content
        if self.stage.reduces(self.stage.loops[opened]):
            return self.each(opened + 1, content)
        inner = self.bound(opened + 1, self.each(opened + 1, content))
        return (self.loop(opened, inner),)

    # Carried reductions --------------------------------------------------------------------------

    def carried(self, loop: str) -> Iterator[Node]:
        """The buffers of the stages that a loop carries."""
        for stage in self.builder.state.attached(self.stage.name, loop):
            if stage.carried:
                plan = self.builder.bounds.plans[stage.name]
                yield _buffer(plan, stage.output, 1)
                if reduction_of(stage.body).op is not Op.ADD:
                    yield _buffer(plan, replace(stage.output, name=decay_name(stage)), 1)

    def decay(self) -> Read | None:
        """The factor that rescales the sums when the maximum behind their terms grows."""
        read = running_maximum(self.stage, self.builder.state)
        if read is None:
            return None
        most = self.builder.state.stage(read.tensor)
        named = with_names(read, lambda axis: qualified(self.stage.name, axis))
        return Read(decay_name(most), reads_of(named)[0].index)

    def rescaled(self, opened: int) -> Block:
        """Rescale the sums, once the carried stages of an iteration are computed."""
        decay = self.decay()
        if decay is None:
            return ()
        _, goes_on = _iterations(qualified(self.stage.name, self.stage.loops[opened - 1]))
        value: Expression = Call(Op.MULTIPLY, (self.sums, decay))
        return (Guard((goes_on,), self.each(opened, (Assign(self.sums, value),))),)


def _iterations(loop: str) -> tuple[Condition, Condition]:
    """The conditions of a loop's first iteration, and of all others."""
    return Condition(variable(loop), None, 1), Condition(variable(loop), 1, None)


def decay_name(stage: Stage) -> str:
    """Return the name of the tensor of factors that rescale sums in an iteration."""
    return f"{stage.name}.decay"

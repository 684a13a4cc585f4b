"""Steps on the loops of one stage: split, fuse, reorder, how a loop is run, pipeline."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from .stages import Division, Fusion, Stage, State
from .steps import Step
from .target import BLOCKS, BOUND, Kind, ScheduleError


def _refuse_inside(stage: Stage, loop: str) -> None:
    """Refuse to change a loop inside an instruction."""
    if stage.instruction and stage.loops.index(loop) >= stage.loops.index(stage.instruction):
        raise ScheduleError(
            f"`{loop}` lies inside the instruction of `{stage.name}` that starts at "
            f"`{stage.instruction}`; do this before `tensorise`"
        )


def _refuse_marked(state: State, stage: Stage, loop: str) -> None:
    """Refuse to remove a loop with a kind, a depth, or an attached stage."""
    _refuse_inside(stage, loop)
    kind = stage.kind(loop)
    if kind is not Kind.SERIAL:
        raise ScheduleError(f"`{loop}` is {kind.value} already; do this before")
    if loop in dict(stage.depths):
        raise ScheduleError(f"`{loop}` is pipelined already; do this before")
    for attached in state.attached(stage.name, loop):
        raise ScheduleError(
            f"`{attached.name}` is computed at `{loop}`; do this before, or "
            f"`compute_root({attached.name})` first"
        )


def _related(
    state: State,
    stage: Stage,
    relation: Division | Fusion,
    old: tuple[str, ...],
    new: tuple[str, ...],
) -> State:
    """Replace neighbouring loops by related ones, whose names no loop of the stage has or had."""
    taken = {*stage.axes, *(axis.name for axis in stage.reductions)}
    taken.update(name for known in stage.relations for name in known.names)
    for name in new:
        if name in taken:
            raise ScheduleError(
                f"`{stage.name}` has, or had, a loop `{name}` already; rename an axis"
            )
    first = stage.position(old[0])
    loops = (*stage.loops[:first], *new, *stage.loops[first + len(old) :])
    return state.with_stage(stage.changed(loops=loops, relations=(*stage.relations, relation)))


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Split a loop into `loop.o` over blocks of `factor` and `loop.i` inside a block.

    The factor need not divide the extent; a guard cuts off the last block.
    """

    stage: str
    loop: str
    factor: int

    @property
    def division(self) -> Division:
        return Division(self.loop, self.factor)

    def apply(self, state: State) -> State:
        """Replace the loop by two loops."""
        stage = state.stage(self.stage)
        stage.position(self.loop)
        _refuse_marked(state, stage, self.loop)
        if self.factor < 1:
            raise ScheduleError(f"the factor must be at least 1, not {self.factor}")
        relation = self.division
        return _related(state, stage, relation, (self.loop,), relation.parts)


@dataclass(frozen=True, slots=True)
class SplitFirst(Split):
    """Split a loop like `split`, but let the first block have `first` iterations only.

    So what waits for the first block starts sooner.
    """

    first: int

    @property
    @override
    def division(self) -> Division:
        return Division(self.loop, self.factor, self.factor - self.first)

    @override
    def apply(self, state: State) -> State:
        after = Split.apply(self, state)
        if not 1 <= self.first <= self.factor:
            raise ScheduleError(
                f"the first block must have 1 to {self.factor} iterations, not {self.first}"
            )
        if state.stage(self.stage).reduces(self.loop):
            # Sums begin at element 0, which another order of the loops may not visit first.
            raise ScheduleError(
                f"`{self.loop}` is a reduction loop of `{self.stage}`, whose blocks are equal; "
                "choose a data loop, or `split`"
            )
        return after


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Fuse two neighbouring loops into one loop `outer_inner`."""

    stage: str
    outer: str
    inner: str

    def apply(self, state: State) -> State:
        """Replace the two loops by one loop."""
        stage = state.stage(self.stage)
        if stage.position(self.inner) != stage.position(self.outer) + 1:
            raise ScheduleError(
                f"`{self.inner}` must be directly inside `{self.outer}`; the loops of "
                f"`{self.stage}` are {', '.join(stage.loops)}; reorder them first"
            )
        for loop in (self.outer, self.inner):
            _refuse_marked(state, stage, loop)
        if stage.reduces(self.outer) != stage.reduces(self.inner):
            raise ScheduleError(
                f"a data loop and a reduction loop of `{self.stage}` cannot be one; fuse "
                "loops of one kind"
            )
        relation = Fusion(self.outer, self.inner)
        return _related(state, stage, relation, (self.outer, self.inner), (relation.fused,))


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Reorder the named loops among the positions that they occupy."""

    stage: str
    loops: tuple[str, ...]

    def apply(self, state: State) -> State:
        """Permute the named loops; the others keep their positions."""
        stage = state.stage(self.stage)
        positions = sorted(stage.position(loop) for loop in self.loops)
        if len(set(positions)) < len(positions):
            raise ScheduleError(f"a loop of `{self.stage}` is named twice; name each once")
        loops = list(stage.loops)
        for position, loop in zip(positions, self.loops, strict=True):
            if stage.loops[position] != loop:
                _refuse_inside(stage, loop)
            loops[position] = loop
        return state.with_stage(stage.changed(loops=tuple(loops)))


def _marked(state: State, name: str, loop: str, kind: Kind) -> State:
    """Let a loop run its iterations in another way than one after the other."""
    stage = state.stage(name)
    stage.position(loop)
    if kind is not Kind.UNROLLED and stage.reduces(loop):
        raise ScheduleError(
            f"`{loop}` is a reduction loop of `{name}`, whose iterations depend on "
            "each other; choose a data loop"
        )
    if kind not in state.target.kinds:
        raise ScheduleError(f"{state.target.name} has no {kind.value} loops")
    if not (kind in state.target.lane_kinds and stage.has_lanes(loop)):
        _refuse_inside(stage, loop)
    known = stage.kind(loop)
    if known is not Kind.SERIAL:
        raise ScheduleError(f"`{loop}` is {known.value} already; choose another loop")
    if loop in dict(stage.depths):
        raise ScheduleError(f"`{loop}` is pipelined, so it runs in order; choose another loop")
    return state.with_stage(stage.changed(kinds=(*stage.kinds, (loop, kind))))


@dataclass(frozen=True, slots=True)
class _Mark(Step):
    kind: ClassVar[Kind] = Kind.SERIAL
    stage: str
    loop: str

    @override
    def apply(self, state: State) -> State:
        return _marked(state, self.stage, self.loop, self.kind)


@dataclass(frozen=True, slots=True)
class Unroll(_Mark):
    """Unroll a loop: write out its iterations."""

    kind: ClassVar[Kind] = Kind.UNROLLED


@dataclass(frozen=True, slots=True)
class Vectorise(_Mark):
    """Vectorise the innermost data loop: run all its iterations at once."""

    kind: ClassVar[Kind] = Kind.VECTORISED


@dataclass(frozen=True, slots=True)
class Parallelise(_Mark):
    """Parallelise a data loop: run its iterations in any order, or at once."""

    kind: ClassVar[Kind] = Kind.PARALLEL


@dataclass(frozen=True, slots=True)
class Bind(Step):
    """Bind a data loop to a unit of a GPU: each of its iterations is a block or a thread.

    The thread loops of a nest together number the threads of a block, the innermost fastest.
    """

    stage: str
    loop: str
    unit: str

    @override
    def apply(self, state: State) -> State:
        units = {kind.value: kind for kind in BOUND}
        if self.unit not in units:
            raise ScheduleError(f"unknown unit `{self.unit}`; choose {' or '.join(units)}")
        kind = units[self.unit]
        for other, known in state.stage(self.stage).kinds:
            if known is kind and kind in BLOCKS:
                raise ScheduleError(
                    f"`{other}` of `{self.stage}` is bound to {self.unit} already; fuse the two "
                    "loops, or choose another unit"
                )
        return _marked(state, self.stage, self.loop, kind)


@dataclass(frozen=True, slots=True)
class Pipeline(Step):
    """Pipeline a loop: give `depth` slots to every buffer inside, so that iterations overlap."""

    stage: str
    loop: str
    depth: int

    def apply(self, state: State) -> State:
        """Set the depth; a later step may change it."""
        stage = state.stage(self.stage)
        stage.position(self.loop)
        _refuse_inside(stage, self.loop)
        if self.depth < 1:
            raise ScheduleError(f"the depth must be at least 1, not {self.depth}")
        kind = stage.kind(self.loop)
        if kind is not Kind.SERIAL:
            raise ScheduleError(
                f"`{self.loop}` is {kind.value}, but iterations overlap only if they run "
                "one after the other; pipeline a serial loop"
            )
        depths = {**dict(stage.depths), self.loop: self.depth}
        return state.with_stage(stage.changed(depths=tuple(depths.items())))

"""Steps on whole stages: caches, `compute_at`, scopes, and instructions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from typing_extensions import override

from ...isa.expressions import Affine, Read, Reduction, with_reads
from ..tensor import Axis, Tensor, element_type
from .affine import scaled, total, variable
from .box import extents_of, whole_box
from .reductions import reduction_of, with_reduction
from .stages import Place, Stage, State
from .steps import Step
from .target import DRAM, ScheduleError, Target


def check_scope(scope: str, tensor: Tensor, target: Target) -> None:
    """Refuse a scope that the target lacks, or that holds other element types."""
    fitting = [
        name
        for name, held in target.scopes.items()
        if not held.elements or tensor.dtype in held.elements
    ]
    if scope not in target.scopes:
        raise ScheduleError(
            f"{target.name} has no scope `{scope}`; its scopes are {', '.join(target.scopes)}"
        )
    if scope not in fitting:
        raise ScheduleError(
            f"`{tensor.name}` is {tensor.dtype}, but {scope} holds "
            f"{' or '.join(target.scopes[scope].elements)}; choose {' or '.join(fitting)}"
        )


@dataclass(frozen=True, slots=True)
class CacheRead(Step):
    """Copy the elements that stages read into `tensor.scope`, with the padding they need."""

    tensor: str
    scope: str
    readers: tuple[str, ...]

    def apply(self, state: State) -> State:
        """Insert the copy stage before its first reader."""
        readers = [self._reader(state, name) for name in self.readers]
        made = {stage.name: stage for stage in state.stages}.get(self.tensor)
        old = made.output if made else state.kernel.tensors[self.tensor]
        check_scope(self.scope, old, state.target)
        if made and made.place:
            raise ScheduleError(
                f"`{self.tensor}` is computed inside another stage; `compute_root` it first"
            )
        name = _unused(f"{self.tensor}.{self.scope}", state)
        whole = made.domain if made else whole_box(old.shape)
        reached = (reader.reach(reads, whole) for reader, reads in readers)
        domain = tuple(
            (min(low for low, _ in ends), max(high for _, high in ends))
            for ends in zip(*reached, strict=True)
        )
        shape = extents_of(domain)
        reader, reads = readers[0]
        axes = _axis_names(reader, reads[0], len(shape))
        copy = Stage(
            output=Tensor(name, old.dtype, shape, old.pad),
            axes=axes,
            domain=domain,
            reductions=(),
            body=Read(self.tensor, tuple(map(variable, axes))),
            source=self.tensor,
            cached=True,
            scope=self.scope,
            loops=axes,
        )
        stages = []
        for stage in state.stages:
            if stage.name in self.readers:
                stages += [] if copy in stages else [copy]
                body = with_reads(stage.body, self._redirected(name))
                stages.append(replace(stage, body=body, source=name if stage.source else ""))
            else:
                stages.append(stage)
        return replace(state, stages=tuple(stages))

    def _redirected(self, copy: str) -> Callable[[Read], Read]:
        """Let reads of the tensor read the copy."""
        return lambda read: Read(copy, read.index) if read.tensor == self.tensor else read

    def _reader(self, state: State, name: str) -> tuple[Stage, list[Read]]:
        """A stage that is to read the copy, and its reads of the tensor."""
        reader = state.stage(name)
        reads = [read for read in reader.reads if read.tensor == self.tensor]
        if not reads:
            names = dict.fromkeys(f"`{read.tensor}`" for read in reader.reads)
            raise ScheduleError(
                f"stage `{name}` does not read `{self.tensor}`; it reads {', '.join(names)}"
            )
        if reader.instruction:
            raise ScheduleError(f"`{name}` is tensorised already; do this before `tensorise`")
        return reader, reads


def _unused(name: str, state: State) -> str:
    taken = {*state.kernel.tensors, *(stage.name for stage in state.stages)}
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}.{count}"
    return candidate


def _axis_names(reader: Stage, read: Read, rank: int) -> tuple[str, ...]:
    """Axis names from the reader for dimensions that one of its axes indexes; data axes first."""
    names: list[str] = []
    for dimension in range(rank):
        affine = read.index[dimension] if read.index else Affine()
        used = {axis for axis, _ in affine.terms}
        candidates = [axis for axis in reader.axes if axis in used]
        candidates += [axis.name for axis in reader.reductions if axis.name in used]
        name = candidates[0] if candidates else f"d{dimension}"
        while name in names:
            name += "_"
        names.append(name)
    return tuple(names)


@dataclass(frozen=True, slots=True)
class CacheWrite(Step):
    """Compute a stage in `stage.scope`; the stage itself becomes a copy of the result."""

    stage: str
    scope: str

    def apply(self, state: State) -> State:
        """Insert the computing stage before the copy; both get plain loops."""
        stage = state.stage(self.stage)
        check_scope(self.scope, stage.output, state.target)
        _check_first(self, stage, state)
        if stage.source:
            raise ScheduleError(f"`{self.stage}` is a copy; cache a computing stage")
        name = _unused(f"{self.stage}.{self.scope}", state)
        output = replace(stage.output, name=name, value="")
        computing = replace(stage, output=output, cached=True, scope=self.scope)
        copy = replace(
            stage,
            reductions=(),
            body=Read(name, tuple(map(variable, stage.axes))),
            source=name,
            loops=stage.axes,
        )
        return _replaced(state, self.stage, computing, copy)


def _check_first(step: Step, stage: Stage, state: State) -> None:
    """Refuse a step that makes two stages of one whose loops were changed."""
    reductions = tuple(axis.name for axis in stage.reductions)
    marked = stage.relations or stage.kinds or stage.depths or stage.instruction
    if marked or stage.loops != (*stage.axes, *reductions):
        raise ScheduleError(
            f"the loops of `{stage.name}` have been changed already; make `{step.name}` the first "
            "step on a stage"
        )
    if stage.place is not None or state.attached(stage.name):
        raise ScheduleError(
            f"`{stage.name}` is computed inside a stage, or one is computed inside it; make "
            f"`{step.name}` the first step on a stage"
        )


def _replaced(state: State, stage: str, *others: Stage) -> State:
    """The state with other stages in the place of one."""
    stages = (others if old.name == stage else (old,) for old in state.stages)
    return replace(state, stages=tuple(one for each in stages for one in each))


@dataclass(frozen=True, slots=True)
class SplitReduction(Step):
    """Sum equal parts of a reduction in `stage.parts`; the stage itself then adds the parts up.

    The parts are a data axis of the new stage, its outermost, so they may run at the same time.
    Both orders of summation are fixed. What follows the reduction stays with the stage.
    """

    stage: str
    axis: str
    parts: int

    def apply(self, state: State) -> State:
        """Insert the stage of the parts; both get plain loops."""
        stage = state.stage(self.stage)
        _check_first(self, stage, state)
        extents = {axis.name: axis.extent for axis in stage.reductions}
        if self.axis not in extents:
            raise ScheduleError(
                f"`{self.stage}` has no reduction `{self.axis}`; its reductions are "
                f"{', '.join(extents) or 'none'}"
            )
        extent = extents[self.axis]
        if self.parts < 2 or extent % self.parts:
            raise ScheduleError(
                f"expected 2 parts or more that divide the {extent} iterations of `{self.axis}`, "
                f"got {self.parts}"
            )
        part, size = f"{self.axis}.part", extent // self.parts
        whole = total(scaled(variable(part), size), variable(self.axis))
        reduction = reduction_of(stage.body)

        def inside(read: Read) -> Read:
            """Read at an iteration of a part."""
            index = (
                total(
                    Affine(tuple(term for term in one.terms if term[0] != self.axis), one.constant),
                    scaled(whole, one.coefficient(self.axis)),
                )
                for one in read.index
            )
            return Read(read.tensor, tuple(index))

        reductions = tuple(
            replace(axis, extent=size) if axis.name == self.axis else axis
            for axis in stage.reductions
        )
        axes, old = (part, *stage.axes), stage.output
        output = Tensor(
            _unused(f"{self.stage}.parts", state),
            element_type(reduction, state.tensors),
            (self.parts, *old.shape),
        )
        return _replaced(
            state,
            self.stage,
            replace(
                stage,
                output=output,
                axes=axes,
                domain=((0, self.parts), *stage.domain),
                reductions=reductions,
                body=with_reads(reduction, inside),
                loops=(*axes, *extents),
            ),
            replace(
                stage,
                reductions=(Axis(part, self.parts),),
                body=with_reduction(
                    stage.body,
                    Reduction(reduction.op, Read(output.name, tuple(map(variable, axes)))),
                ),
                loops=(*stage.axes, part),
            ),
        )


@dataclass(frozen=True, slots=True)
class ComputeAt(Step):
    """Compute a stage inside a loop of a consumer: each iteration computes the box it needs."""

    stage: str
    consumer: str
    loop: str

    def apply(self, state: State) -> State:
        """Move the stage's nest; `legality` then checks that all readers are inside the loop."""
        stage = state.stage(self.stage)
        consumer = state.stage(self.consumer)
        consumer.position(self.loop)
        if not state.readers(self.stage):
            raise ScheduleError(
                f"`{self.stage}` is the kernel's output and has no consumer; move the others to it"
            )
        if state.stages.index(consumer) <= state.stages.index(stage):
            raise ScheduleError(
                f"`{self.consumer}` does not consume `{self.stage}`; its readers are "
                f"{', '.join(f'`{reader.name}`' for reader in state.readers(self.stage))}"
            )
        return state.with_stage(stage.changed(place=Place(self.consumer, self.loop), carried=False))


@dataclass(frozen=True, slots=True)
class ComputeRoot(Step):
    """Compute a stage as a whole, in a nest of its own."""

    stage: str

    @override
    def apply(self, state: State) -> State:
        return state.with_stage(state.stage(self.stage).changed(place=None, carried=False))


@dataclass(frozen=True, slots=True)
class SetScope(Step):
    """Store a stage's output in a scratchpad, or in main memory."""

    stage: str
    scope: str

    @override
    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        check_scope(self.scope, stage.output, state.target)
        if stage.cached and self.scope != stage.scope:
            raise ScheduleError(
                f"`{self.stage}` was made for {stage.scope}; cache it for {self.scope} instead"
            )
        if stage.name == state.kernel.output.name and self.scope != DRAM:
            raise ScheduleError(
                f"`{self.stage}` is the kernel's output and lies in DRAM; use "
                f"`cache_write({self.stage}, {self.scope})`"
            )
        return state.with_stage(stage.changed(scope=self.scope))


@dataclass(frozen=True, slots=True)
class Tensorise(Step):
    """Replace the nest from a loop inward by one instruction."""

    stage: str
    loop: str

    def apply(self, state: State) -> State:
        """Mark the loop; `legality` then checks that an instruction matches."""
        stage = state.stage(self.stage)
        stage.position(self.loop)
        if stage.source:
            raise ScheduleError(
                f"`{self.stage}` is a copy, which becomes a transfer; tensorise a stage "
                "that computes"
            )
        if stage.instruction:
            raise ScheduleError(f"`{self.stage}` is tensorised at `{stage.instruction}` already")
        return state.with_stage(stage.changed(instruction=self.loop))

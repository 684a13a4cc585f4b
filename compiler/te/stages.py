"""What a schedule has made of a kernel so far: its stages, their loops, scopes and places.

Everything is frozen; a step makes a new `State`. Loops are symbolic here: a stage knows how its
loops came from its axes, and their extents follow when bounds are inferred.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ...errors import CompileError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Expression, Read, Reduction, reads_of
from ..accelerator.dma import Box
from ..tensor import Axis, Compute, Kernel, Tensor
from .processor import Processor

SCOPES = tuple(memory.name for memory in Memory)
"""Where a stage's output may lie: main memory and the contract's scratchpads."""

REGISTER = "REGISTER"
"""Scope of the sums of a reduction whose result the same stage goes on with.

On a processor also of what a schedule keeps there: boxes of constant size, indexed by constants.
"""


class ScheduleError(CompileError):
    """A step of a schedule is illegal where it stands, or its text is none."""


class Kind(Enum):
    """How the iterations of a loop are run."""

    SERIAL = ""
    UNROLLED = "unrolled"
    VECTORISED = "vectorised"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class Division:
    """`parent = factor * outer + inner`."""

    parent: str
    factor: int

    @property
    def outer(self) -> str:
        """Name of the loop over whole blocks."""
        return f"{self.parent}.o"

    @property
    def inner(self) -> str:
        """Name of the loop inside a block."""
        return f"{self.parent}.i"

    @property
    def parts(self) -> tuple[str, str]:
        """Both."""
        return self.outer, self.inner


@dataclass(frozen=True, slots=True)
class Fusion:
    """`outer, inner = divmod(fused, extent of inner)`."""

    outer: str
    inner: str

    @property
    def fused(self) -> str:
        """Name of the loop over both."""
        return f"{self.outer}_{self.inner}"


@dataclass(frozen=True, slots=True)
class Place:
    """Inside a loop of a consuming stage."""

    consumer: str
    loop: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage and its part of the schedule.

    Parameters
    ----------
    output
        The tensor that it defines; its name is the stage's.
    axes
        Data axes, one per dimension.
    domain
        Which elements exist, half-open per dimension. A copy for a reader includes the border of
        padding that the reader needs, in the coordinates of the tensor that it copies.
    reductions
        Reduction axes.
    body
        What an element is.
    source
        The tensor that a copy stage copies, empty for other stages.
    cached
        Whether `cache_read` or `cache_write` fixed the scope.
    scope
        Where the output lies.
    loops
        From the outermost to the innermost.
    relations
        How loops came from others, in order.
    kinds, depths
        Loops that are not serial, and those that are pipelined.
    place
        Where it is computed, None for a loop nest of its own.
    instruction
        The outermost loop of the nest that is one instruction, empty if none is.
    ahead
        For a stage that rolls through a ring of rows: how many rows it is computed ahead of its
        reader. None for a stage that does not roll.
    """

    output: Tensor
    axes: tuple[str, ...]
    domain: Box
    reductions: tuple[Axis, ...]
    body: Expression
    source: str = ""
    cached: bool = False
    scope: str = Memory.DRAM.name
    loops: tuple[str, ...] = ()
    relations: tuple[Division | Fusion, ...] = ()
    kinds: tuple[tuple[str, Kind], ...] = ()
    depths: tuple[tuple[str, int], ...] = ()
    place: Place | None = None
    instruction: str = ""
    ahead: int | None = None

    @property
    def name(self) -> str:
        """Its output's name."""
        return self.output.name

    @property
    def compute(self) -> Compute:
        """The stage as a compute, for stages that are no copies."""
        data = tuple(Axis(n, high) for n, (_, high) in zip(self.axes, self.domain, strict=True))
        return Compute(self.output, data, self.reductions, self.body)

    @property
    def nested(self) -> bool:
        """Whether something remains to be done with the result of its reduction."""
        return bool(self.reductions) and not isinstance(self.body, Reduction)

    @property
    def first_reduction(self) -> int:
        """Position of its outermost reduction loop, the number of its loops without one."""
        positions = [i for i, loop in enumerate(self.loops) if self.reduces(loop)]
        return min(positions, default=len(self.loops))

    def kind(self, loop: str) -> Kind:
        """How a loop is run."""
        return dict(self.kinds).get(loop, Kind.SERIAL)

    def depth(self, loop: str) -> int:
        """Slots that `pipeline` asks for inside a loop, 1 without."""
        return dict(self.depths).get(loop, 1)

    def origins(self, loop: str) -> frozenset[str]:
        """The axes that a loop walks over."""
        for relation in reversed(self.relations):
            if isinstance(relation, Division) and loop in (relation.outer, relation.inner):
                return self.origins(relation.parent)
            if isinstance(relation, Fusion) and loop == relation.fused:
                return self.origins(relation.outer) | self.origins(relation.inner)
        return frozenset({loop})

    def reduces(self, loop: str) -> bool:
        """Whether it is a reduction loop; no loop is both."""
        return not self.origins(loop).isdisjoint(axis.name for axis in self.reductions)

    def position(self, loop: str, doing: str) -> int:
        """Where a loop stands, 0 the outermost.

        Raises
        ------
        ScheduleError
            When there is no such loop, listing those that exist.
        """
        if loop not in self.loops:
            raise ScheduleError(
                f"{doing}: stage `{self.name}` has no loop `{loop}`; its loops are "
                f"{', '.join(self.loops)}"
            )
        return self.loops.index(loop)

    def reads(self) -> tuple[Read, ...]:
        """Everything that it reads."""
        return reads_of(self.body)


@dataclass(frozen=True, slots=True)
class State:
    """All stages, producers before consumers, and the machine they are meant for.

    Parameters
    ----------
    kernel
        What is scheduled.
    configuration
        The machine; without one there is no tensorisation.
    stages
        The kernel's, and the copies that steps made.
    processor
        A general processor in the place of the machine.
    arena
        Whether buffers take turns in all the room that their scratchpad has.
    """

    kernel: Kernel
    configuration: Configuration | None
    stages: tuple[Stage, ...]
    processor: Processor | None = None
    arena: bool = False

    @property
    def scopes(self) -> tuple[str, ...]:
        """Where a stage's output may lie."""
        return SCOPES if self.processor is None else (Memory.DRAM.name, REGISTER)

    def stage(self, name: str, doing: str) -> Stage:
        """The stage of a name.

        Raises
        ------
        ScheduleError
            When there is none, listing those that exist.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise ScheduleError(
            f"{doing}: there is no stage `{name}`; the stages are "
            f"{', '.join(f'`{stage.name}`' for stage in self.stages)}"
        )

    def with_stage(self, stage: Stage) -> "State":
        """A changed stage in the place of the old one."""
        return replace(
            self, stages=tuple(stage if old.name == stage.name else old for old in self.stages)
        )

    def readers(self, tensor: str) -> tuple[Stage, ...]:
        """The stages that read a tensor."""
        return tuple(s for s in self.stages if any(read.tensor == tensor for read in s.reads()))

    def attached(self, stage: str, loop: str | None = None) -> tuple[Stage, ...]:
        """The stages computed inside the loops of another, or inside one loop of it."""
        return tuple(
            s
            for s in self.stages
            if s.place is not None
            and s.place.consumer == stage
            and (loop is None or s.place.loop == loop)
        )

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor, copies included."""
        return {**self.kernel.tensors, **{stage.name: stage.output for stage in self.stages}}

    @property
    def domains(self) -> Mapping[str, Box]:
        """Which elements of every tensor exist."""
        whole = {name: whole_box(tensor.shape) for name, tensor in self.kernel.tensors.items()}
        return {**whole, **{stage.name: stage.domain for stage in self.stages}}

    def scope(self, tensor: str) -> str:
        """Where a tensor lies; what a kernel is given lies in main memory."""
        scopes = {stage.name: stage.scope for stage in self.stages}
        return scopes.get(tensor, Memory.DRAM.name)


def whole_box(shape: tuple[int, ...]) -> Box:
    """All elements of a shape."""
    return tuple((0, extent) for extent in shape)


def initial_state(
    kernel: Kernel, configuration: Configuration | None, processor: Processor | None = None
) -> State:
    """Every stage a full loop nest of its own, reductions innermost."""
    stages = []
    for compute in kernel.stages:
        axes = tuple(axis.name for axis in compute.axes)
        stages.append(
            Stage(
                output=kernel.tensors[compute.output.name],
                axes=axes,
                domain=whole_box(compute.output.shape),
                reductions=compute.reductions,
                body=compute.body,
                loops=(*axes, *(axis.name for axis in compute.reductions)),
            )
        )
    return State(kernel, configuration, tuple(stages), processor)

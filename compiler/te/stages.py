"""The state of a kernel under a schedule: its stages, their loops, scopes and places.

All data are frozen, and a step makes a new `State`. Loops are symbolic here: a stage records how
its loops derive from its axes. Bounds inference then gives their extents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ...isa.expressions import Expression, Read, Reduction, reads_of
from ..tensor import Axis, Compute, Kernel, Tensor
from .affine import variable, with_names
from .box import Box, whole_box
from .target import DRAM, Kind, ScheduleError, Target


class Division(NamedTuple):
    """`parent = factor * outer + inner - lead`; the first block lacks `lead` iterations."""

    parent: str
    factor: int
    lead: int = 0

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
        """Names of the outer and the inner loop."""
        return self.outer, self.inner

    names = parts
    """Names of the loops that it makes."""


class Fusion(NamedTuple):
    """`outer, inner = divmod(fused, extent of inner)`."""

    outer: str
    inner: str

    @property
    def fused(self) -> str:
        """Name of the loop over both."""
        return f"{self.outer}_{self.inner}"

    @property
    def names(self) -> tuple[str]:
        """Names of the loops that it makes."""
        return (self.fused,)


class Place(NamedTuple):
    """Inside a loop of a consuming stage."""

    consumer: str
    loop: str


class StepNumbers(NamedTuple):
    """Numbers of steps: splits and depths by stage and loop, rows ahead by stage."""

    divisions: Mapping[tuple[str, str], Division]
    depths: Mapping[tuple[str, str], int]
    ahead: Mapping[str, int]


def qualified(stage: str, loop: str) -> str:
    """The variable of a stage's loop or axis."""
    return f"{stage}:{loop}"


@dataclass(frozen=True)
class Stage:
    """One stage and its part of the schedule.

    Parameters
    ----------
    output
        The tensor that it defines; its name is the stage's.
    axes
        Data axes, one per dimension.
    domain
        Half-open range of existing elements, per dimension. A copy for a reader includes the border
        of padding that the reader needs, in the coordinates of the copied tensor.
    reductions
        Reduction axes.
    body
        The expression of an element.
    source
        The tensor that a copy stage copies; empty for other stages.
    cached
        Whether `cache_read` or `cache_write` fixed the scope.
    scope
        The memory of the output.
    loops
        The loops, outermost first.
    relations
        The splits and fusions that made the loops, in order.
    kinds, depths
        The kinds of loops that are not serial, and the depths of pipelined loops.
    place
        The loop in which it is computed; None for a nest at the root.
    instruction
        The outermost loop of the instruction; empty without one.
    carried
        Whether the loop of its place advances its reduction.
    ahead
        For a rolling stage, the number of rows that it computes ahead of its reader. None for other
        stages.
    """

    output: Tensor
    axes: tuple[str, ...]
    domain: Box
    reductions: tuple[Axis, ...]
    body: Expression
    source: str = ""
    cached: bool = False
    scope: str = DRAM
    loops: tuple[str, ...] = ()
    relations: tuple[Division | Fusion, ...] = ()
    kinds: tuple[tuple[str, Kind], ...] = ()
    depths: tuple[tuple[str, int], ...] = ()
    place: Place | None = None
    instruction: str = ""
    carried: bool = False
    ahead: int | None = None

    @cached_property
    def name(self) -> str:
        """Name of its output."""
        return self.output.name

    @cached_property
    def compute(self) -> Compute:
        """The compute of a stage that is not a copy."""
        data = tuple(Axis(n, high) for n, (_, high) in zip(self.axes, self.domain, strict=True))
        return Compute(self.output, data, self.reductions, self.body)

    @property
    def nested(self) -> bool:
        """Whether it processes the result of its reduction further."""
        return bool(self.reductions) and not isinstance(self.body, Reduction)

    @cached_property
    def first_reduction(self) -> int:
        """Position of its outermost reduction loop; without one, the number of loops."""
        positions = [i for i, loop in enumerate(self.loops) if self.reduces(loop)]
        return min(positions, default=len(self.loops))

    def kind(self, loop: str) -> Kind:
        return dict(self.kinds).get(loop, Kind.SERIAL) if self.kinds else Kind.SERIAL

    def depth(self, loop: str) -> int:
        """Slots per buffer inside a loop, from `pipeline`; 1 by default."""
        return dict(self.depths).get(loop, 1) if self.depths else 1

    def origins(self, loop: str) -> frozenset[str]:
        """The axes from which a loop derives."""
        for relation in reversed(self.relations):
            if isinstance(relation, Division) and loop in (relation.outer, relation.inner):
                return self.origins(relation.parent)
            if isinstance(relation, Fusion) and loop == relation.fused:
                return self.origins(relation.outer) | self.origins(relation.inner)
        return frozenset({loop})

    def reduces(self, loop: str) -> bool:
        """Whether a loop is a reduction loop; no loop mixes data and reduction axes."""
        return not self.origins(loop).isdisjoint(axis.name for axis in self.reductions)

    def has_lanes(self, loop: str) -> bool:
        """Whether a loop runs over an instruction's lanes: only reduction loops are inside it."""
        if not self.instruction:
            return False
        place = self.loops.index(loop)
        inside = self.loops[place + 1 :]
        return place >= self.loops.index(self.instruction) and all(map(self.reduces, inside))

    def position(self, loop: str) -> int:
        """Position of a loop; the outermost loop has 0.

        Raises
        ------
        ScheduleError
            When there is no such loop; the message lists the loops.
        """
        if loop not in self.loops:
            raise ScheduleError(
                f"stage `{self.name}` has no loop `{loop}`; its loops are {', '.join(self.loops)}"
            )
        return self.loops.index(loop)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return reads_of(self.body)

    def reach(self, reads: Sequence[Read], whole: Box) -> Box:
        """The hull of all elements of a tensor that reads touch, also elements outside `whole`."""
        ranges = dict(zip(self.axes, self.domain, strict=True))
        ranges |= {axis.name: (0, axis.extent) for axis in self.reductions}
        box = list(whole) if not reads[0].index else []
        for read in reads:
            for dimension, affine in enumerate(read.index):
                ends = [(f * ranges[a][0], f * (ranges[a][1] - 1)) for a, f in affine.terms]
                low = affine.constant + sum(map(min, ends))
                high = affine.constant + sum(map(max, ends)) + 1
                if dimension == len(box):
                    box.append((low, high))
                box[dimension] = (min(box[dimension][0], low), max(box[dimension][1], high))
        return tuple(box)

    @cached_property
    def element(self) -> Read:
        """The element that an iteration computes, by variables."""
        index = (variable(qualified(self.name, axis)) for axis in self.axes)
        return Read(self.name, tuple(index))

    @cached_property
    def value(self) -> Expression:
        """The expression of that element, by variables instead of axes."""
        return with_names(self.body, lambda axis: qualified(self.name, axis))

    @cached_property
    def variable_reads(self) -> tuple[Read, ...]:
        """`reads`, with indices by variables."""
        return reads_of(self.value)

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """The variable of every loop and axis, also of loops that were split or fused."""
        names = [*self.loops, *self.axes, *(axis.name for axis in self.reductions)]
        for relation in self.relations:
            names += relation.names
        return {name: qualified(self.name, name) for name in names}

    @cached_property
    def needs(self) -> Mapping[str, int]:
        """The number of open loops from which on a loop or axis is known."""
        needs = {loop: position + 1 for position, loop in enumerate(self.loops)}
        for relation in reversed(self.relations):
            if isinstance(relation, Division):
                needs[relation.parent] = max(needs[relation.outer], needs[relation.inner])
            else:
                needs[relation.outer] = needs[relation.inner] = needs[relation.fused]
        return needs

    def changed(self, **fields: object) -> "Stage":
        """The stage with other loops or another place, but the same tensor and expression."""
        found = object.__new__(Stage)
        found.__dict__.update(self.__dict__)
        if "loops" in fields:
            for known in ("variables", "needs", "first_reduction"):
                found.__dict__.pop(known, None)
        found.__dict__.update(fields)
        return found

    def with_numbers(self, numbers: StepNumbers) -> "Stage":
        """The stage with other splits, depths and rows."""
        name, (divisions, depths, ahead) = self.name, numbers
        relations = tuple(
            [
                divisions[name, relation.parent] if isinstance(relation, Division) else relation
                for relation in self.relations
            ]
        )
        return self.changed(
            relations=relations,
            depths=tuple([(loop, depths[name, loop]) for loop, _ in self.depths]),
            ahead=None if self.ahead is None else ahead[name],
        )


@dataclass(frozen=True)
class State:
    """All stages, producers before consumers, and their target.

    Parameters
    ----------
    kernel
        The kernel.
    target
        The machine.
    stages
        The kernel's stages, and the copies that steps made.
    arena
        Whether buffers share all the room of their scratchpad in turns.
    """

    kernel: Kernel
    target: Target
    stages: tuple[Stage, ...]
    arena: bool = False

    def stage(self, name: str) -> Stage:
        """The stage with a name.

        Raises
        ------
        ScheduleError
            When there is none; the message lists the stages.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise ScheduleError(
            f"there is no stage `{name}`; the stages are "
            f"{', '.join(f'`{stage.name}`' for stage in self.stages)}"
        )

    def with_stage(self, stage: Stage) -> "State":
        """Replace a stage by a changed one."""
        return replace(
            self, stages=tuple(stage if old.name == stage.name else old for old in self.stages)
        )

    @cached_property
    def _readers(self) -> Mapping[str, tuple[Stage, ...]]:
        found: dict[str, dict[str, Stage]] = {}
        for stage in self.stages:
            for read in stage.reads:
                found.setdefault(read.tensor, {})[stage.name] = stage
        return {tensor: tuple(readers.values()) for tensor, readers in found.items()}

    def with_numbers(self, numbers: StepNumbers) -> "State":
        """The state with other numbers in its stages; see `Stage.with_numbers`."""
        found = object.__new__(State)
        found.__dict__.update(self.__dict__)
        found.__dict__["stages"] = tuple([stage.with_numbers(numbers) for stage in self.stages])
        for known in ("_readers", "_attached"):
            found.__dict__.pop(known, None)
        return found

    def readers(self, tensor: str) -> tuple[Stage, ...]:
        return self._readers.get(tensor, ())

    @cached_property
    def _attached(self) -> Mapping[str, tuple[Stage, ...]]:
        found: dict[str, list[Stage]] = {}
        for stage in self.stages:
            if stage.place is not None:
                found.setdefault(stage.place.consumer, []).append(stage)
        return {consumer: tuple(stages) for consumer, stages in found.items()}

    def attached(self, stage: str, loop: str | None = None) -> tuple[Stage, ...]:
        """The stages computed inside the loops of another stage, or inside one of them."""
        found = self._attached.get(stage, ())
        return tuple([s for s in found if loop is None or s.place is None or s.place.loop == loop])

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor, copies included."""
        return {**self.kernel.tensors, **{stage.name: stage.output for stage in self.stages}}

    @cached_property
    def domains(self) -> Mapping[str, Box]:
        """The existing elements of every tensor."""
        whole = {name: whole_box(tensor.shape) for name, tensor in self.kernel.tensors.items()}
        return {**whole, **{stage.name: stage.domain for stage in self.stages}}

    def scope(self, tensor: str) -> str:
        """The memory of a tensor; inputs and constants are in main memory."""
        scopes = {stage.name: stage.scope for stage in self.stages}
        return scopes.get(tensor, DRAM)


def initial_state(kernel: Kernel, target: Target) -> State:
    """The initial state: every stage is a full nest at the root, reductions innermost."""
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
    return State(kernel, target, tuple(stages))

"""Walk a loop program as a machine would: all transfers and instructions, in order.

A lowering uses this to run all loops around transfers and instructions at compile time. An
`Instance` gives the stage, the elements, the buffers of the operands, and whether it adds to an
earlier partial sum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...isa.expressions import Affine
from ..accelerator.dma import Box
from .affine import scaled, total, value_of, variable
from .nodes import (
    Allocate,
    Assign,
    Block,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    TransferNest,
    Update,
    holds,
    let_value,
    nodes,
)
from .program import Program
from .rolling import Rolling, Rows
from .stages import ScheduleError, qualified

Range = tuple[int, int]


class Buffered(NamedTuple):
    """A buffer as it stands at one moment.

    Parameters
    ----------
    allocate
        Its tensor, scope and slots.
    box
        The elements of the tensor for which it has room.
    held
        The elements of the box that exist.
    slot
        The current slot, 0 to `allocate.slots` - 1; 0 if slots are not limited.
    """

    allocate: Allocate
    box: Box
    held: Box
    slot: int


class Instance(NamedTuple):
    """One transfer or instruction.

    Parameters
    ----------
    nest
        The nest of its stage: axes, compute (None for a transfer), and the loop around it.
    node
        The transfer or the instruction.
    ranges
        Elements of every axis, reductions included, without the cut-off tails.
    accumulate
        Whether earlier instances computed a part of the reduction.
    buffers
        All buffers that exist now, by tensor. The kernel's inputs and constants have none.
    """

    nest: Nest
    node: TransferNest | InstructionNest
    ranges: Mapping[str, Range]
    accumulate: bool
    buffers: Mapping[str, Buffered]

    @property
    def box(self) -> Box:
        """The elements of the stage's tensor that it writes."""
        return tuple(self.ranges[axis] for axis in self.nest.axes)

    @property
    def tile(self) -> dict[str, int]:
        """Extent of every axis, for tensorisation."""
        return {axis: high - low for axis, (low, high) in self.ranges.items()}


@dataclass(frozen=True, slots=True)
class Rolled:
    """A ring of rows has advanced: it now has rows `first` up to `last`, except the padding."""

    stage: str
    rolling: Rolling
    first: int
    last: int


Event = Instance | Buffered | Rolled


def instances(program: Program) -> Iterator[Instance]:
    """All transfers and instructions in program order.

    Raises
    ------
    ScheduleError
        When a stage is neither a copy nor tensorised.
    CompileError
        When the reader of a rolling stage goes back.
    """
    events: list[Event] = []
    walk(program, events.append)
    return (event for event in events if isinstance(event, Instance))


def _never(_: str) -> bool:
    return False


def walk(
    program: Program, visit: Callable[[Event], None], present: Callable[[str], bool] = _never
) -> None:
    """Visit all transfers and instructions, all allocations of buffers, and all steps of rings.

    Parameters
    ----------
    present
        Whether the newly allocated buffer of a copy already holds the data. If so, its transfer is
        omitted.
    """
    _InstanceWalk(program, visit, present).block(program.body, None)


class _InstanceWalk:
    """The walk of a program; it counts the allocations of each buffer."""

    def __init__(
        self, program: Program, visit: Callable[[Event], None], present: Callable[[str], bool]
    ) -> None:
        self.domains, self.visit, self.present = program.domains, visit, present
        self.values: dict[str, int] = {}
        self.buffers: dict[str, Buffered] = {}
        self.turns: dict[str, int] = {}
        self.rows = Rows()
        self.regions: dict[int, _Region] = {}

    def block(self, block: Block, nest: Nest | None) -> None:
        values = self.values
        for node in block:
            kind = type(node)
            if kind is For:
                assert isinstance(node, For)
                self.loop(node, nest)
            elif kind is Let:
                assert isinstance(node, Let)
                values[node.variable] = let_value(node, values)
            elif kind is TransferNest or kind is InstructionNest:
                assert nest is not None
                assert isinstance(node, (TransferNest, InstructionNest))
                self.instance(nest, node)
            elif kind is Guard:
                assert isinstance(node, Guard)
                if all(holds(condition, values) for condition in node.conditions):
                    self.block(node.body, nest)
            elif kind is Allocate:
                assert isinstance(node, Allocate)
                buffered = self.buffered(node)
                self.buffers[node.tensor.name] = buffered
                self.visit(buffered)
            elif kind is Nest:
                assert isinstance(node, Nest)
                if node.compute is not None or not self.present(node.stage):
                    self.block(node.body, node)
            else:
                assert isinstance(node, (Assign, Update))
                raise ScheduleError(
                    f"stage `{node.target.tensor}` is computed element by element; "
                    "tensorise it, or leave it to a target that runs loops"
                )

    def loop(self, node: For, nest: Nest | None) -> None:
        values, rolling = self.values, node.rolling
        if rolling is None:
            start = value_of(node.start, values)
            for number in range(start, start + node.extent):
                values[node.variable] = number
                self.block(node.body, nest)
            return
        assert nest is not None
        first, last = self.rows.advance(nest.stage, rolling, values)
        for number in rolling.tiles(first, last):
            values[node.variable] = number
            self.block(node.body, nest)
        if first < last:
            self.visit(Rolled(nest.stage, rolling, first, last))

    def buffered(self, node: Allocate) -> Buffered:
        name, values = node.tensor.name, self.values
        turn = self.turns.get(name, 0)
        self.turns[name] = turn + 1
        box, held = [], []
        domain = self.domains.get(name)
        for dimension, (affine, size) in enumerate(zip(node.origin, node.shape, strict=True)):
            low = value_of(affine, values)
            high = low + size
            box.append((low, high))
            if domain is not None:
                least, most = domain[dimension]
                low, high = max(low, least), min(high, most)
            held.append((low, high))
        return Buffered(node, tuple(box), tuple(held), turn % node.slots if node.slots else 0)

    def instance(self, nest: Nest, node: TransferNest | InstructionNest) -> None:
        region = self.regions.get(id(node))
        if region is None:
            region = self.regions[id(node)] = _Region(nest, node)
        ranges = region.at(self.values)
        if region.guarded:
            for low, high in ranges.values():
                if low >= high:
                    return
        later = False
        for axis in region.reductions:
            if ranges[axis][0] > 0:
                later = True
                break
        self.visit(Instance(nest, node, ranges, later, dict(self.buffers)))


def region(
    nest: Nest, node: TransferNest | InstructionNest, values: Mapping[str, int]
) -> dict[str, Range]:
    """The elements of every axis that the loops of a transfer or an instruction cover.

    Parameters
    ----------
    nest
        The stage's nest.
    node
        A node inside the nest.
    values
        Values of all variables bound around the node.

    Returns
    -------
    Half-open ranges by axis, data axes first; empty where a guard lets nothing through.
    """
    return _Region(nest, node).at(values)


class _Region:
    """The loops, bindings and guards inside a transfer or an instruction, outermost first.

    Attributes
    ----------
    guarded
        Whether guards cut the ranges. Otherwise, each range has a fixed extent and begins at an
        affine form of the variables bound around the node.
    """

    def __init__(self, nest: Nest, node: TransferNest | InstructionNest) -> None:
        self.reductions = tuple(axis.name for axis in nest.reductions)
        names = (*nest.axes, *self.reductions)
        self.names = tuple((name, qualified(nest.stage, name)) for name in names)
        self.steps: list[For | Let | Guard] = []
        for inner in nodes(node.body):
            if isinstance(inner, (Assign, Update)):
                break
            if isinstance(inner, (For, Let, Guard)):
                self.steps.append(inner)
        self.guarded = any(isinstance(step, Guard) for step in self.steps)
        self.affine = () if self.guarded else self._affine()

    def at(self, values: Mapping[str, int]) -> dict[str, Range]:
        """The ranges for values of all variables bound around the node."""
        if self.guarded:
            return self._cut_ranges(values)
        ranges = {}
        for name, low, terms, extent in self.affine:
            for around, factor in terms:
                low += factor * values[around]
            ranges[name] = (low, low + extent)
        return ranges

    def _affine(self) -> tuple[tuple[str, int, tuple[tuple[str, int], ...], int], ...]:
        """Name, first element as constant and terms, and extent of each range without guards."""
        found: dict[str, tuple[Affine, int]] = {}
        for step in self.steps:
            if isinstance(step, For):
                found[step.variable] = step.start, step.extent
            elif isinstance(step, Let):
                first, more = Affine((), step.value.constant), 0
                for name, factor in step.value.terms:
                    low, extent = found.get(name, (variable(name), 1))
                    more += abs(factor) * (extent - 1)
                    first = total(first, scaled(low, factor), min(factor, 0) * (extent - 1))
                # A box contains a fused loop as a whole, so its digits take all their values.
                more += step.digit.modulus - 1 if step.digit is not None else 0
                found[step.variable] = first, 1 + more
        ranges = ((name, *found.get(inner, (variable(inner), 1))) for name, inner in self.names)
        return tuple((name, low.constant, low.terms, extent) for name, low, extent in ranges)

    def _cut_ranges(self, values: Mapping[str, int]) -> dict[str, Range]:
        found = _VariableRanges(values)
        for step in self.steps:
            if isinstance(step, For):
                start = value_of(step.start, values)
                found[step.variable] = (start, start + step.extent)
            elif isinstance(step, Let):
                found[step.variable] = _let_range(step, found)
            else:
                _cut(step, found)
        return {name: found[variable] for name, variable in self.names}


class _VariableRanges(dict[str, Range]):
    """Ranges of variables; a variable bound around the node has a single value."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self.values_around = values

    def __missing__(self, name: str) -> Range:
        value = self.values_around[name]
        return value, value + 1


def _let_range(let: Let, found: _VariableRanges) -> Range:
    low = high = let.value.constant
    for name, factor in let.value.terms:
        first, end = found[name]
        ends = (factor * first, factor * (end - 1))
        low, high = low + min(ends), high + max(ends)
    if let.digit is not None:
        # A box contains a fused loop as a whole, so its digits take all their values.
        high += let.digit.modulus - 1
    return low, high + 1


def _cut(guard: Guard, found: _VariableRanges) -> None:
    """Remove the values of a variable that a guard forbids; all else in the guard is fixed."""
    for condition in guard.conditions:
        moving = [n for n, _ in condition.value.terms if found[n][1] - found[n][0] != 1]
        name = moving[0] if moving else condition.value.terms[0][0]
        others = {n: found[n][0] for n, _ in condition.value.terms}
        offset = value_of(condition.value, {**others, name: 0})
        low, high = found[name]
        if condition.low is not None:
            low = max(low, condition.low - offset)
        if condition.high is not None:
            high = min(high, condition.high - offset)
        found[name] = (low, max(low, high))

"""Walk a loop program as a machine would: which transfer or instruction comes next, and on what.

For a lowering that runs all loops around transfers and instructions at compile time. An `Instance`
answers, with numbers: which stage, which elements, where its operands lie, and whether a sum goes
on from an earlier one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..accelerator.dma import Box
from .affine import value_of
from .nodes import (
    Allocate,
    Block,
    Copy,
    Guard,
    Instruction,
    Let,
    Loop,
    Nest,
    Store,
    Update,
    holds,
    let_value,
    nodes,
    qualified,
)
from .program import Program
from .stages import ScheduleError

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Buffered:
    """A buffer as it stands at one moment.

    Parameters
    ----------
    allocate
        Its tensor, scope and slots.
    box
        Which elements of the tensor it has room for.
    slot
        Whose turn it is, 0 to `allocate.slots` - 1.
    """

    allocate: Allocate
    box: Box
    slot: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One transfer or instruction.

    Parameters
    ----------
    nest
        Its stage: axes, compute (None for a transfer), and the loop it is computed in.
    node
        What to do: a `Copy` or an `Instruction`.
    ranges
        Elements of every axis, reductions included; tails are cut off already.
    accumulate
        Whether earlier instances hold a part of the reduction.
    buffers
        All buffers that exist now, by tensor; what the kernel is given has none.
    """

    nest: Nest
    node: Copy | Instruction
    ranges: Mapping[str, Range]
    accumulate: bool
    buffers: Mapping[str, Buffered]

    @property
    def box(self) -> Box:
        """The elements of the stage's tensor that are written."""
        return tuple(self.ranges[axis] for axis in self.nest.axes)

    @property
    def tile(self) -> dict[str, int]:
        """Extent of every axis, as tensorisation takes it."""
        return {axis: high - low for axis, (low, high) in self.ranges.items()}


def instances(program: Program) -> Iterator[Instance]:
    """All transfers and instructions in program order.

    Raises
    ------
    ScheduleError
        When a stage is neither a copy nor tensorised.
    """
    yield from _Walk().block(program.body, None, {}, {})


class _Walk:
    """Counts how often each buffer was allocated."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}

    def block(
        self,
        block: Block,
        nest: Nest | None,
        values: dict[str, int],
        buffers: Mapping[str, Buffered],
    ) -> Iterator[Instance]:
        buffers = dict(buffers)
        for node in block:
            if isinstance(node, Loop):
                start = value_of(node.start, values)
                for number in range(start, start + node.extent):
                    inside = {**values, node.variable: number}
                    yield from self.block(node.body, nest, inside, buffers)
            elif isinstance(node, Let):
                values = {**values, node.variable: let_value(node, values)}
            elif isinstance(node, Guard):
                if all(holds(condition, values) for condition in node.conditions):
                    yield from self.block(node.body, nest, values, buffers)
            elif isinstance(node, Allocate):
                buffers[node.tensor.name] = self.buffered(node, values)
            elif isinstance(node, Nest):
                yield from self.block(node.body, node, values, buffers)
            elif isinstance(node, (Copy, Instruction)):
                assert nest is not None
                yield from self.instance(nest, node, values, buffers)
            else:
                raise ScheduleError(
                    f"stage `{node.target.tensor}` is computed element by element; "
                    "tensorise it, or leave it to a target that runs loops"
                )

    def buffered(self, node: Allocate, values: Mapping[str, int]) -> Buffered:
        name = node.tensor.name
        turn = self.turns.get(name, 0)
        self.turns[name] = turn + 1
        lows = [value_of(affine, values) for affine in node.origin]
        box = tuple((low, low + size) for low, size in zip(lows, node.shape, strict=True))
        return Buffered(node, box, turn % node.slots)

    def instance(
        self,
        nest: Nest,
        node: Copy | Instruction,
        values: Mapping[str, int],
        buffers: Mapping[str, Buffered],
    ) -> Iterator[Instance]:
        ranges = region(nest, node, values)
        if all(low < high for low, high in ranges.values()):
            later = any(ranges[axis.name][0] > 0 for axis in nest.reductions)
            yield Instance(nest, node, ranges, later, dict(buffers))


def region(nest: Nest, node: Copy | Instruction, values: Mapping[str, int]) -> dict[str, Range]:
    """The elements of every axis that the loops of a transfer or an instruction cover.

    Parameters
    ----------
    nest
        The stage's.
    node
        Inside it.
    values
        Of all variables bound around the node.

    Returns
    -------
    Half-open ranges by axis, data axes first; empty where a guard lets nothing through.
    """
    found: dict[str, Range] = {name: (value, value + 1) for name, value in values.items()}
    for inner in nodes(node.body):
        if isinstance(inner, Loop):
            start = value_of(inner.start, values)
            found[inner.variable] = (start, start + inner.extent)
        elif isinstance(inner, Let):
            found[inner.variable] = _let_range(inner, found)
        elif isinstance(inner, Guard):
            _cut(inner, found)
        elif isinstance(inner, (Store, Update)):
            break
    names = (*nest.axes, *(axis.name for axis in nest.reductions))
    return {name: found[qualified(nest.stage, name)] for name in names}


def _let_range(let: Let, found: Mapping[str, Range]) -> Range:
    low = high = let.value.constant
    for name, factor in let.value.terms:
        ends = (factor * found[name][0], factor * (found[name][1] - 1))
        low, high = low + min(ends), high + max(ends)
    if let.digit is not None:
        # A fused loop stands inside a box as a whole, so its digits take all their values.
        high += let.digit.modulus - 1
    return low, high + 1


def _cut(guard: Guard, found: dict[str, Range]) -> None:
    """Take from a variable what a guard forbids; everything else in its conditions is fixed."""
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

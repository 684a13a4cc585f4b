"""Walk a loop program as a machine would: all transfers and instructions, in order.

A lowering uses this to run all loops around transfers and instructions at compile time. An
`Instance` gives the stage, the elements, the buffers of the operands, and whether it adds to an
earlier partial sum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .affine import value_of
from .box import Box, Range
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
)
from .program import Program
from .regions import TensorRegion
from .rolling import Rolling, Rows
from .target import ScheduleError


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
        self.boxes: dict[int, dict[tuple[int, ...], tuple[Box, Box]]] = {}
        """For each allocation, the two boxes of its buffer by origin. Most origins recur."""
        self.rows = Rows()
        self.regions = program.regions

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
        boxes = self.boxes.get(id(node))
        if boxes is None:
            boxes = self.boxes[id(node)] = {}
        lows = []
        for affine in node.origin:
            low = affine.constant
            for around, factor in affine.terms:
                low += factor * values[around]
            lows.append(low)
        origin = tuple(lows)
        found = boxes.get(origin)
        if found is None:
            found = boxes[origin] = self._boxes_at(node, origin)
        box, held = found
        return Buffered(node, box, held, turn % node.slots if node.slots else 0)

    def _boxes_at(self, node: Allocate, origin: tuple[int, ...]) -> tuple[Box, Box]:
        """The box of a buffer with this origin, and its part inside the tensor's domain."""
        box = tuple((low, low + size) for low, size in zip(origin, node.shape, strict=True))
        domain = self.domains.get(node.tensor.name)
        if domain is None:
            return box, box
        return box, tuple(
            (max(low, least), min(high, most))
            for (low, high), (least, most) in zip(box, domain, strict=True)
        )

    def instance(self, nest: Nest, node: TransferNest | InstructionNest) -> None:
        region = self.regions.get(id(node))
        if region is None:
            region = self.regions[id(node)] = TensorRegion(nest, node)
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

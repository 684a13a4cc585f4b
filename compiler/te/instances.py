"""Walk a loop program as a machine would: all transfers and instructions, in order.

A lowering uses this to run all loops around transfers and instructions at compile time. An
`Instance` gives the stage, the elements, the buffers of the operands, and whether it adds to an
earlier partial sum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from .affine import value_of
from .box import Box, Range, intersection
from .nodes import (
    Allocate,
    Assign,
    Block,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    Node,
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
        return tuple([self.ranges[axis] for axis in self.nest.axes])

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
    for step in _InstanceWalk(program, visit, present).block(program.body, None):
        step()


Step = Callable[[], None]
"""A node of the program, prepared once for all its iterations."""


class _InstanceWalk:
    def __init__(
        self, program: Program, visit: Callable[[Event], None], present: Callable[[str], bool]
    ) -> None:
        self.domains, self.visit, self.present = program.domains, visit, present
        self.values: dict[str, int] = {}
        self.buffers: dict[str, Buffered] = {}
        self.turns: dict[str, Iterator[int]] = {}
        self.rows = Rows()
        self.regions = program.regions

    def block(self, block: Block, nest: Nest | None) -> list[Step]:
        return [step for node in block for step in self.steps(node, nest)]

    def steps(self, node: Node, nest: Nest | None) -> list[Step]:
        values, present = self.values, self.present
        if isinstance(node, For):
            return [self.loop(node, nest)]
        if isinstance(node, Allocate):
            return [self.allocate(node)]
        if isinstance(node, TransferNest | InstructionNest):
            assert nest is not None
            return [self.instance(nest, node)]
        if isinstance(node, Let):
            return [lambda: values.update({node.variable: let_value(node, values)})]
        if isinstance(node, Guard):
            conditions = node.conditions
            inside = self.block(node.body, nest)
            return [_when(lambda: all(holds(one, values) for one in conditions), inside)]
        if isinstance(node, Nest):
            inside = self.block(node.body, node)
            return inside if node.compute else [_when(lambda: not present(node.stage), inside)]
        assert isinstance(node, Assign | Update)
        return [partial(_refuse, node.target.tensor)]

    def loop(self, node: For, nest: Nest | None) -> Step:
        values, rolling, variable = self.values, node.rolling, node.variable
        steps = self.block(node.body, nest)

        def run() -> None:
            start = value_of(node.start, values)
            for number in range(start, start + node.extent):
                values[variable] = number
                for step in steps:
                    step()

        def roll() -> None:
            assert nest is not None
            assert rolling is not None
            first, last = self.rows.advance(nest.stage, rolling, values)
            for number in rolling.tiles(first, last):
                values[variable] = number
                for step in steps:
                    step()
            if first < last:
                self.visit(Rolled(nest.stage, rolling, first, last))

        return run if rolling is None else roll

    def allocate(self, node: Allocate) -> Step:
        values, buffers, visit, slots = self.values, self.buffers, self.visit, node.slots
        name = node.tensor.name
        turns = self.turns.setdefault(name, count())
        moving = {variable for affine in node.origin for variable, _ in affine.terms}
        origin_of: Callable[[dict[str, int]], object]
        origin_of = itemgetter(*moving) if moving else lambda _: ()
        known: dict[object, Buffered] = {}  # most origins recur

        def run() -> None:
            origin = origin_of(values)
            found = known.get(origin)
            if found is None:
                found = known[origin] = self._buffered(node)
            if slots:
                found = found._replace(slot=next(turns) % slots)
            buffers[name] = found
            visit(found)

        return run

    def _buffered(self, node: Allocate) -> Buffered:
        """A buffer at the current values, in its first slot."""
        lows = [value_of(affine, self.values) for affine in node.origin]
        box = tuple([(low, low + size) for low, size in zip(lows, node.shape, strict=True)])
        domain = self.domains.get(node.tensor.name)
        return Buffered(node, box, box if domain is None else intersection(box, domain), 0)

    def instance(self, nest: Nest, node: TransferNest | InstructionNest) -> Step:
        region = self.regions.get(id(node))
        if region is None:
            region = self.regions[id(node)] = TensorRegion(nest, node)
        values, buffers, visit, at = self.values, self.buffers, self.visit, region.at
        guarded, reductions = region.guarded, region.reductions

        def run() -> None:
            ranges = at(values)
            if guarded and any(low >= high for low, high in ranges.values()):
                return
            later = False
            for axis in reductions:
                later |= ranges[axis][0] > 0
            visit(Instance(nest, node, ranges, later, dict(buffers)))

        return run


def _when(test: Callable[[], bool], steps: list[Step]) -> Step:
    def run() -> None:
        if test():
            for step in steps:
                step()

    return run


def _refuse(stage: str) -> None:
    raise ScheduleError(
        f"stage `{stage}` is computed element by element; "
        "tensorise it, or leave it to a target that runs loops"
    )

"""The nodes of a loop program: loops, buffers, statements.

A variable is named `stage:loop`, so the names of nested nests never clash. Indices are affine in
variables that are bound further out. A `Let` computes an axis from its split or fused loops. Every
buffer is a box of its tensor and keeps the tensor's coordinates.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...isa.expressions import Affine, Expression, Op, Read
from ..tensor import Axis, Compute, Tensor
from .affine import value_of
from .box import Box
from .rolling import Rolling
from .stages import Place
from .target import Kind, TensorInstruction


@dataclass(frozen=True, slots=True)
class For:
    """`extent` iterations of `variable` from `start`; buffers inside have `depth` slots.

    A loop with a `rolling` computes only the tiles that its reader needs and that the ring lacks.
    """

    variable: str
    start: Affine
    extent: int
    kind: Kind
    depth: int
    body: "Block"
    rolling: Rolling | None = None


@dataclass(frozen=True, slots=True)
class Digit:
    """`variable // divisor % modulus`; a leading digit needs no remainder."""

    variable: str
    divisor: int
    modulus: int
    leading: bool


@dataclass(frozen=True, slots=True)
class Let:
    """`variable = value`, plus a digit of a fused loop; valid to the end of the block."""

    variable: str
    value: Affine
    digit: Digit | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`low <= value < high`; None means no bound."""

    value: Affine
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Guard:
    """Run the body if all conditions hold; guards cut off tails and borders."""

    conditions: tuple[Condition, ...]
    body: "Block"


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate a buffer to the end of the block: a tensor's box of `shape` at `origin`.

    Parameters
    ----------
    tensor
        The tensor that it holds; the buffer has the tensor's name.
    scope
        A scratchpad, main memory, or `REGISTER` for the partial sums of a reduction.
    origin, shape
        The box; elements outside the tensor's domain are never used.
    slots
        Number of copies used in rotation, so that one is filled while another is read; 0 for as
        many as fit the scratchpad.
    rolling
        The ring, if the buffer is a ring of rows.
    """

    tensor: Tensor
    scope: str
    origin: tuple[Affine, ...]
    shape: tuple[int, ...]
    slots: int
    rolling: Rolling | None = None

    @property
    def elements(self) -> int:
        """Number of elements in one slot."""
        return math.prod(self.shape) if self.rolling is None else self.rolling.elements


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one stage.

    Parameters
    ----------
    stage
        Name of the stage and of its tensor.
    axes
        Its data axes.
    reductions
        Its reduction axes.
    domain
        Elements of its tensor that exist.
    compute
        The expression of the stage; None for a copy.
    place
        The loop in which it is computed; None at the root.
    """

    stage: str
    axes: tuple[str, ...]
    reductions: tuple[Axis, ...]
    domain: Box
    compute: Compute | None
    place: Place | None
    body: "Block"


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = value`."""

    target: Read
    value: Expression


@dataclass(frozen=True, slots=True)
class Update:
    """Combine `target` with `value`; overwrite it when all variables of `first` are zero."""

    target: Read
    op: Op
    value: Expression
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransferNest:
    """Loops over a box of `source` without other nodes: one transfer."""

    source: str
    body: "Block"


@dataclass(frozen=True, slots=True)
class InstructionNest:
    """Loops over a box that together are one instruction."""

    instruction: TensorInstruction
    body: "Block"

    @property
    def mnemonic(self) -> str:
        """The instruction's name."""
        return self.instruction.mnemonic


@dataclass(frozen=True, slots=True)
class Barrier:
    """The threads of a block wait here until all of them have arrived."""


Node = (
    For | Let | Guard | Allocate | Nest | Assign | Update | Barrier | TransferNest | InstructionNest
)
Block = tuple[Node, ...]

LEAVES = (Let, Allocate, Assign, Update, Barrier)
"""Nodes without a body."""


def nodes(block: Block, closed: tuple[type[Node], ...] = ()) -> Iterator[Node]:
    """All nodes in the order of the text, except those inside nodes of the `closed` types."""
    for node in block:
        yield node
        if not isinstance(node, LEAVES):
            inside = () if type(node) in closed else node.body
            yield from nodes(inside, closed)


def let_value(node: Let, values: Mapping[str, int]) -> int:
    """The value that a `Let` binds."""
    value = value_of(node.value, values)
    if node.digit is not None:
        value += values[node.digit.variable] // node.digit.divisor % node.digit.modulus
    return value


def holds(condition: Condition, values: Mapping[str, int]) -> bool:
    """Whether a condition of a guard holds."""
    value = value_of(condition.value, values)
    return (condition.low is None or condition.low <= value) and (
        condition.high is None or value < condition.high
    )

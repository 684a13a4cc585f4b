"""The nodes of a loop program: loops, buffers, statements.

A variable is named `stage:loop`, so that nests inside each other never confuse theirs. Indices are
affine in variables that are bound further out; what a split or fused loop means for its axis is a
`Let`. Every buffer is a box of its tensor and keeps the tensor's coordinates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...isa.expressions import Affine, Expression, Op, Read
from ..accelerator.dma import Box
from ..tensor import Axis, Compute, Tensor
from .affine import value_of
from .rolling import Rolling
from .stages import Kind, Place


def qualified(stage: str, loop: str) -> str:
    """The variable of a stage's loop or axis."""
    return f"{stage}:{loop}"


@dataclass(frozen=True, slots=True)
class For:
    """`variable` from `start`, `extent` times; `depth` slots for the buffers inside.

    A loop with a `rolling` runs only over the tiles that its reader needs and that are not there.
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
    """`variable // divisor % modulus`; for a leading digit the remainder changes nothing."""

    variable: str
    divisor: int
    modulus: int
    leading: bool


@dataclass(frozen=True, slots=True)
class Let:
    """`variable = value`, plus a digit of a fused loop; binds to the end of the block."""

    variable: str
    value: Affine
    digit: Digit | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`low <= value < high`; None bounds nothing."""

    value: Affine
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Guard:
    """The body where all conditions hold, nothing elsewhere: tails and borders."""

    conditions: tuple[Condition, ...]
    body: "Block"


@dataclass(frozen=True, slots=True)
class Allocate:
    """A buffer to the end of the block: the box of `shape` at `origin` of a tensor.

    Parameters
    ----------
    tensor
        What it holds; its name is the buffer's.
    scope
        A scratchpad, main memory, or `REGISTER` for the sums of a reduction that is not finished.
    origin, shape
        The box; elements that lie outside the tensor's domain are never used.
    slots
        Copies that take turns, so that one is filled while another is read; 0 for as many as the
        scratchpad has room for.
    rolling
        Where the buffer is a ring of rows.
    """

    tensor: Tensor
    scope: str
    origin: tuple[Affine, ...]
    shape: tuple[int, ...]
    slots: int
    rolling: Rolling | None = None


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one stage.

    Parameters
    ----------
    stage
        Its name, which is its tensor's.
    axes
        Its data axes.
    reductions
        Its reduction axes.
    domain
        Elements of its tensor that exist.
    compute
        What it computes, None for a copy.
    place
        The loop it is computed in, None at the root.
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
    """`target` combined with `value`, or overwritten where all variables of `first` are zero."""

    target: Read
    op: Op
    value: Expression
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransferNest:
    """Loops over a box of `source`, nothing else inside: one transfer."""

    source: str
    body: "Block"


@dataclass(frozen=True, slots=True)
class InstructionNest:
    """Loops over a box that are one instruction, with its mnemonic."""

    mnemonic: str
    body: "Block"


Node = For | Let | Guard | Allocate | Nest | Assign | Update | TransferNest | InstructionNest
Block = tuple[Node, ...]


def nodes(block: Block) -> Iterator[Node]:
    """All nodes in the order of the text."""
    for node in block:
        yield node
        if not isinstance(node, (Let, Allocate, Assign, Update)):
            yield from nodes(node.body)


def let_value(node: Let, values: Mapping[str, int]) -> int:
    """What a `Let` binds."""
    value = value_of(node.value, values)
    if node.digit is not None:
        value += values[node.digit.variable] // node.digit.divisor % node.digit.modulus
    return value


def holds(condition: Condition, values: Mapping[str, int]) -> bool:
    """Whether a condition of a guard is true."""
    value = value_of(condition.value, values)
    return (condition.low is None or condition.low <= value) and (
        condition.high is None or value < condition.high
    )

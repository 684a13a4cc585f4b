"""The language in which kernels are written and instructions declare what they compute.

An expression is a tree of `Read`, `Literal`, `Real`, `Call` and `Reduction`. An instruction's law
is the same tree with holes: `Slot` for an operand, `Immediate` for a field, `Maybe` and `OneOf` for
the forms that a flag or a code selects. Tensorisation matches an expression against a law
(`matches`).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Op(Enum):
    """Operations on elements.

    Integer sums and products wrap at 32 bits, or at 64 if an operand is int64. REQUANTISE, CLAMP
    and LOOKUP follow `isa.numbers`. The first four also take float32 operands and round to
    binary32; a fused product and sum rounds once. SHIFT_RIGHT keeps the sign. Comparisons give 1 or
    0. Operations from REAL on are for the host, except that a declared VECTOR operation may use
    comparisons and SELECT. Those of `ROW_OPS` work on a row; see `isa.row_laws`.
    """

    ADD = "+"
    MULTIPLY = "*"
    MAXIMUM = "max"
    MINIMUM = "min"
    SHIFT_RIGHT = ">>"
    AND = "&"
    OR = "|"
    XOR = "^"
    REQUANTISE = "requantise"
    CLAMP = "clamp"
    LOOKUP = "lookup"
    SOFTMAX = "softmax"
    STANDARDISE = "standardise"
    NORMALISE = "normalise"
    REAL = "real"
    ROUND = "round"
    LESS = "less"
    EQUAL = "equal"
    SELECT = "select"
    DIVIDE = "/"
    SQRT = "sqrt"
    EXP = "exp"
    DECAY = "decay"
    LOG = "log"
    TANH = "tanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    SIN = "sin"
    COS = "cos"
    ELEMENT = "element"


ROW_OPS = (Op.SOFTMAX, Op.STANDARDISE, Op.NORMALISE)
"""Operations whose result depends on the whole row of their first argument."""


class Affine(NamedTuple):
    """An index: `constant` plus coefficients times axes; `terms` sorted, none zero."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(constant: int = 0, **terms: int) -> "Affine":
        """Build from keywords: `Affine.of(-1, y=2, ky=1)`."""
        return Affine(tuple(sorted((k, v) for k, v in terms.items() if v)), constant)

    def coefficient(self, axis: str) -> int:
        """Coefficient of an axis; 0 if it does not occur."""
        return dict(self.terms).get(axis, 0)

    def __str__(self) -> str:
        parts = [name if value == 1 else f"{value}*{name}" for name, value in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True, slots=True)
class Read:
    """One element of a tensor."""

    tensor: str
    index: tuple[Affine, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """An integer known at compile time."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Real:
    """A float32 number known at compile time."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.9g}"


@dataclass(frozen=True, slots=True)
class Call:
    """An operation on expressions.

    Arguments: CLAMP takes value, low, high; REQUANTISE value, scale; LOOKUP table, index (and reads
    the table at index + 128); ELEMENT a read and the distance, in row-major order, of the element
    to read instead, which must be inside the tensor; SELECT a comparison, the value for 1, the
    value for 0. REAL converts an integer to float32; each float32 sum or product inside it is
    rounded separately. ROUND converts float32 to int32, halves to even; a value out of range is
    undefined.
    """

    op: Op
    arguments: tuple["Expression", ...]

    def __str__(self) -> str:
        if self.op in _INFIX:
            return "(" + f" {self.op.value} ".join(map(str, self.arguments)) + ")"
        return f"{self.op.value}({', '.join(map(str, self.arguments))})"


_INFIX = (Op.ADD, Op.MULTIPLY, Op.SHIFT_RIGHT, Op.AND, Op.OR, Op.XOR, Op.DIVIDE)


@dataclass(frozen=True, slots=True)
class Reduction:
    """ADD or MAXIMUM of an expression over all reduction axes."""

    op: Op
    body: "Expression"

    def __str__(self) -> str:
        return f"{'sum' if self.op is Op.ADD else self.op.value}({self.body})"


@dataclass(frozen=True, slots=True)
class Slot:
    """Hole for a `Read`: an operand of the instruction and its lanes, innermost last.

    With `byte` the law holds only for int8 elements, so the operand may not come from ACC.
    """

    operand: str
    lanes: tuple[str, ...] = ()
    byte: bool = False

    def __str__(self) -> str:
        return f"{self.operand}[{', '.join(self.lanes)}]"


@dataclass(frozen=True, slots=True)
class Immediate:
    """Hole for a `Literal`: a field of the instruction."""

    field: str

    def __str__(self) -> str:
        return self.field


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of `inner` inside the `outer` of a `Maybe`."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Maybe:
    """`outer` around `inner`, or `inner` alone; `flag` is the field that selects, or None."""

    flag: str | None
    outer: "Expression"
    inner: "Expression"

    def __str__(self) -> str:
        return f"{str(self.outer).replace('_', str(self.inner), 1)}?"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Alternatives, each with the value of a field that selects it."""

    field: str
    alternatives: tuple[tuple[Hashable, "Expression"], ...]

    def __str__(self) -> str:
        return " | ".join(str(tree) for _, tree in self.alternatives)


Expression = Read | Literal | Real | Call | Reduction | Slot | Immediate | Hole | Maybe | OneOf


@dataclass(frozen=True, slots=True)
class Match:
    """Bindings of a pattern's holes."""

    reads: tuple[tuple[Slot, Read], ...] = ()
    fields: tuple[tuple[str, Hashable], ...] = ()

    def bind(self, slot: Slot, read: Read) -> "Match":
        """Copy with one more operand."""
        return Match((*self.reads, (slot, read)), self.fields)

    def set(self, field: str, value: Hashable) -> "Match":
        """Copy with one more field."""
        return Match(self.reads, (*self.fields, (field, value)))


def matches(pattern: Expression, tree: Expression, found: Match | None = None) -> Iterator[Match]:
    """All ways to match a tree against an instruction's law.

    Alternatives come in order, the larger form of a `Maybe` first. There may be several: a sum of
    two reads adds either a bias or a second operand, and only the memories of the operands decide.
    A hole that occurs twice in the law must match the same expression twice.
    """
    found = found or Match()
    if isinstance(pattern, Slot):
        bound = dict(found.reads).get(pattern)
        if isinstance(tree, Read) and bound is None:
            yield found.bind(pattern, tree)
        elif tree == bound:
            yield found
    elif isinstance(pattern, Immediate):
        if isinstance(tree, Literal):
            value = dict(found.fields).get(pattern.field, tree.value)
            if value == tree.value:
                yield found.set(pattern.field, value)
    elif isinstance(pattern, OneOf):
        for code, alternative in pattern.alternatives:
            yield from matches(alternative, tree, found.set(pattern.field, code))
    elif isinstance(pattern, Maybe):
        for taken, form in ((1, fill(pattern.outer, pattern.inner)), (0, pattern.inner)):
            start = found if pattern.flag is None else found.set(pattern.flag, taken)
            yield from matches(form, tree, start)
    elif isinstance(pattern, Call):
        if isinstance(tree, Call) and tree.op is pattern.op:
            yield from _match_all(pattern.arguments, tree.arguments, found)
    elif isinstance(pattern, Reduction):
        if isinstance(tree, Reduction) and tree.op is pattern.op:
            yield from matches(pattern.body, tree.body, found)
    elif pattern == tree:
        yield found


def _match_all(
    patterns: tuple[Expression, ...], trees: tuple[Expression, ...], found: Match
) -> Iterator[Match]:
    if len(patterns) != len(trees):
        return
    if not patterns:
        yield found
        return
    for first in matches(patterns[0], trees[0], found):
        yield from _match_all(patterns[1:], trees[1:], first)


def fill(tree: Expression, inner: Expression) -> Expression:
    """Replace the hole in `tree` by `inner`."""
    if isinstance(tree, Hole):
        return inner
    if isinstance(tree, Call):
        return Call(tree.op, tuple(fill(argument, inner) for argument in tree.arguments))
    return tree


def reads_of(tree: Expression) -> tuple[Read, ...]:
    """All reads, left to right."""
    if isinstance(tree, Read):
        return (tree,)
    if isinstance(tree, Call):
        return tuple(read for argument in tree.arguments for read in reads_of(argument))
    if isinstance(tree, Reduction):
        return reads_of(tree.body)
    return ()

"""The operations of VECTOR: how a step combines its operands `a` and `b`.

An operation is a name and a law. Its code, assembly, semantics, hardware, compiled simulation,
tensorisation pattern, random programs and line of the manual all follow from these. Every machine
has the operations in `OPERATIONS`; a `Configuration` may declare more.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from ..errors import IsaError
from .expressions import Call, Expression, Immediate, Literal, Op, Slot
from .laws import HIGH, LOW, RANGES, Range, evaluate
from .read_law import read_law

NAMES: dict[str, Expression] = {
    "a": Slot("a", ("v",)),
    "b": Slot("b", ("v",)),
    "a_multiplier": Immediate("a_multiplier"),
    "b_multiplier": Immediate("b_multiplier"),
}
"""Names that a law may read: the operands of a step and two fields of the instruction."""

_BYTE, _HALF = Range(-(1 << 7), (1 << 7) - 1), Range(-(1 << 15), (1 << 15) - 1)
_RANGES = {"a": Range(LOW, HIGH), "b": _BYTE, "a_multiplier": _HALF, "b_multiplier": _HALF}

FIRST_BITS, SECOND_BITS, FACTOR_BITS = 32, 8, 16
"""Widths of the multipliers of a lane: 32 by 16 bits, and 8 by 16."""

MOST_OPERATIONS = 16
"""Codes of four bits."""

Product = tuple[Expression, Expression]
"""Left and right factor of a multiplier."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that a step of VECTOR applies to its operands.

    Parameters
    ----------
    name
        Name in assembly.
    law
        `x` as an expression of `a`, `b`, `a_multiplier` and `b_multiplier`; see `read_law`.

    Attributes
    ----------
    tree : Expression
        The law.
    names : frozenset[str]
        Names that the law reads.
    products : tuple[Product, Product]
        The law as the sum of two products that a lane computes in one step.

    Raises
    ------
    IsaError
        When the name or the law is malformed, or a lane cannot compute it.
    """

    name: str
    law: str
    tree: Expression = field(init=False, repr=False, compare=False)
    names: frozenset[str] = field(init=False, repr=False, compare=False)
    products: tuple[Product, Product] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise IsaError(
                f"operation `{self.name}`: a name is a lower-case letter, then lower-case letters, "
                "digits and `_`"
            )
        try:
            tree = read_law(self.law, NAMES)
        except IsaError as problem:
            raise IsaError(f"operation `{self.name}`: {problem}") from None
        products = _as_products(tree)
        if products is None:
            raise IsaError(
                f"operation `{self.name}`: `{self.law}` is not a sum of two products that fit a "
                f"lane, one of {FIRST_BITS} by {FACTOR_BITS} bits, one of {SECOND_BITS} by "
                f"{FACTOR_BITS}; limit the factors with `min` and `max`, and multiply only by "
                "numbers inside them"
            )
        object.__setattr__(self, "law", ast.unparse(ast.parse(self.law.strip(), mode="eval")))
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "names", frozenset(_names(tree)))
        object.__setattr__(self, "products", products)
        if not self.reads("a"):
            raise IsaError(f"operation `{self.name}`: `{self.law}`: the law must reference `a`")

    def __str__(self) -> str:
        return f"{self.name} = {self.law}"

    def reads(self, name: str) -> bool:
        """Whether the law depends on an operand or a field."""
        return name in self.names


# The sum of two products ------------------------------------------------------------------------


def _as_products(tree: Expression) -> tuple[Product, Product] | None:
    """A tree as the sum of two products; None if it does not have that form."""
    if isinstance(tree, Call) and tree.op is Op.ADD:
        for one, other in (tree.arguments, tree.arguments[::-1]):
            first, second = _as_product(one, FIRST_BITS), _as_product(other, SECOND_BITS)
            if first and second:
                return first, second
    first = _as_product(tree, FIRST_BITS)
    return first and (first, (NAMES["b"], Literal(0)))


def _as_product(tree: Expression, bits: int) -> Product | None:
    if isinstance(tree, Call) and tree.op is Op.MULTIPLY:
        for left, right in (tree.arguments, tree.arguments[::-1]):
            if _fits(left, bits) and _fits(right, FACTOR_BITS):
                return left, right
    return (tree, Literal(1)) if _fits(tree, bits) else None


def _fits(tree: Expression, bits: int) -> bool:
    """Whether a tree needs no multiplier and its values fit `bits` bits."""
    return _is_plain(tree) and evaluate(tree, _RANGES, RANGES).fits(bits)


def _is_plain(tree: Expression) -> bool:
    """Whether all products are by constants."""
    if not isinstance(tree, Call):
        return True
    if tree.op is Op.MULTIPLY and not any(isinstance(x, Literal) for x in tree.arguments):
        return False
    return all(map(_is_plain, tree.arguments))


def _names(tree: Expression) -> Iterator[str]:
    if isinstance(tree, Call):
        for argument in tree.arguments:
            yield from _names(argument)
    yield from (name for name, leaf in NAMES.items() if leaf == tree)


def forms(tree: Expression) -> tuple[Expression, ...]:
    """A law, and the shorter laws without fields that hold 1; longest first."""
    if not isinstance(tree, Call):
        return (tree,)
    if tree.op is Op.MULTIPLY and isinstance(tree.arguments[1], Immediate):
        return (tree, tree.arguments[0])
    found = [()]
    for argument in tree.arguments:
        found = [(*before, form) for before in found for form in forms(argument)]
    return tuple(Call(tree.op, each) for each in found)


# The table --------------------------------------------------------------------------------------


class Combine:
    """The operations of every machine; an index in this table is the code."""

    A = Operation("a", "a")
    ADD = Operation("add", "a * a_multiplier + b * b_multiplier")
    MUL = Operation("mul", "a * b")
    MAX = Operation("max", "max(a, b)")
    MIN = Operation("min", "min(a, b)")


OPERATIONS: tuple[Operation, ...] = tuple(
    each for each in vars(Combine).values() if isinstance(each, Operation)
)


@cache
def operations_with(extra: tuple[str, ...]) -> tuple[Operation, ...]:
    """All operations of a machine by code, those of `OPERATIONS` first.

    Parameters
    ----------
    extra
        Further declarations, each a string such as `absolute_difference = abs(a - b)`.

    Raises
    ------
    IsaError
        When a declaration is malformed, there are too many, or a name is taken.
    """
    operations = list(OPERATIONS)
    for text in extra:
        name, equals, law = text.partition("=")
        if not equals:
            raise IsaError(f"operation `{text}`: expected `name = law`")
        operation = Operation(name.strip(), law.strip())
        if any(operation.name == other.name for other in operations):
            raise IsaError(f"operation `{operation.name}`: name already taken; choose another")
        operations.append(operation)
    if len(operations) > MOST_OPERATIONS:
        raise IsaError(
            f"{len(extra)} extra operations; expected at most {MOST_OPERATIONS - len(OPERATIONS)}"
        )
    return tuple(operations)


def code_bits(operations: Sequence[Operation]) -> int:
    """Width of the field for an operation's code; never less than in version 1."""
    return max(3, (len(operations) - 1).bit_length())

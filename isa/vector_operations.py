"""The operations of VECTOR: how a step combines its operands `a` and `b`.

An operation is a name and a law. Its code, assembly, semantics, hardware, compiled simulation,
tensorisation pattern, random programs and line of the manual all follow from these. Every machine
has the operations in `OPERATIONS`; a `Configuration` may declare more.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ..errors import IsaError
from .expressions import Call, Expression, Immediate, Literal, Op, Slot, walk
from .laws import HIGH, LOW, RANGES, Range, evaluate, unwrapped
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
_BYTES = {**_RANGES, "a": _BYTE}

FIRST_BITS, SECOND_BITS, FACTOR_BITS = 18, 8, 16
"""Widths of the multipliers of a lane: 18 by 16 bits, and 8 by 16."""

PASSED_BITS = 32
"""Width of the value that passes beside the first multiplier, in place of its product."""

MAX_OPERATIONS = 16
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
        The law as the sum of two products that a lane computes in one step. If the right factor of
        the first one is 1, or `a_multiplier` where it counts as 1, the left one passes beside the
        multiplier and may have 32 bits.

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
                f"{FACTOR_BITS}; limit the factors with `min` and `max` or take their low bits "
                f"with `wrap(x, {FIRST_BITS})`, and multiply only by numbers inside them"
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
            first, second = _as_first(one), _as_second(other)
            if first and second:
                return first, second
    first = _as_first(tree)
    return first and (first, (NAMES["b"], Literal(0)))


def _as_first(tree: Expression) -> Product | None:
    """A tree as the product of the first multiplier, or as a value that passes beside it.

    `a_multiplier` multiplies only bytes: it counts as 1 if `a` comes from ACC.
    """
    for left, right in _factors(tree):
        ranges = _BYTES if right == NAMES["a_multiplier"] else _RANGES
        if _fits(left, FIRST_BITS, ranges) and _fits(right, FACTOR_BITS, ranges):
            return left, right
    return (tree, Literal(1)) if _fits(tree, PASSED_BITS, _RANGES) else None


def _as_second(tree: Expression) -> Product | None:
    for left, right in _factors(tree):
        if _fits(left, SECOND_BITS, _RANGES) and _fits(right, FACTOR_BITS, _RANGES):
            return left, right
    return (tree, Literal(1)) if _fits(tree, SECOND_BITS, _RANGES) else None


def _factors(tree: Expression) -> Iterator[tuple[Expression, Expression]]:
    """The factors of a product, in both orders."""
    if isinstance(tree, Call) and tree.op is Op.MULTIPLY:
        left, right = tree.arguments
        yield left, right
        yield right, left


def _fits(tree: Expression, bits: int, ranges: Mapping[str, Range]) -> bool:
    """Whether a tree needs no multiplier and its values fit `bits` bits."""
    return _is_plain(tree) and evaluate(tree, ranges, RANGES).fits(bits)


def is_byte(tree: Expression) -> bool:
    """Whether the values of a law's part fit a signed byte, for any operands and fields."""
    return evaluate(tree, _RANGES, RANGES).fits(SECOND_BITS)


def _is_plain(tree: Expression) -> bool:
    """Whether all products are by constants."""
    if not isinstance(tree, Call):
        return True
    if tree.op is Op.MULTIPLY and not any(isinstance(x, Literal) for x in tree.arguments):
        return False
    return all(map(_is_plain, tree.arguments))


def _names(tree: Expression) -> Iterator[str]:
    parts = tuple(walk(tree))
    return (name for name, leaf in NAMES.items() if leaf in parts)


def forms(tree: Expression) -> tuple[Expression, ...]:
    """A law and shorter ones, longest first: without fields that hold 1, and for bytes.

    An operand of at most 8 bits needs no `wrap`.
    """
    if not isinstance(tree, Call):
        return (tree,)
    wrap = unwrapped(tree)
    if wrap and isinstance(wrap[0], Slot) and wrap[1] >= SECOND_BITS:
        return (tree, replace(wrap[0], byte=True))
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
    MUL = Operation("mul", "wrap(a, 18) * b")
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
    if len(operations) > MAX_OPERATIONS:
        raise IsaError(
            f"{len(extra)} extra operations; expected at most {MAX_OPERATIONS - len(OPERATIONS)}"
        )
    return tuple(operations)


def code_bits(operations: Sequence[Operation]) -> int:
    """Width of the field for an operation's code; never less than in version 1."""
    return max(3, (len(operations) - 1).bit_length())

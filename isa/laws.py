"""Laws: what an operation computes, as one text that is read once and evaluated over any values.

`read_law` makes an expression tree of `max(a, b) - min(a, b)`. `evaluate` computes it over NumPy
arrays, over signals of the hardware, or over pieces of C++: whatever has Python's operators, with a
`Domain` for what operators cannot say. All integers are 32 bits wide and wrap.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import IsaError
from .expressions import Call, Constant, Expression, Immediate, Op, Slot

LOW, HIGH = -(1 << 31), (1 << 31) - 1
"""Least and greatest 32-bit integer."""

FORMS = (
    "whole numbers, `+ - *`, `>>` and `<<` by a number, `& | ^ ~`, `max`, `min`, `abs`, "
    "comparisons, and `x if condition else y`"
)
"""What a law may be written with, for messages and the manual."""

LONGEST_LAW, MOST_PARTS = 300, 100
"""Limits of a law: it becomes an adder, not an accelerator of its own."""

MINUS_ONE = Constant(-1)


class Domain:
    """What evaluation needs to know of a kind of values beside their operators."""

    def constant(self, value: int) -> Any:
        """A whole number."""
        return value

    def wrapped(self, value: Any) -> Any:
        """The low 32 bits of a result, signed."""
        return value

    def select(self, condition: Any, true: Any, false: Any) -> Any:
        """One of two values."""
        return true if condition else false

    def larger(self, left: Any, right: Any) -> Any:
        """The greater of two values."""
        return self.select(right > left, right, left)

    def smaller(self, left: Any, right: Any) -> Any:
        """The lesser of two values."""
        return self.select(right < left, right, left)


_MEANINGS: dict[Op, Callable[..., Any]] = {
    Op.ADD: lambda domain, x, y: x + y,
    Op.MULTIPLY: lambda domain, x, y: x * y,
    Op.MAXIMUM: lambda domain, x, y: domain.larger(x, y),
    Op.MINIMUM: lambda domain, x, y: domain.smaller(x, y),
    Op.SHIFT_RIGHT: lambda domain, x, y: x >> y,
    Op.AND: lambda domain, x, y: x & y,
    Op.OR: lambda domain, x, y: x | y,
    Op.XOR: lambda domain, x, y: x ^ y,
    Op.LESS: lambda domain, x, y: domain.select(x < y, domain.constant(1), domain.constant(0)),
    Op.EQUAL: lambda domain, x, y: domain.select(x == y, domain.constant(1), domain.constant(0)),
    Op.SELECT: lambda domain, c, x, y: domain.select(c != domain.constant(0), x, y),
}


def evaluate(tree: Expression, values: Mapping[str, Any], domain: Domain) -> Any:
    """The value of a law.

    Parameters
    ----------
    values
        For each operand and field that the law reads; an array is int32[...].
    """
    if isinstance(tree, Constant):
        return domain.constant(tree.value)
    if isinstance(tree, Slot):
        return values[tree.operand]
    if isinstance(tree, Immediate):
        return values[tree.field]
    assert isinstance(tree, Call)
    if tree.op is Op.MULTIPLY and tree.arguments[1] == MINUS_ONE:
        return domain.wrapped(-evaluate(tree.arguments[0], values, domain))
    parts = [evaluate(part, values, domain) for part in tree.arguments]
    return domain.wrapped(_MEANINGS[tree.op](domain, *parts))


class _Arrays(Domain):
    """int32[...]: NumPy wraps by itself."""

    def constant(self, value: int) -> np.int32:
        return np.int32(value)

    def select(self, condition: Any, true: Any, false: Any) -> np.ndarray:
        return np.where(condition, true, false)

    def larger(self, left: Any, right: Any) -> np.ndarray:
        return np.maximum(left, right)

    def smaller(self, left: Any, right: Any) -> np.ndarray:
        return np.minimum(left, right)


ARRAYS = _Arrays()


# Ranges -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """All whole numbers from `low` to `high`, with bounds of what operators make of them."""

    low: int
    high: int

    def fits(self, bits: int) -> bool:
        """Whether every value is a signed integer of so many bits."""
        return self.low >= -(1 << (bits - 1)) and self.high < 1 << (bits - 1)

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.high + other.high)

    def __neg__(self) -> "Range":
        return Range(-self.high, -self.low)

    def __mul__(self, other: "Range") -> "Range":
        ends = [x * y for x in (self.low, self.high) for y in (other.low, other.high)]
        return Range(min(ends), max(ends))

    def __rshift__(self, other: "Range") -> "Range":
        return Range(self.low >> other.low, self.high >> other.low)

    def _bits(self, other: "Range") -> "Range":
        """Any pattern of the bits that both need."""
        bits = max(abs(end) for end in (self.low, self.high, other.low, other.high)).bit_length()
        return Range(-(1 << bits), (1 << bits) - 1)

    def __and__(self, other: "Range") -> "Range":
        least = [each.high for each in (self, other) if each.low >= 0]
        return Range(0, min(least)) if least else self._bits(other)

    def __or__(self, other: "Range") -> "Range":
        return self._bits(other)

    __xor__ = __or__

    def __lt__(self, other: "Range") -> "Range":
        return Range(0, 1)

    __gt__ = __lt__


class _Ranges(Domain):
    """Bounds of values, without regard to how operands depend on each other."""

    def constant(self, value: int) -> Range:
        return Range(value, value)

    def wrapped(self, value: Range) -> Range:
        return value if value.fits(32) else Range(LOW, HIGH)

    def select(self, condition: Any, true: Range, false: Range) -> Range:
        return Range(min(true.low, false.low), max(true.high, false.high))

    def larger(self, left: Range, right: Range) -> Range:
        return Range(max(left.low, right.low), max(left.high, right.high))

    def smaller(self, left: Range, right: Range) -> Range:
        return Range(min(left.low, right.low), min(left.high, right.high))


RANGES = _Ranges()


# Reading ----------------------------------------------------------------------------------------


def read_law(text: str, names: Mapping[str, Expression]) -> Expression:
    """A law's text as a tree.

    Differences become sums with a multiple of -1, `abs(x)` the larger of `x` and `-x`: what
    schedules match is as small a language as can be.

    Parameters
    ----------
    names
        What the law may read.

    Raises
    ------
    IsaError
        For anything that no law is written with, naming it.
    """
    too_long = IsaError(
        f"law `{text}`: too long; at most {LONGEST_LAW} characters, and {MOST_PARTS} names, "
        "numbers and operations, those inside of `abs` counted twice"
    )
    if len(text) > LONGEST_LAW:
        raise too_long
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise IsaError(f"law `{text}`: not an expression; write it with {FORMS}") from None
    if _size(body) > MOST_PARTS:
        raise too_long
    return _Reader(text, names).tree(body)


def _size(node: ast.AST) -> int:
    """Parts of the tree that is made of a piece of syntax, or a few more."""
    inside = sum(map(_size, ast.iter_child_nodes(node)))
    doubled = isinstance(node, ast.Call) and ast.unparse(node.func) == "abs"
    return isinstance(node, ast.expr) + inside * (2 if doubled else 1)


_BINARY: dict[type[ast.operator], Op] = {
    ast.Add: Op.ADD,
    ast.Mult: Op.MULTIPLY,
    ast.RShift: Op.SHIFT_RIGHT,
    ast.BitAnd: Op.AND,
    ast.BitOr: Op.OR,
    ast.BitXor: Op.XOR,
}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Python's syntax to expressions."""

    text: str
    names: Mapping[str, Expression]

    def tree(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return self.number(value)
            case ast.Name(id=name):
                if name not in self.names:
                    known = ", ".join(self.names)
                    raise IsaError(f"law `{self.text}`: unknown name `{name}`; known are {known}")
                return self.names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negative(self.tree(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return Call(Op.XOR, (self.tree(operand), MINUS_ONE))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, self.tree(left), op, self.tree(right))
            case ast.Call(func=ast.Name(id=name), args=[*arguments], keywords=[]):
                return self.function(node, name, [self.tree(each) for each in arguments])
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.comparison(node, self.tree(left), op, self.tree(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Call(Op.SELECT, (self.tree(test), self.tree(body), self.tree(orelse)))
        raise self.refusal(node)

    def refusal(self, node: ast.expr) -> IsaError:
        return IsaError(
            f"law `{self.text}`: cannot read `{ast.unparse(node)}`; write it with {FORMS}"
        )

    def number(self, value: int) -> Constant:
        if not LOW <= value <= HIGH:
            raise IsaError(f"law `{self.text}`: {value} does not fit 32 bits ({LOW} to {HIGH})")
        return Constant(value)

    def negative(self, tree: Expression) -> Expression:
        if isinstance(tree, Constant):
            return self.number(-tree.value)
        return Call(Op.MULTIPLY, (tree, MINUS_ONE))

    def binary(
        self, node: ast.expr, left: Expression, op: ast.operator, right: Expression
    ) -> Expression:
        if isinstance(op, ast.Sub):
            return Call(Op.ADD, (left, self.negative(right)))
        if isinstance(op, (ast.LShift, ast.RShift)):
            if not isinstance(right, Constant) or not 0 <= right.value < 31:
                raise self.refusal(node)
            if isinstance(op, ast.LShift):
                return Call(Op.MULTIPLY, (left, Constant(1 << right.value)))
        if type(op) not in _BINARY:
            raise self.refusal(node)
        return Call(_BINARY[type(op)], (left, right))

    def function(self, node: ast.expr, name: str, arguments: list[Expression]) -> Expression:
        if name == "abs" and len(arguments) == 1:
            return Call(Op.MAXIMUM, (arguments[0], self.negative(arguments[0])))
        op = {"max": Op.MAXIMUM, "min": Op.MINIMUM}.get(name)
        if op is None or len(arguments) < 2:
            raise self.refusal(node)
        tree = arguments[0]
        for argument in arguments[1:]:
            tree = Call(op, (tree, argument))
        return tree

    def comparison(
        self, node: ast.expr, left: Expression, op: ast.cmpop, right: Expression
    ) -> Expression:
        if isinstance(op, (ast.Gt, ast.LtE)):
            left, right = right, left
        if isinstance(op, (ast.Eq, ast.NotEq)):
            tree = Call(Op.EQUAL, (left, right))
        elif isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            tree = Call(Op.LESS, (left, right))
        else:
            raise self.refusal(node)
        if isinstance(op, (ast.LtE, ast.GtE, ast.NotEq)):
            return Call(Op.SELECT, (tree, Constant(0), Constant(1)))
        return tree

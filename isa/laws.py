"""Laws: an operation as one expression that can be evaluated over any kind of value.

`read_law` parses a text such as `max(a, b) - min(a, b)`. `evaluate` computes the tree over NumPy
arrays, hardware signals, C++ text or ranges: anything with Python's operators, plus a `Domain` for
what operators cannot express. All integers are 32 bits wide and wrap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .expressions import Call, Expression, Immediate, Literal, Op, Slot

LOW, HIGH = -(1 << 31), (1 << 31) - 1
"""Least and greatest 32-bit integer."""

MINUS_ONE = Literal(-1)


def wrapped(tree: Expression, bits: int) -> Expression:
    """The low `bits` bits of a tree's value as a signed number."""
    lost = 32 - bits
    return Call(
        Op.SHIFT_RIGHT,
        (Call(Op.MULTIPLY, (tree, Literal(1 << lost))), Literal(lost)),
    )


def unwrapped(tree: Expression) -> tuple[Expression, int] | None:
    """The tree and the bits from which `wrapped` makes this tree; None if there are none."""
    if isinstance(tree, Call) and tree.op is Op.SHIFT_RIGHT:
        raised, lost = tree.arguments
        if isinstance(lost, Literal) and isinstance(raised, Call) and raised.op is Op.MULTIPLY:
            value, factor = raised.arguments
            if factor == Literal(1 << lost.value):
                return value, 32 - lost.value
    return None


class Domain:
    """Operations on a kind of value that Python operators do not cover."""

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
        Value of each operand and field that the law reads; arrays are int32[...].
    """
    if isinstance(tree, Literal):
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
    """Integers from `low` to `high`; operators give bounds of their results."""

    low: int
    high: int

    def fits(self, bits: int) -> bool:
        """Whether every value fits a signed integer of `bits` bits."""
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
        """Any bit pattern of the width that both operands need."""
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


class _RangeDomain(Domain):
    """Bounds of values; dependences between operands are ignored."""

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


RANGES = _RangeDomain()

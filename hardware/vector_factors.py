"""The factors of a lane's two multipliers, derived from the laws of a machine's operations.

Every law is a sum of two products (`Operation.products`). The operation and the comparisons in its
law select each of the four factors from a few values. Operations share equal values, so `max(a, b)`
costs a comparison but no selection of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth.hdl import Const, Mux, Value
from amaranth.lib import data

from ..isa.expressions import Call, Expression, Immediate, Literal, Op
from ..isa.laws import Domain, evaluate
from ..isa.vector_operations import NAMES, Operation


class _Signals(Domain):
    """Expressions as hardware values; Amaranth's operators lose no bits."""

    def constant(self, value: int) -> Value:
        return Const(value)

    def wrapped(self, value: Any) -> Value:
        bits = Value.cast(value)
        return bits if len(bits) <= 32 else bits[:32].as_signed()

    def select(self, condition: Any, true: Any, false: Any) -> Value:
        return Mux(condition, true, false)


_SIGNALS = _Signals()


class VectorFactors:
    """The combinational factors of one lane.

    Parameters
    ----------
    operations : Sequence[Operation]
        The operations by code; the first one's factors are the default.
    constants : data.View
        The immediate fields of the instruction.
    a, b : Value
        The operands of a step, int32 and int8.

    Attributes
    ----------
    first, second : tuple[Value, Value]
        Left and right factor of the 32 by 16 bit multiplier, and of the 8 by 16 bit one.
    """

    def __init__(
        self, operations: Sequence[Operation], constants: data.View, a: Value, b: Value
    ) -> None:
        self._constants = constants
        self._values = {"a": a, "b": b}
        self._values |= {name: getattr(constants, name) for name in NAMES if name not in "ab"}
        self._values["a_multiplier"] = Mux(constants.a_from_acc, 1, constants.a_multiplier)
        self.first = self._factor(operations, 0, 0), self._factor(operations, 0, 1)
        self.second = self._factor(operations, 1, 0), self._factor(operations, 1, 1)

    def _factor(self, operations: Sequence[Operation], product: int, side: int) -> Value:
        """Select a factor from the values that the operations need."""
        wanted: dict[Expression, Value | None] = {}
        for code, operation in enumerate(operations):
            for tree, taken in self._choices(operation.products[product][side], None):
                mine = _both(self._constants.combine == code, taken)
                before = wanted.get(tree)
                wanted[tree] = mine if before is None else before | mine
        first, *others = wanted
        value = self._chosen(first)
        for tree in others:
            value = Mux(wanted[tree], self._chosen(tree), value)
        return value

    def _choices(
        self, tree: Expression, taken: Value | None
    ) -> Iterator[tuple[Expression, Value | None]]:
        """Return the values that a factor may have, each with its condition."""
        if isinstance(tree, Immediate) and tree.field == "a_multiplier":
            from_acc = self._constants.a_from_acc
            yield Literal(1), _both(taken, from_acc)
            yield tree, _both(taken, ~from_acc)
            return
        if not isinstance(tree, Call) or tree.op not in (Op.MAXIMUM, Op.MINIMUM, Op.SELECT):
            yield tree, taken
            return
        left, right = tree.arguments[-2:]
        if tree.op is Op.SELECT:
            other = self._value(tree.arguments[0]) == 0
        elif tree.op is Op.MAXIMUM:
            other = self._value(right) > self._value(left)
        else:
            other = self._value(right) < self._value(left)
        yield from self._choices(left, _both(taken, ~other))
        yield from self._choices(right, _both(taken, other))

    def _chosen(self, tree: Expression) -> Value:
        """Return a factor's value; `a_multiplier` is used only where it does not count as 1."""
        if isinstance(tree, Immediate):
            return getattr(self._constants, tree.field)
        return self._value(tree)

    def _value(self, tree: Expression) -> Value:
        return Value.cast(evaluate(tree, self._values, _SIGNALS))


def _both(one: Value | None, other: Value | None) -> Any:
    """Combine two conditions with AND; None is always true."""
    if one is None or other is None:
        return other if one is None else one
    return one & other

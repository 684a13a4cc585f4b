"""The operands of a lane's multipliers, derived from the laws of a machine's operations.

Every law is a sum of two products (`Operation.products`). The operation and the comparisons in its
law select each of the factors from a few values. Operations share equal values, so `max(a, b)`
costs a comparison but no selection of its own. A value that is not multiplied passes beside the
first multiplier; a byte is multiplied by 1 instead.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from ..isa.expressions import Call, Expression, Literal, Op
from ..isa.laws import Domain, evaluate, unwrapped
from ..isa.pipeline import MULTIPLIER_CYCLES
from ..isa.vector_operations import (
    FACTOR_BITS,
    FIRST_BITS,
    NAMES,
    PASSED_BITS,
    SECOND_BITS,
    Operation,
    is_byte,
)
from .delay import delayed
from .logic_adder import less


class _HardwareDomain(Domain):
    """Expressions as hardware values; Amaranth's operators lose no bits."""

    def constant(self, value: int) -> Value:
        return Const(value)

    def wrapped(self, value: Any) -> Value:
        bits = Value.cast(value)
        return bits if len(bits) <= 32 else bits[:32].as_signed()

    def select(self, condition: Any, true: Any, false: Any) -> Value:
        return Mux(condition, true, false)


_SIGNALS = _HardwareDomain()

A_MULTIPLIER = NAMES["a_multiplier"]


class VectorFactors:
    """The factors of one lane, from registers that hold the operands of the step before.

    In the first cycle a step's operands are registered, and compared; in the second one the factors
    are selected.

    Parameters
    ----------
    m : Module
        Receives the registers.
    operations : Sequence[Operation]
        The operations by code.
    constants : data.View
        The immediate fields of the instruction.
    a_acc, a_act, b : Value
        The operands of a step: int32 a from ACC, int8 a from ACT, and int8 b.

    Attributes
    ----------
    first, second : tuple[Value, Value]
        Left and right factor of the 18 by 16 bit multiplier, and of the 8 by 16 bit one.
    passed : Value
        The value that passes beside the first multiplier, in the cycle of the products. If the
        multiplier has a product, this value is 0; if not, the product is 0.
    """

    def __init__(
        self,
        m: Module,
        operations: Sequence[Operation],
        constants: data.View,
        a_acc: Value,
        a_act: Value,
        b: Value,
    ) -> None:
        self._m, self._constants, self._a_acc = m, constants, a_acc
        a = Mux(constants.a_from_acc, a_acc, a_act)
        fields = {name: getattr(constants, name) for name in NAMES if name not in "ab"}
        fields["a_multiplier"] = Mux(constants.a_from_acc, 1, constants.a_multiplier)
        self._given = {**fields, "a": a, "b": b}
        self._values = {
            **fields,
            "a": self._register(a, "a", PASSED_BITS),
            "b": self._register(b, "b", SECOND_BITS),
        }
        self._comparisons: dict[Expression, Signal] = {}
        self._from_acc = self._flag(constants.a_from_acc, "from_acc")
        passed, first, second = [], [], []
        for code, operation in enumerate(operations):
            taken = self._flag(constants.combine == code, f"is_{operation.name}")
            (left, right), other = operation.products
            if right == A_MULTIPLIER:
                passed.append((taken & self._from_acc, left))
                first.append((taken & ~self._from_acc, (left, right)))
            elif right != Literal(1):
                first.append((taken, (left, right)))
            else:
                for tree, condition in self._branches(left, taken):
                    if tree == NAMES["a"]:
                        first.append((condition & ~self._from_acc, (tree, right)))
                        passed.append((condition & self._from_acc, tree))
                    elif is_byte(tree) and other[1] == Literal(0):
                        second.append((condition, (tree, right)))
                    else:
                        passed.append((condition, tree))
            if other[1] != Literal(0):
                second.append((taken, other))
        self.passed = self._line(passed)
        self.first = self._product(first, FIRST_BITS)
        self.second = self._product(second, SECOND_BITS)

    def _line(self, passed: list[tuple[Value, Expression]]) -> Value:
        """Delay the value that passes until the products are there."""
        m, choices = self._m, self._choices(passed, PASSED_BITS)
        if choices.keys() != {NAMES["a"]}:
            value = self._one_of(choices, PASSED_BITS)
            return delayed(m, value, MULTIPLIER_CYCLES, "passed")
        # Only `a` from ACC passes. A register with a reset costs no logic.
        upper = self._register(self._a_acc[FIRST_BITS:], "a_acc", PASSED_BITS - FIRST_BITS)
        a = Signal(PASSED_BITS, name="passed_a", reset_less=True)
        m.d.sync += a.eq(Cat(self._values["a"][:FIRST_BITS], upper))
        with m.If(~choices[NAMES["a"]]):
            m.d.sync += a.eq(0)
        return delayed(m, a, MULTIPLIER_CYCLES - 1, "passed")

    def _product(
        self, products: list[tuple[Value, tuple[Expression, Expression]]], bits: int
    ) -> tuple[Value, Value]:
        """Select two factors; the right one is 0 without a product, so the left one may be any."""
        lefts = [(taken, left) for taken, (left, _) in products]
        rights = [(taken, right) for taken, (_, right) in products]
        return self._any(lefts, bits), self._gated(rights, FACTOR_BITS)

    def _any(self, wanted: list[tuple[Value, Expression]], bits: int) -> Value:
        """Select a value of at most `bits` bits, or any value if none is wanted."""
        choices = self._choices(wanted, bits)
        if len(choices) == 1:
            (tree,) = choices
            return self._value(tree, bits)
        return self._one_of(choices, bits)

    def _gated(self, wanted: list[tuple[Value, Expression]], bits: int) -> Value:
        """Select a value of at most `bits` bits, or 0 if none is wanted."""
        return self._one_of(self._choices(wanted, bits), bits)

    def _one_of(self, choices: dict[Expression, Value], bits: int) -> Value:
        gated = [
            self._value(tree, bits).as_unsigned() & taken.replicate(bits)
            for tree, taken in choices.items()
        ]
        return reduce(or_, gated, Const(0, bits)).as_signed()

    def _choices(
        self, wanted: list[tuple[Value, Expression]], bits: int
    ) -> dict[Expression, Value]:
        """Return the values that are wanted, each with its condition."""
        conditions: dict[Expression, Value] = {}
        for taken, tree in wanted:
            for each, condition in self._branches(tree, taken):
                wrap = unwrapped(each)
                chosen = wrap[0] if wrap and wrap[1] >= bits else each
                before = conditions.get(chosen)
                conditions[chosen] = condition if before is None else before | condition
        return conditions

    def _branches(self, tree: Expression, taken: Value) -> Iterator[tuple[Expression, Value]]:
        """Return the values that a tree may have, each with its condition."""
        if tree == A_MULTIPLIER:
            yield Literal(1), taken & self._from_acc
            yield tree, taken & ~self._from_acc
            return
        if not isinstance(tree, Call) or tree.op not in (Op.MAXIMUM, Op.MINIMUM, Op.SELECT):
            yield tree, taken
            return
        left, right = tree.arguments[-2:]
        if tree.op is Op.SELECT:
            chooses_left = self._holds(tree.arguments[0])
        elif tree.op is Op.MAXIMUM:
            chooses_left = ~self._holds(Call(Op.LESS, (left, right)))
        else:
            chooses_left = self._holds(Call(Op.LESS, (left, right)))
        yield from self._branches(left, taken & chooses_left)
        yield from self._branches(right, taken & ~chooses_left)

    def _holds(self, condition: Expression) -> Signal:
        """Return a register: whether a condition held for the operands."""
        if condition not in self._comparisons:
            name = f"comparison_{len(self._comparisons)}"
            self._comparisons[condition] = self._flag(self._condition(condition), name)
        return self._comparisons[condition]

    def _condition(self, condition: Expression) -> Value:
        """Return whether a condition holds for the operands that arrive.

        A number is compared with a byte by its low byte, or by its sign if it is no byte itself.
        """
        if not isinstance(condition, Call) or condition.op is not Op.LESS:
            return Value.cast(evaluate(condition, self._given, _SIGNALS)).any()
        left, right = condition.arguments
        x, y = (Value.cast(evaluate(each, self._given, _SIGNALS)) for each in (left, right))
        if is_byte(left) == is_byte(right):
            return less(x, y)
        tree, number = (left, x) if is_byte(right) else (right, y)
        is_a = tree == NAMES["a"]
        wide = ((self._a_acc if is_a else number) | Const(0, signed(PASSED_BITS)))[:PASSED_BITS]
        low, top = number[:SECOND_BITS].as_signed(), wide[SECOND_BITS - 1 :]
        near = ~(top[1:] ^ top[0].replicate(len(top) - 1)).any()
        if is_a:
            near |= ~self._constants.a_from_acc
        if is_byte(right):
            return Mux(near, less(low, y), top[-1])
        return Mux(near, less(x, low), ~top[-1])

    def _flag(self, value: Value, name: str) -> Signal:
        flag = Signal(name=name, reset_less=True)
        self._m.d.sync += flag.eq(value)
        return flag

    def _register(self, value: Value, name: str, bits: int) -> Signal:
        register = Signal(signed(bits), name=f"registered_{name}", reset_less=True)
        self._m.d.sync += register.eq(value)
        return register

    def _value(self, tree: Expression, bits: int) -> Value:
        """Return a tree's value in `bits` bits, signed."""
        values = self._values
        if tree == A_MULTIPLIER:  # chosen only where it does not count as 1
            values = {"a_multiplier": self._constants.a_multiplier}
        value = Value.cast(evaluate(tree, values, _SIGNALS))
        return (value | Const(0, signed(bits)))[:bits].as_signed()

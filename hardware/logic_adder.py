"""Adders with a gate in front of each input bit: on many chips they cost no more than an adder.

An FPGA's carry chain runs through its look-up tables. Synthesis tools use two of the four inputs of
a table there and build the gates from other tables. On the ECP5 this module fills in the cells.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells import ecp5
from .technology import Technology


class Gate(Enum):
    """A bitwise function of two inputs; see `GATES`."""

    AND = "and"
    OR = "or"
    XOR = "xor"
    NAND = "nand"
    ANDNOT = "andnot"


GATES: dict[Gate, Callable[[Any, Any], Any]] = {
    Gate.AND: lambda a, b: a & b,
    Gate.OR: lambda a, b: a | b,
    Gate.XOR: lambda a, b: a ^ b,
    Gate.NAND: lambda a, b: ~(a & b),
    Gate.ANDNOT: lambda a, b: a & ~b,
}
"""The functions, on whole numbers and on hardware values."""


INPUTS = ("a", "b", "c", "d", "carry")


class LogicAdder(wiring.Component):
    """Compute `gate(a, b) + other(c, d) + carry` without its overflow; combinational.

    Parameters
    ----------
    bits : int
        Width of the operands and of the sum. The caller extends signed numbers.
    gate : Gate
        Function of `a` and `b`.
    other : Gate
        Function of `c` and `d`; 0 where both are 0.

    Members
    -------
    a, b, c, d : In(bits)
    carry : In(1)
    sum : Out(bits)
    """

    def __init__(self, bits: int, gate: Gate = Gate.AND, other: Gate = Gate.AND):
        self.bits, self.gate, self.other = bits, gate, other
        super().__init__(
            {**dict.fromkeys("abcd", In(bits)), "carry": In(1), "sum": Out(bits)},
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        gate, other = GATES[self.gate], GATES[self.other]
        if platform is Technology.ECP5:
            table = sum(
                ((gate(index, index >> 1) ^ other(index >> 2, index >> 3)) & 1) << index
                for index in range(16)
            )
            m.submodules.chain = chain = ecp5.CarryChain(self.bits, table)
            m.d.comb += [getattr(chain, name).eq(getattr(self, name)) for name in INPUTS]
            m.d.comb += self.sum.eq(chain.sum)
        else:
            one = gate(self.a, self.b)[: self.bits]
            m.d.comb += self.sum.eq(one + other(self.c, self.d)[: self.bits] + self.carry)
        return m


def less(left: Value, right: Value) -> Value:
    """Return whether `left` is less than `right`, as the sign of their difference.

    For half of all comparisons Yosys adds a test of equality to the carry chain, which costs as
    much again; here it cannot.
    """
    return Value.cast(left - right)[-1]

"""Adders with a gate in front of each input bit: on many chips they cost no more than an adder.

An FPGA's carry chain runs through its look-up tables. Synthesis tools use two of the four inputs of
a table there and build the gates from other tables. On the ECP5 this module fills in the cells.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from amaranth.hdl import Const, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .technology import Technology


class Gate(Enum):
    """A bitwise function of two inputs; see `GATES`."""

    AND = "and"
    OR = "or"
    XOR = "xor"
    NAND = "nand"


GATES: dict[Gate, Callable[[Any, Any], Any]] = {
    Gate.AND: lambda a, b: a & b,
    Gate.OR: lambda a, b: a | b,
    Gate.XOR: lambda a, b: a ^ b,
    Gate.NAND: lambda a, b: ~(a & b),
}
"""The functions, on whole numbers and on hardware values."""


class LogicAdder(wiring.Component):
    """Compute `gate(a, b) + (c & d) + carry` without its overflow; combinational.

    Parameters
    ----------
    bits : int
        Width of the operands and of the sum. The caller extends signed numbers.
    gate : Gate
        Function of `a` and `b`.

    Members
    -------
    a, b, c, d : In(bits)
    carry : In(1)
    sum : Out(bits)
    """

    def __init__(self, bits: int, gate: Gate = Gate.AND):
        self.bits, self.gate = bits, gate
        super().__init__(
            {**dict.fromkeys("abcd", In(bits)), "carry": In(1), "sum": Out(bits)},
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform is Technology.ECP5:
            self._fill_carry_cells(m)
        else:
            gated = GATES[self.gate](self.a, self.b)[: self.bits]
            m.d.comb += self.sum.eq(gated + (self.c & self.d) + self.carry)
        return m

    def _fill_carry_cells(self, m: Module) -> None:
        """Place a CCU2C for every two bits.

        A cell passes its carry on where its table, the sum of the bits without carry, is 1.
        Elsewhere the carry is the table's value for c = d = 0, which is `gate(a, b)`.
        """
        table = 0
        for index in range(16):
            a, b, c, d = (index >> bit & 1 for bit in range(4))
            table |= (GATES[self.gate](a, b) & 1 ^ (c & d)) << index
        carry: Value = self.carry
        for low in range(0, self.bits, 2):
            following = Signal(name=f"carry_{low + 2}")
            pins = {}
            for half in range(2):
                for name in "abcd":
                    bits: Value = getattr(self, name)
                    bit = low + half
                    pins[f"i_{name.upper()}{half}"] = bits[bit] if bit < self.bits else Const(0)
                pins[f"o_S{half}"] = self.sum[low + half] if low + half < self.bits else Signal()
            m.submodules[f"bits_{low}"] = Instance(
                "CCU2C",
                p_INIT0=Const(table, 16),
                p_INIT1=Const(table, 16),
                p_INJECT1_0="NO",
                p_INJECT1_1="NO",
                i_CIN=carry,
                o_COUT=following,
                **pins,
            )
            carry = following

"""Reciprocals and inverse roots of whole numbers as binary32 scales, from a table."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..isa.row_statistics import (
    CELL_BITS,
    INTERPOLATION_BITS,
    SIGNIFICANT_BITS,
    SPREAD_BITS,
    entries,
)
from .delay import delayed
from .logic_adder import LogicAdder
from .multiplier import Multiplier

FRACTION_BITS = CELL_BITS + INTERPOLATION_BITS
"""Bits below the leading one that count."""

SHIFTS = ((32, 16), (8, 4), (2, 1))
"""Distances by which a cycle each may shift a number to the left, until its top bit is set."""


class Reciprocal(wiring.Component):
    """Compute `factor / number` or `factor / sqrt(number)`, a number a cycle; never stalls.

    Latency `LATENCY` cycles.

    Parameters
    ----------
    in_fabric : bool
        Interpolate with logic instead of a multiplier block.

    Members
    -------
    number : In(40)
    negative, large : In(1)
        In place of the number take 1, or the greatest one. It is 1 instead of 0, too.
    is_root : In(1)
        Stable, like `factor`, while numbers are in flight.
    factor : In(31)
        Bits of a binary32 number.
    scale : Out(32)
    """

    LATENCY = len(SHIFTS) + 3 + 2 * Multiplier.LATENCY

    def __init__(self, *, in_fabric: bool = False):
        self.in_fabric = in_fabric
        super().__init__(
            {
                "number": In(SPREAD_BITS),
                "negative": In(1),
                "large": In(1),
                "is_root": In(1),
                "factor": In(31),
                "scale": Out(32),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        leading, fraction = self._normalise(m)
        cell, rest = fraction[INTERPOLATION_BITS:], fraction[:INTERPOLATION_BITS]
        m.submodules.table = table = _table()
        read = table.read_port()
        # Behind the reciprocals are the inverse roots of even, then those of odd exponents.
        octave = Mux(self.is_root, Cat(~leading[0], leading[0]), 0)
        m.d.comb += [read.en.eq(1), read.addr.eq(Cat(cell, octave[:2]))]
        found = Signal.like(read.data, reset_less=True)
        m.d.sync += found.eq(read.data)
        exponent = Mux(self.is_root, leading >> 1, leading)

        # Interpolate between an entry and the next one.
        entry, fall = found[: SIGNIFICANT_BITS - 1], found[SIGNIFICANT_BITS - 1 :]
        interpolated = Multiplier(len(fall), INTERPOLATION_BITS, in_fabric=self.in_fabric)
        m.submodules.interpolated = interpolated
        waits = Multiplier.LATENCY
        m.d.comb += [
            interpolated.left.eq(fall),
            interpolated.right.eq(delayed(m, rest, 2, "rest")),
        ]
        less = interpolated.product[INTERPOLATION_BITS:]
        above = Cat(delayed(m, entry, waits, "entry"), Const(1, 1))
        significand = Signal(SIGNIFICANT_BITS, reset_less=True)
        m.d.sync += significand.eq(above - less)

        # Multiply by F, and pack as binary32.
        m.submodules.scaled = scaled = Multiplier(SIGNIFICANT_BITS, SIGNIFICANT_BITS)
        upper = self.factor[24 - SIGNIFICANT_BITS : 23]
        m.d.comb += [scaled.left.eq(significand), scaled.right.eq(Cat(upper, Const(1, 1)))]
        product, twice = scaled.product[SIGNIFICANT_BITS - 1 :], scaled.product[-1]
        kept = Mux(twice, product[1:], product)[: SIGNIFICANT_BITS - 1]
        m.submodules.exponent = sum_of_exponents = LogicAdder(8)
        lower = delayed(m, exponent, 2 * waits + 3, "lower")
        m.d.comb += [
            sum_of_exponents.a.eq(self.factor[23:]),
            sum_of_exponents.b.eq(-1),
            sum_of_exponents.c.eq(Cat(~lower, Const(3, 2))),
            sum_of_exponents.d.eq(-1),
            sum_of_exponents.carry.eq(twice),
            self.scale.eq(Cat(Const(0, 24 - SIGNIFICANT_BITS), kept, sum_of_exponents.sum)),
        ]
        return m

    def _normalise(self, m: Module) -> tuple[Value, Value]:
        """Return the place of the leading one, and the bits below it, after `SHIFTS` cycles."""
        number: Value = self.number
        zeros: Value = Const(0, 0)
        for cycle, distances in enumerate(SHIFTS):
            for distance in distances:
                shifts = ~number[-distance:].any()
                number = Mux(shifts, number << distance, number)[:SPREAD_BITS]
                zeros = Cat(shifts, zeros)
            register = Signal(SPREAD_BITS, name=f"number_{cycle}", reset_less=True)
            counted = Signal(len(zeros), name=f"zeros_{cycle}", reset_less=True)
            m.d.sync += [register.eq(number), counted.eq(zeros)]
            number, zeros = register, counted
        flags = delayed(m, Cat(self.negative, self.large), len(SHIFTS), "limits")
        large = flags[1]
        small = flags[0] | ~(number[-1] | large)
        fraction = number[SPREAD_BITS - 1 - FRACTION_BITS : SPREAD_BITS - 1]
        greatest = SPREAD_BITS - 1
        leading = Mux(small, 0, Mux(large, greatest, (greatest - zeros)[:6]))
        bits = fraction & (~small).replicate(FRACTION_BITS) | large.replicate(FRACTION_BITS)
        return Value.cast(leading), bits


def _table() -> Memory:
    """Entries of reciprocals, then of inverse roots, each with the fall to the next one."""
    words = []
    for octaves in (1, 2):
        found = [int(entry) for entry in entries(octaves)]
        for entry, after in pairwise(found):
            words.append(entry | (entry - after) << (SIGNIFICANT_BITS - 1))
    return Memory(shape=max(words).bit_length(), depth=len(words), init=words)

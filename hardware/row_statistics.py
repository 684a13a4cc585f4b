"""Statistics over rows: sums and maxima across lanes and slices, and what follows from them."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..isa.instructions import Statistic
from ..isa.pipeline import VECTOR_ROW_CYCLES
from ..isa.row_statistics import (
    CELL_BITS,
    INTERPOLATION_BITS,
    SIGNIFICANT_BITS,
    SPREAD_BITS,
    SUM_BITS,
    entries,
)
from .delay import delayed
from .multiplier import Multiplier

COUNT_BITS = 13
"""Elements of a row whose spread is taken: at most 4096."""

VALUE_BITS = 20
"""Signed sum of the int8 values of such a row."""

_FRACTION_BITS = CELL_BITS + INTERPOLATION_BITS
_FIRST_ROOT = 1 << CELL_BITS
"""Address of the first entry of inverse roots, behind those of reciprocals."""


class RowStatistics(wiring.Component):
    """Turn the slices of rows into biases and scales, a slice a cycle; never stalls.

    The parameters of a row appear `LATENCY` cycles after its last slice.

    Parameters
    ----------
    lanes : int

    Members
    -------
    statistic : In(3)
        Stable, like `centre`, `epsilon` and `factor`, while slices are in flight.
    centre, epsilon, factor : In
        The centre of `Statistic.POWER`, E, and the bits of F.
    valid, first, last : In(1)
        A slice is present; it is the first, or the last one, of its row.
    mask : In(lanes)
        Lanes that count.
    values, entries : In(int8)[lanes], In(uint16)[lanes]
    bias, scale : Out(int32), Out(32)
    """

    LATENCY = VECTOR_ROW_CYCLES

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "statistic": In(3),
                "centre": In(signed(8)),
                "epsilon": In(signed(32)),
                "factor": In(31),
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "mask": In(lanes),
                "values": In(signed(8)).array(lanes),
                "entries": In(16).array(lanes),
                "bias": Out(signed(32)),
                "scale": Out(32),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        age = 0  # cycles since the slice, or since the last one of its row

        def register(value: Value, name: str) -> Signal:
            kept = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += kept.eq(value)
            return kept

        # Across lanes: a tree of sums, and one of maxima.
        power = self.statistic == Statistic.POWER
        values, found, maxima, counts = [], [], [], []
        for lane in range(self.lanes):
            counted, value = self.mask[lane], self.values[lane]
            summed = Mux(power, self.centre, value)
            values.append(register(Mux(counted, summed, 0).as_signed(), f"value_{lane}"))
            found.append(register(Mux(counted, self.entries[lane], 0), f"entry_{lane}"))
            maxima.append(register(Mux(counted, value, -128).as_signed(), f"maximum_{lane}"))
            counts.append(register(counted, f"counted_{lane}"))
        age += 1
        while len(values) > 1:
            pairs = range(0, len(values), 2)
            values = [register(values[n] + values[n + 1], f"values_{age}_{n}") for n in pairs]
            found = [register(found[n] + found[n + 1], f"entries_{age}_{n}") for n in pairs]
            counts = [register(counts[n] + counts[n + 1], f"counts_{age}_{n}") for n in pairs]
            maxima = [
                register(_larger(maxima[n], maxima[n + 1]), f"maxima_{age}_{n}") for n in pairs
            ]
            age += 1

        # Along the slices of a row.
        flags = delayed(m, Cat(self.valid, self.first), age, "slice_flags")
        sums = Signal(signed(VALUE_BITS), reset_less=True)
        total = Signal(SUM_BITS, reset_less=True)
        count = Signal(COUNT_BITS, reset_less=True)
        maximum = Signal(signed(8), reset_less=True)
        with m.If(flags[0]):
            m.d.sync += [
                sums.eq(Mux(flags[1], 0, sums) + values[0]),
                total.eq(Mux(flags[1], 0, total) + found[0]),
                count.eq(Mux(flags[1], 0, count) + counts[0]),
                maximum.eq(Mux(flags[1], maxima[0], _larger(maximum, maxima[0]))),
            ]
        age += 1
        middle = Mux(self.statistic == Statistic.MAXIMUM, maximum, sums)
        bias = register(-middle, "bias_of_row")
        m.d.comb += self.bias.eq(delayed(m, bias, self.LATENCY - age - 1, "biases").as_signed())

        # The number whose reciprocal, or whose inverse root, is the scale.
        m.submodules.product = product = Multiplier(28, COUNT_BITS)
        m.submodules.square = square = Multiplier(signed(VALUE_BITS), signed(VALUE_BITS))
        m.d.comb += [
            product.left.eq(total),
            product.right.eq(count),
            square.left.eq(Mux(power, 0, sums)),
            square.right.eq(sums),
        ]
        is_sum = self.statistic == Statistic.SUM
        totals = delayed(m, total, Multiplier.LATENCY + 1, "totals")
        spread = register(product.product - square.product + self.epsilon, "spread")
        age += Multiplier.LATENCY + 1
        too_small, too_large = spread <= 0, spread >= (1 << SPREAD_BITS)
        limited = Mux(too_small, 1, Mux(too_large, (1 << SPREAD_BITS) - 1, spread))
        of_sum = Mux(totals == 0, 1, totals)
        number = register(Mux(is_sum, of_sum, limited)[:SPREAD_BITS], "number")
        age += 1

        # Its leading one: shift it to the top by powers of two, a few in a cycle.
        zeros: list[Value] = []
        for distance in (32, 16, 8, 4, 2, 1):
            top = number[-distance:] if distance < SPREAD_BITS else number
            shifts = ~top.any()
            moved = Mux(shifts, (number << distance)[:SPREAD_BITS], number)
            if distance in (8, 2, 1):
                number = register(moved, f"number_{distance}")
                zeros = [register(each, f"zeros_{distance}_{n}") for n, each in
                         enumerate([*zeros, shifts])]  # fmt: skip
                age += 1
            else:
                number, zeros = moved, [*zeros, shifts]
        leading = Signal(6)
        m.d.comb += leading.eq(SPREAD_BITS - 1 - Cat(*reversed(zeros)))
        fraction = number[SPREAD_BITS - 1 - _FRACTION_BITS : SPREAD_BITS - 1]
        cell = fraction[INTERPOLATION_BITS:]
        root_cell = Cat(cell, leading[0]) + _FIRST_ROOT
        octave = register(Mux(is_sum, leading, leading >> 1), "octave")
        rest = register(fraction[:INTERPOLATION_BITS], "rest")
        m.submodules.table = table = _table()
        read = table.read_port()
        m.d.comb += [read.en.eq(1), read.addr.eq(Mux(is_sum, cell, root_cell))]
        age += 1

        # Interpolate, multiply by F, and pack as binary32.
        entry, fall = read.data[: SIGNIFICANT_BITS - 1], read.data[SIGNIFICANT_BITS - 1 :]
        m.submodules.fall = interpolated = Multiplier(len(fall), INTERPOLATION_BITS)
        m.d.comb += [interpolated.left.eq(fall), interpolated.right.eq(rest)]
        waits = Multiplier.LATENCY
        entry = delayed(m, entry, waits, "entry")
        less = interpolated.product >> INTERPOLATION_BITS
        significand = register(
            ((1 << (SIGNIFICANT_BITS - 1)) + entry - less)[:SIGNIFICANT_BITS], "significand"
        )
        age += waits + 1
        m.submodules.scaled = scaled = Multiplier(SIGNIFICANT_BITS, SIGNIFICANT_BITS)
        upper = self.factor[23 - (SIGNIFICANT_BITS - 1) : 23]
        m.d.comb += [scaled.left.eq(significand), scaled.right.eq(Cat(upper, Const(1, 1)))]
        age += waits
        octave = delayed(m, octave, 2 * waits + 1, "octaves")
        twice = scaled.product[-1]
        kept = Mux(
            twice, scaled.product[SIGNIFICANT_BITS:], scaled.product[SIGNIFICANT_BITS - 1 : -1]
        )
        exponent = (self.factor[23:] - octave - 1 + twice)[:8]
        zero = Const(0, 24 - SIGNIFICANT_BITS)
        scale = Cat(zero, kept[: SIGNIFICANT_BITS - 1], exponent)
        m.d.comb += self.scale.eq(delayed(m, scale, self.LATENCY - age, "scale"))
        return m


def _larger(one: Value, other: Value) -> Value:
    return Value.cast(Mux(one > other, one, other)).as_signed()


def _table() -> Memory:
    """Entries of reciprocals, then of inverse roots, each with the fall to the next one."""
    words = []
    for octaves in (1, 2):
        found = [int(entry) for entry in entries(octaves)]
        for entry, after in pairwise(found):
            words.append(entry | (entry - after) << (SIGNIFICANT_BITS - 1))
    return Memory(shape=max(words).bit_length(), depth=len(words), init=words)

"""Requantisation of one lane: int32 totals to int8, exactly as in binary32 arithmetic.

The block uses only integers. It normalises the magnitude, so that the bits which binary32 keeps of
the product have fixed places. `isa.numbers.requantise_integer` is the same computation in NumPy
without that shift; `isa.numbers.round_twice` explains how both roundings become one.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.numbers import EXACT_BITS, EXPONENT_BIAS, SATURATED
from ..isa.pipeline import REQUANTISE_CYCLES
from ..isa.row_statistics import FRACTION_BITS, WIDE_LIMIT
from .delay import delayed
from .logic_adder import Gate, LogicAdder, less
from .selection import choose
from .wide_multiplier import WideMultiplier

BINARY32 = data.StructLayout({"fraction": EXACT_BITS - 1, "exponent": 8, "sign": 1})
"""Interchange format of IEEE 754-2019, section 3.4."""

WHOLE_BITS = SATURATED.bit_length() - 1
SHIFTED_BITS = WHOLE_BITS + 2
"""Width of a value with its zero point."""

WINDOW_BITS = WHOLE_BITS + 2
"""Bits of a product among which its binary point lies if the value is neither 0 nor saturated."""

SHIFT_BITS = 4
"""Shifts of the window; from `WINDOW_BITS` on the value is less than a half."""

POINT = EXPONENT_BIAS + EXACT_BITS - 2 - (2 * EXACT_BITS - WINDOW_BITS)
"""Place of the half in the window for a scale's exponent of 0 and a normal magnitude."""

PLACE_OFFSET = (1 << 8) - 1 - POINT
"""The inverse exponent plus the zeros of the magnitude exceed the place by this number. It is a
multiple of `1 << SHIFT_BITS`, so the lowest bits of the sum are the place."""

WIDE_BITS = WIDE_LIMIT.bit_length() + 2
"""Width of a wide result: a sign above its magnitude, and a one below."""

BLOCK_BITS = 17
"""The significands are multiplied by blocks of this width, and one more bit."""


class Requantizer(wiring.Component):
    """Requantise, add the zero point, saturate to int8 and clamp; one total per cycle.

    Latency `LATENCY` cycles; never stalls. With `scaled` low the total is not scaled, which equals
    a scale of 1.

    Parameters
    ----------
    gives_wide : bool
        Whether there is a `wide`.

    Members
    -------
    total : In(int32)
    scale : In(32)
        Bits of a binary32 number, in the cycle of its total; any pattern has the meaning that
        `isa.numbers.requantise` gives it.
    scaled : In(1)
    zero_point, low, high : In(int8)
        Stable, like `scaled`, while totals are in flight; `high` takes precedence over `low`.
    result : Out(int8)
        Result for the total `LATENCY` cycles ago.
    wide : Out(int18)
        `isa.row_statistics.wide` of it, `WIDE_LEAD` cycles before the result.
    """

    LATENCY = REQUANTISE_CYCLES
    WIDE_LEAD = 2

    def __init__(self, gives_wide: bool = False):
        self.gives_wide = gives_wide
        super().__init__(
            {
                "total": In(signed(32)),
                "scale": In(32),
                "scaled": In(1),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "result": Out(signed(8)),
                **({"wide": Out(signed(WIDE_BITS))} if gives_wide else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.absolute = absolute = LogicAdder(EXACT_BITS + 1, Gate.XOR)
        m.submodules.multiplier = multiplier = WideMultiplier(EXACT_BITS, BLOCK_BITS)
        m.submodules.point = point = LogicAdder(9, Gate.XOR)
        m.submodules.offset = offset = LogicAdder(SHIFTED_BITS, Gate.XOR)

        one = Const(EXPONENT_BIAS << (EXACT_BITS - 1), 32)
        sign, upper = self.total[31], self.total[EXACT_BITS:31]
        scale = Signal(BINARY32, reset_less=True)
        magnitude = Signal(EXACT_BITS + 1, reset_less=True)
        is_large = Signal(reset_less=True)
        negative = Signal(reset_less=True)
        m.d.comb += [
            absolute.a.eq(self.total[:EXACT_BITS]),
            absolute.b.eq(sign.replicate(EXACT_BITS)),
            absolute.carry.eq(sign),
        ]
        m.d.sync += [
            scale.eq(Mux(self.scaled, self.scale, one)),
            magnitude.eq(absolute.sum),
            is_large.eq((upper ^ sign.replicate(len(upper))).any()),
            negative.eq(sign ^ (self.scaled & self.scale[31])),
        ]

        # Normalise the magnitude: shift it left until its top bit is set, by bytes, then by bits.
        # ANDs instead of choices keep synthesis from using the slow resets of registers.
        exact = magnitude[:EXACT_BITS]
        parts = [exact[low : low + 8] for low in (16, 8, 0)]
        high, middle = parts[0].any(), parts[1].any()
        starts = Cat(high, ~high & middle, ~high & ~middle)
        by_bytes = Signal(EXACT_BITS, reset_less=True)
        zeros = Signal(5, reset_less=True)
        shifted_parts = [exact << 8 * n & starts[n].replicate(EXACT_BITS) for n in range(3)]
        first_zeros = [leading_zeros(parts[n]) & starts[n].replicate(3) for n in range(3)]
        by_pairs = choose([by_bytes << n for n in (0, 2, 4, 6)], zeros[1:3])
        normal = Signal(EXACT_BITS, reset_less=True)
        m.d.sync += [
            by_bytes.eq(reduce(or_, shifted_parts)),
            zeros.eq(Cat(reduce(or_, first_zeros), starts[1:])),
            normal.eq(Mux(zeros[0], by_pairs << 1, by_pairs)),
        ]
        significand = Cat(delayed(m, scale.fraction, 2, "significand"), Const(1, 1))
        m.d.comb += [multiplier.left.eq(normal), multiplier.right.eq(significand)]

        # In parallel with the product: the place of its binary point, and early saturation.
        place = Signal(9, reset_less=True)
        shift = Signal(SHIFT_BITS + self.gives_wide, reset_less=True)
        saturates = Signal(reset_less=True)
        reaches = Signal(WINDOW_BITS - 1, reset_less=True)
        inexact = delayed(m, is_large | magnitude[EXACT_BITS], 2, "inexact")
        low_place, high_place = place[:SHIFT_BITS], place[SHIFT_BITS:]
        first, outside = divmod(PLACE_OFFSET, 1 << SHIFT_BITS)
        assert not outside
        is_above = high_place.matches(*range(first))
        is_inside = high_place.matches(first)
        window_shift = low_place | (~is_inside).replicate(SHIFT_BITS)
        if self.gives_wide:
            # The window has more fraction bits, which longer shifts reach.
            is_far = ~is_inside & ~is_above & ~high_place.matches(first + 1)
            window_shift = Cat(low_place, ~is_inside) | is_far.replicate(SHIFT_BITS + 1)
        m.d.comb += [
            point.a.eq(delayed(m, scale.exponent, 1, "exponent")),
            point.b.eq((1 << 8) - 1),
            point.c.eq(zeros),
            point.d.eq(-1),
        ]
        m.d.sync += [
            place.eq(point.sum),
            shift.eq(window_shift),
            saturates.eq(inexact | (is_above & normal[-1])),
            reaches.eq(Cat(shift > bit for bit in range(len(reaches)))),
        ]
        shift = delayed(m, shift, multiplier.LATENCY - 1, "shift_line")
        reaches = delayed(m, reaches, multiplier.LATENCY - 2, "reaches_line")
        saturates = delayed(m, saturates, multiplier.LATENCY - 1, "saturates_line")
        negative = delayed(m, negative, multiplier.LATENCY + 3, "negative_line")

        # Round to the binary32 grid and to an integer at once, as `isa.numbers.round_twice` does.
        # Of a normal product, binary32 keeps the top 24 bits: `middle` and `top` down to the bit
        # above `half_step`. `reaches` tells which bits of `top` lie below the half.
        product = multiplier.product
        top, middle = product[-WINDOW_BITS:-1], product[EXACT_BITS:-WINDOW_BITS]
        long = product[-1]
        half_step = Mux(long, product[EXACT_BITS - 1], product[EXACT_BITS - 2])
        rest = product[: EXACT_BITS - 2].any() | (long & product[EXACT_BITS - 2])
        last = product[EXACT_BITS - 1]
        some = (top & reaches).any() | middle.any() | (~long & last)
        every = (top | ~reaches).all() & middle.all() & (long | last)
        below = FRACTION_BITS - 1 if self.gives_wide else 0  # bits below the half
        seen = Signal(WHOLE_BITS + 1 + below, name="window", reset_less=True)
        window = seen[below:]
        exceeds_half, nears_half = Signal(reset_less=True), Signal(reset_less=True)
        overflows = Signal(reset_less=True)
        half, whole, rises = window[0], window[1:], Signal()
        m.d.comb += rises.eq((half & (whole[0] | exceeds_half)) | (whole[0] & nears_half))
        m.d.sync += [
            seen.eq(product[-WINDOW_BITS - below :] >> shift),
            overflows.eq(saturates | (long & ~shift.any())),
            exceeds_half.eq(some | (half_step & rest)),
            nears_half.eq(every & half_step),
        ]

        if self.gives_wide:
            limited = seen | overflows.replicate(len(seen))
            odd = Cat(Const(1, 1), limited ^ negative.replicate(len(seen)), negative)
            m.d.comb += self.wide.eq(odd)

        # Zero point and clamp; the bounds lie inside int8, so the clamp also saturates. A negative
        # value is the inverse of its magnitude, and 1 more unless the magnitude is rounded up.
        shifted = Signal(signed(SHIFTED_BITS), reset_less=True)
        too_low, too_high = Signal(reset_less=True), Signal(reset_less=True)
        low = Signal(signed(8), reset_less=True)
        result = Signal(signed(8), reset_less=True)
        m.d.comb += [
            offset.a.eq(whole),
            offset.b.eq(negative.replicate(SHIFTED_BITS)),
            offset.c.eq(self.zero_point),
            offset.d.eq(-1),
            offset.carry.eq(negative ^ rises),
            self.result.eq(result),
        ]
        is_low = too_low | (~too_high & _is_negative(shifted - low))
        is_high = too_high | _is_negative(self.high - shifted)
        m.d.sync += [
            shifted.eq(offset.sum),
            too_low.eq(overflows & negative),
            too_high.eq(overflows & ~negative),
            low.eq(Mux(less(self.high, self.low), self.high, self.low)),
            result.eq(Mux(is_low, low, Mux(is_high, self.high, shifted))),
        ]
        return m


def _is_negative(difference: Value) -> Value:
    """Return whether the difference of a bound and a value with its zero point is negative."""
    return Value.cast(difference[SHIFTED_BITS - 1])


def leading_zeros(byte: Value) -> Value:
    """Return the number of zeros above the highest bit that is set; 7 for 0 too."""
    upper, lower = byte[4:], byte[:4]
    high = upper.any()
    counts = [Cat(~(n[3] | (n[1] & ~n[2])), ~n[2:].any()) for n in (lower, upper)]
    return Value.cast(Cat(Mux(high, counts[1], counts[0]), ~high))

"""Requantisation of one lane: int32 totals to int8, exactly as in binary32 arithmetic.

The block uses only integers. `isa.numbers.requantise_integer` is the same computation in NumPy,
step by step. `isa.numbers.round_twice` explains why one comparison does both roundings.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.numbers import (
    EXACT_BITS,
    EXPONENT_BIAS,
    FRACTION_BITS,
    PRODUCT_ZEROS,
    SATURATED,
    SATURATING_EXPONENT,
    VANISHING_SHIFT,
)
from ..isa.pipeline import REQUANTISE_CYCLES
from .delay import delayed
from .multiplier import Multiplier

BINARY32 = data.StructLayout({"fraction": EXACT_BITS - 1, "exponent": 8, "sign": 1})
"""Interchange format of IEEE 754-2019, section 3.4."""

PRODUCT_BITS = 2 * EXACT_BITS + PRODUCT_ZEROS
WHOLE_BITS = SATURATED.bit_length() - 1
SHIFT_BITS = VANISHING_SHIFT.bit_length()
FINE_BITS = 3
"""Alignment shifts by a multiple of 8 in one cycle and by 0 to 7 in the next."""


class Requantizer(wiring.Component):
    """Requantise, add the zero point, saturate to int8 and clamp; one total per cycle.

    Latency `LATENCY` cycles; never stalls. With `scaled` low the total is not scaled, which equals
    a scale of 1.

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
    """

    LATENCY = REQUANTISE_CYCLES

    total: In(signed(32))
    scale: In(32)
    scaled: In(1)
    zero_point: In(signed(8))
    low: In(signed(8))
    high: In(signed(8))
    result: Out(signed(8))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.multiplier = multiplier = Multiplier(EXACT_BITS, EXACT_BITS)

        # In parallel with the product of significands: its sign, its alignment, early saturation.
        one = Const(EXPONENT_BIAS << (EXACT_BITS - 1), 32)
        scale = Signal(BINARY32)
        magnitude = Signal(32)
        distance = Signal(8)
        shift = Signal(SHIFT_BITS)
        negative = Signal()
        saturates = Signal()
        m.d.comb += [
            scale.eq(Mux(self.scaled, self.scale, one)),
            magnitude.eq(Mux(self.total[31], -self.total, self.total)),
            multiplier.left.eq(magnitude[:EXACT_BITS]),
            multiplier.right.eq(Cat(scale.fraction, Const(1, 1))),
            distance.eq(SATURATING_EXPONENT - 1 - scale.exponent),
            shift.eq(Mux(distance > VANISHING_SHIFT, VANISHING_SHIFT, distance)),
            negative.eq(self.total[31] ^ scale.sign),
            saturates.eq(
                magnitude[EXACT_BITS:].any()
                | ((scale.exponent >= SATURATING_EXPONENT) & magnitude.any())
            ),
        ]
        shift = delayed(m, shift, multiplier.LATENCY, "shift")
        saturates = delayed(m, saturates, multiplier.LATENCY + 1, "saturates")
        negative = delayed(m, negative, multiplier.LATENCY + 3, "negative")

        # Align: drop bits below FRACTION_BITS, remembering whether one of them was set.
        product = Cat(Const(0, PRODUCT_ZEROS), multiplier.product)
        coarse, fine = shift[FINE_BITS:], delayed(m, shift[:FINE_BITS], 1, "fine")
        dropped = product & low_bits(Cat(Const(0, FINE_BITS), coarse))
        coarsely_aligned = Signal(PRODUCT_BITS, reset_less=True)
        coarsely_sticky = Signal(reset_less=True)
        m.d.sync += [
            coarsely_aligned.eq(product >> Cat(Const(0, FINE_BITS), coarse)),
            coarsely_sticky.eq(dropped.any()),
        ]
        aligned = Signal(PRODUCT_BITS)
        m.d.comb += aligned.eq(coarsely_aligned >> fine)
        sticky = coarsely_sticky | (coarsely_aligned & low_bits(fine)).any()
        fraction = Signal(FRACTION_BITS + 1, reset_less=True)
        whole = Signal(WHOLE_BITS, reset_less=True)
        overflows = Signal(reset_less=True)
        m.d.sync += [
            fraction.eq(Cat(sticky, aligned[:FRACTION_BITS])),
            whole.eq(aligned[FRACTION_BITS:]),
            overflows.eq(saturates | aligned[FRACTION_BITS + WHOLE_BITS :].any()),
        ]

        # Round to the binary32 grid and to an integer at once. `below` has a one for every bit of
        # `whole` up to its leading one, so that `below + 1` is half a binary32 step.
        below = Signal(WHOLE_BITS)
        step = Signal(WHOLE_BITS + 1)
        threshold = Signal(FRACTION_BITS + 1)
        rounded = Signal(WHOLE_BITS + 1, reset_less=True)
        odd = whole[0]
        m.d.comb += [
            below.eq(Cat(whole[bit:].any() for bit in range(WHOLE_BITS))),
            step.eq(~Cat(below, Const(0, 1)) & Cat(Const(1, 1), below)),
            threshold.eq(
                Mux(
                    odd,
                    Cat(Const(0, 1), ~below, Const(-1, FRACTION_BITS - 1 - WHOLE_BITS)),
                    Cat(Const(1, 1), step) | (1 << FRACTION_BITS),
                )
            ),
        ]
        m.d.sync += rounded.eq(Mux(overflows, SATURATED, whole + (fraction >= threshold)))

        # Zero point and clamp; the bounds lie inside int8, so the clamp also saturates.
        shifted = Signal(signed(WHOLE_BITS + 3), reset_less=True)
        raised = Signal.like(shifted)
        result = Signal(signed(8), reset_less=True)
        m.d.comb += raised.eq(Mux(shifted > self.low, shifted, self.low))
        m.d.sync += [
            shifted.eq(Mux(negative, -rounded, rounded) + self.zero_point),
            result.eq(Mux(raised < self.high, raised, self.high)),
        ]
        m.d.comb += self.result.eq(result)
        return m


def low_bits(count: Value) -> Value:
    """Return a mask with the lowest `count` bits set; its width is the largest `count`."""
    ones = (1 << len(count)) - 1
    return Const((1 << ones) - 1, ones) >> ~count

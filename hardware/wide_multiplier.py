"""A multiplier for operands that are wider than an FPGA's multiplier block."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import WIDE_MULTIPLIER_CYCLES
from .cells import ice40
from .delay import delayed
from .multiplier import XILINX, Multiplier
from .technology import Technology


class WideMultiplier(wiring.Component):
    """Multiply two unsigned integers exactly, one pair per cycle, with two multiplier blocks.

    Latency `LATENCY` cycles; never stalls. Both operands are cut at bit n: left = a1 2^n + a0 and
    right = b1 2^n + b0. With p = a0 b0, q = a1 b1 and s = (a0 + a1)(b0 + b1) the product is
    p + (s - p - q) 2^n + q 2^2n. The top parts are narrow, so q is built from logic.
    Source: A. Karatsuba and Yu. Ofman, 1962.

    Parameters
    ----------
    bits : int
        Width of both operands.
    low_bits : int
        n, at least half of `bits`. The blocks take n and n + 1 bits; n is less if that is too
        wide for them.

    Members
    -------
    left, right : In(bits)
    product : Out(2 * bits)
        Product of the operands `LATENCY` cycles ago.
    """

    LATENCY = WIDE_MULTIPLIER_CYCLES

    def __init__(self, bits: int, low_bits: int):
        self.low_bits = low_bits
        super().__init__({"left": In(bits), "right": In(bits), "product": Out(2 * bits)})

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform is Technology.SIMULATION:
            product = delayed(m, self.left * self.right, self.LATENCY, "product")
            m.d.comb += self.product.eq(product)
            return m
        if platform in XILINX:
            self._multiply_in_two(m)
            return m
        cut = self.low_bits
        if platform is Technology.ICE40:
            cut = min(cut, ice40.MULTIPLIER_BITS - 1)
        high_bits = len(self.left) - cut
        m.submodules.low = low = Multiplier(cut, cut)
        m.submodules.sums = sums = Multiplier(cut + 1, cut + 1)
        m.submodules.high = high = Multiplier(high_bits, high_bits, in_fabric=True)
        # The sums have a cycle of their own, so their product is a cycle later than the others.
        sum_left = Signal(cut + 1, reset_less=True)
        sum_right = Signal(cut + 1, reset_less=True)
        m.d.sync += [
            sum_left.eq(self.left[:cut] + self.left[cut:]),
            sum_right.eq(self.right[:cut] + self.right[cut:]),
        ]
        m.d.comb += [
            low.left.eq(self.left[:cut]),
            low.right.eq(self.right[:cut]),
            sums.left.eq(sum_left),
            sums.right.eq(sum_right),
            high.left.eq(self.left[cut:]),
            high.right.eq(self.right[cut:]),
        ]

        # The middle term fits one bit more than the operands: it wraps at that width before.
        middle_bits = len(self.left) + 1
        both = Signal(middle_bits, reset_less=True)
        middle = Signal(middle_bits, reset_less=True)
        upper = Signal(len(self.product) - cut, reset_less=True)
        outer = delayed(m, Cat(low.product, high.product), 2, "outer")
        m.d.sync += [
            both.eq(low.product + high.product),
            middle.eq(sums.product[:middle_bits] - both),
            upper.eq(outer[cut:] + middle),
        ]
        passed = delayed(m, outer[:cut], 1, "passed")
        m.d.comb += self.product.eq(Cat(passed, upper))
        return m

    def _multiply_in_two(self, m: Module) -> None:
        """Cut one operand only, for blocks that take the other one whole."""
        cut = self.low_bits
        m.submodules.low = low = Multiplier(len(self.left), cut)
        m.submodules.high = high = Multiplier(len(self.left), len(self.right) - cut)
        total = Signal(len(self.product), reset_less=True)
        behind = self.LATENCY - Multiplier.LATENCY - 1
        m.d.comb += [
            *(part.left.eq(self.left) for part in (low, high)),
            low.right.eq(self.right[:cut]),
            high.right.eq(self.right[cut:]),
            self.product.eq(delayed(m, total, behind, "total_delayed")),
        ]
        m.d.sync += total.eq(low.product + (high.product << cut))

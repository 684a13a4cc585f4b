"""A multiplier for operands that are wider than an FPGA's multiplier block."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import WIDE_MULTIPLIER_CYCLES
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
        n, at least half of `bits`. The blocks take n and n + 1 bits.

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
        cut, high_bits = self.low_bits, len(self.left) - self.low_bits
        m.submodules.low = low = Multiplier(cut, cut)
        m.submodules.sums = sums = Multiplier(cut + 1, cut + 1)
        m.submodules.high = high = Multiplier(high_bits, high_bits, in_fabric=True)
        m.d.comb += [
            low.left.eq(self.left[:cut]),
            low.right.eq(self.right[:cut]),
            sums.left.eq(self.left[:cut] + self.left[cut:]),
            sums.right.eq(self.right[:cut] + self.right[cut:]),
            high.left.eq(self.left[cut:]),
            high.right.eq(self.right[cut:]),
        ]

        # Above bit n, all terms wrap at the product's width: s + (p >> n) + q 2^n less p + q.
        added = Signal(len(self.product) - cut, reset_less=True)
        subtracted = Signal.like(added)
        upper = Signal.like(added)
        m.d.sync += [
            added.eq(sums.product + Cat(low.product[cut:], high.product)),
            subtracted.eq(low.product + high.product),
            upper.eq(added - subtracted),
        ]
        passed = delayed(m, low.product[:cut], 2, "passed")
        m.d.comb += self.product.eq(Cat(passed, upper))
        return m

    def _multiply_in_two(self, m: Module) -> None:
        """Cut one operand only, for blocks that take the other one whole."""
        cut = self.low_bits
        m.submodules.low = low = Multiplier(len(self.left), cut)
        m.submodules.high = high = Multiplier(len(self.left), len(self.right) - cut)
        total = Signal(len(self.product), reset_less=True)
        m.d.comb += [
            *(part.left.eq(self.left) for part in (low, high)),
            low.right.eq(self.right[:cut]),
            high.right.eq(self.right[cut:]),
            self.product.eq(delayed(m, total, 1, "total_delayed")),
        ]
        m.d.sync += total.eq(low.product + (high.product << cut))

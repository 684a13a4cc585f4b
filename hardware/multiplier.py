"""The machine's only wide multiplier, which is pipelined.

A technology with its own multiplier blocks needs to replace only this module. The description here
is portable. Its registers are where FPGA multiplier blocks and their adder trees need them.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import MULTIPLIER_CYCLES


class Multiplier(wiring.Component):
    """Multiply two integers exactly, one pair per cycle.

    Latency `LATENCY` cycles (operands, partial products, sum); never stalls.

    Parameters
    ----------
    left_shape, right_shape : ShapeLike
        Widths and signedness of the operands.

    Members
    -------
    left : In(left_shape)
    right : In(right_shape)
    product : Out(as wide as both operands together, signed if one is)
        Product of the operands `LATENCY` cycles ago.
    """

    LATENCY = MULTIPLIER_CYCLES

    def __init__(self, left_shape: ShapeLike, right_shape: ShapeLike):
        left, right = Shape.cast(left_shape), Shape.cast(right_shape)
        product = Shape(left.width + right.width, left.signed or right.signed)
        super().__init__({"left": In(left), "right": In(right), "product": Out(product)})

    def elaborate(self, platform) -> Module:
        m = Module()
        left = Signal.like(self.left, reset_less=True)
        right = Signal.like(self.right, reset_less=True)
        partial = Signal.like(self.product, reset_less=True)
        total = Signal.like(self.product, reset_less=True)
        m.d.sync += [
            left.eq(self.left),
            right.eq(self.right),
            partial.eq(left * right),
            total.eq(partial),
        ]
        m.d.comb += self.product.eq(total)
        return m

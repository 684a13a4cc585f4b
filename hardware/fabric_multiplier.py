"""A multiplier from logic, for narrow factors: it saves a multiplier block of an FPGA."""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import MULTIPLIER_CYCLES
from .logic_adder import Gate, LogicAdder


class FabricMultiplier(wiring.Component):
    """Multiply two integers exactly, one pair per cycle, like a `Multiplier` of the same shapes.

    Latency `LATENCY` cycles (operands, sums of two rows each, product); never stalls. On the ECP5
    it takes about a cell of the carry chain for every bit of `left` and bit of `right`; `right`
    should be the narrower one.

    Parameters
    ----------
    left_shape, right_shape : ShapeLike
        Widths and signedness of the operands; `right` has at least two bits.

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
        total = Signal.like(self.product, reset_less=True)
        m.d.sync += [left.eq(self.left), right.eq(self.right)]

        m.d.sync += total.eq(self._sum(m, self._rows(m, left, right)))
        m.d.comb += self.product.eq(total)
        return m

    def _rows(self, m: Module, left: Signal, right: Signal) -> list[tuple[int, Signal]]:
        """Return registers with the sums of two rows each, and their places in the product.

        A row is the left operand where a bit of the right one is set, else 0. The top bit of a
        signed operand counts negative.
        """
        rows = []
        for place in range(0, len(right), 2):
            signed = right.shape().signed and place + 2 >= len(right)
            pair = Signal(
                Shape(len(left) + 2, left.shape().signed or signed),
                name=f"rows_{place}",
                reset_less=True,
            )
            rows.append((place, pair))
            if place + 1 == len(right):
                row = Mux(right[place], left, 0)
                m.d.sync += pair.eq(-row if signed else row)
                continue
            adder = LogicAdder(len(pair), Gate.NAND if signed else Gate.AND)
            m.submodules[f"pair_{place}"] = adder
            m.d.comb += [
                adder.a.eq(left << 1),
                adder.b.eq(right[place + 1].replicate(adder.bits)),
                adder.c.eq(left),
                adder.d.eq(right[place].replicate(adder.bits)),
                adder.carry.eq(signed),
            ]
            m.d.sync += pair.eq(adder.sum)
        return rows

    def _sum(self, m: Module, rows: list[tuple[int, Value]]) -> Value:
        """Add neighbours until one sum is left."""
        while len(rows) > 1:
            sums = [
                (place, self._add(m, low, high, place, high_place))
                for (place, low), (high_place, high) in zip(rows[::2], rows[1::2], strict=False)
            ]
            rows = sums + rows[len(rows) & ~1 :]
        return rows[0][1]

    def _add(self, m: Module, low: Value, high: Value, place: int, high_place: int) -> Value:
        """Add two sums; the bits of the lower one below the higher one pass."""
        passed = high_place - place
        upper = low >> passed
        bits = min(max(len(upper), len(high)) + 1, len(self.product) - high_place)
        adder = LogicAdder(bits)
        m.submodules[f"sum_{place}_{high_place}"] = adder
        m.d.comb += [
            adder.a.eq(upper),
            adder.b.eq(-1),
            adder.c.eq(high),
            adder.d.eq(-1),
        ]
        signed = low.shape().signed or high.shape().signed
        total = Value.cast(Cat(low[:passed], adder.sum))
        return total.as_signed() if signed else total

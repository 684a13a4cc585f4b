"""A multiplier from logic, for narrow factors: it saves a multiplier block of an FPGA."""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import MULTIPLIER_CYCLES
from .logic_adder import Gate, LogicAdder

LATER_STAGES = MULTIPLIER_CYCLES - 1
"""Cycles that add the sums of two rows each."""


class FabricMultiplier(wiring.Component):
    """Multiply two integers exactly, one pair per cycle, like a `Multiplier` of the same shapes.

    Latency `LATENCY` cycles (sums of two rows each, half of the additions, the others); never
    stalls. On the ECP5 it takes about half a cell of the carry chain for every bit of `left` and
    bit of `right`; `right` should be the narrower one. The operands should come from registers.

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
        rows = self._rows(m)
        additions = (len(rows) - 1).bit_length()
        for stage in range(LATER_STAGES):
            for _ in range((additions + LATER_STAGES - 1 - stage) // LATER_STAGES):
                rows = self._added(m, rows)
            rows = [self._registered(m, row, f"sum_{stage}") for row in rows]
        m.d.comb += self.product.eq(rows[0].value)
        return m

    def _rows(self, m: Module) -> list["_Row"]:
        """Return registers with the sums of pairs of rows; the last row may have no partner.

        A row is the left operand where a bit of the right one is set, else 0. The top bit of a
        signed operand counts negative.
        """
        left, right = self.left, self.right
        rows = []
        for place in range(0, len(right), 2):
            negative = right.shape().signed and place + 2 >= len(right)
            if place + 1 == len(right):
                row = _Row(place, left, right[place])
                if negative:
                    row = _Row(place, Mux(right[place], -left, 0))
                rows.append(self._registered(m, row, "row"))
                continue
            shape = Shape(len(left) + 2, left.shape().signed or negative)
            pair = Signal(shape, name=f"rows_{place}", reset_less=True)
            adder = LogicAdder(len(pair), Gate.NAND if negative else Gate.AND)
            m.submodules[f"pair_{place}"] = adder
            m.d.comb += [
                adder.a.eq(left << 1),
                adder.b.eq(right[place + 1].replicate(adder.bits)),
                adder.c.eq(left),
                adder.d.eq(right[place].replicate(adder.bits)),
                adder.carry.eq(negative),
            ]
            m.d.sync += pair.eq(adder.sum)
            rows.append(_Row(place, pair))
        return rows

    def _registered(self, m: Module, row: "_Row", name: str) -> "_Row":
        value = Signal(row.value.shape(), name=f"{name}_{row.place}", reset_less=True)
        m.d.sync += value.eq(row.value)
        if row.counts is None:
            return _Row(row.place, value)
        counts = Signal(name=f"{name}_{row.place}_counts", reset_less=True)
        m.d.sync += counts.eq(row.counts)
        return _Row(row.place, value, counts)

    def _added(self, m: Module, rows: list["_Row"]) -> list["_Row"]:
        """Add neighbouring rows; the highest one may have no neighbour."""
        pairs = zip(rows[::2], rows[1::2], strict=False)
        return [self._add(m, low, high) for low, high in pairs] + rows[len(rows) & ~1 :]

    def _add(self, m: Module, low: "_Row", high: "_Row") -> "_Row":
        """Add two rows; the bits of the lower one below the higher one pass."""
        passed = high.place - low.place
        upper = low.value >> passed
        bits = min(max(len(upper), len(high.value)) + 1, len(self.product) - high.place)
        adder = LogicAdder(bits)
        m.submodules[f"sum_{low.place}_{high.place}"] = adder
        m.d.comb += [
            adder.a.eq(upper),
            adder.b.eq(-1),
            adder.c.eq(high.value),
            adder.d.eq(-1 if high.counts is None else high.counts.replicate(bits)),
        ]
        total = Value.cast(Cat(low.value[:passed], adder.sum))
        signed = low.value.shape().signed or high.value.shape().signed
        return _Row(low.place, total.as_signed() if signed else total)


class _Row(NamedTuple):
    """A row of a product, or a sum of rows.

    Parameters
    ----------
    place
        Position of its lowest bit in the product.
    value
    counts
        Whether the row counts; None if it always does.
    """

    place: int
    value: Value
    counts: Value | None = None

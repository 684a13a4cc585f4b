"""The array on chips with a small multiplier for each product, which takes two operands of int8.

Multipliers have registers for operands, for the product and between, but their operands come from
registers outside: a weight stays there until the next `swap`.
"""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from ..isa.pipeline import GEMM_ARRAY_CYCLES, MULTIPLIER_CYCLES
from .array_operands import ELEMENT_BITS, ArrayOperands, TapRows, array_ports
from .delay import delayed
from .multiplier import Multiplier

INPUT_CYCLES = 1
"""Cycles from the ports to the registers in front of operands and weights."""
OUTPUT_CYCLES = GEMM_ARRAY_CYCLES - INPUT_CYCLES - 1 - MULTIPLIER_CYCLES
"""Cycles that remain behind the last sum, one before it being that of the operands."""


class ProductArray(wiring.Component):
    """The array of `MacArray`, with the same ports and the same latency.

    Registers run on when there is no vector. `for_depthwise` has no effect: a tap's weights lie in
    the row that the program names.

    Parameters
    ----------
    lanes_in, lanes_out, taps : int
        As in `MacArray`.

    Members
    -------
    As in `MacArray`.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int):
        self.lanes_in, self.lanes_out, self.taps = lanes_in, lanes_out, taps
        self.levels = (lanes_in - 1).bit_length()
        super().__init__(array_ports(lanes_in, lanes_out, taps))

    def elaborate(self, platform) -> Module:
        m = Module()
        rows = TapRows(self.lanes_in, self.taps, spread=False)
        m.submodules.operands = operands = ArrayOperands(
            self.lanes_in, self.lanes_out, self.taps, rows
        )
        names = ["valid", *(("depthwise", "begins", "part") if self.taps else ())]
        for name in names:
            value = getattr(self, name)
            if len(value):
                arrived = delayed(m, value, INPUT_CYCLES, f"arrived_{name}")
                m.d.comb += getattr(operands, name).eq(arrived)
        swap = delayed(m, self.swap, INPUT_CYCLES, "arrived_swap")
        for index, (target, element) in enumerate(zip(operands.vector, self.vector, strict=True)):
            m.d.comb += target.eq(delayed(m, element, INPUT_CYCLES, f"arrived_{index:02}"))
        writes = Signal(self.lanes_in)
        m.d.sync += writes.eq(Mux(self.write, 1 << self.row, 0))

        for lane in range(self.lanes_out):
            written = delayed(m, self.weights[lane], INPUT_CYCLES, f"written_{lane:02}")
            products = []
            for row in range(self.lanes_in):
                shadow, weight = (
                    Signal(signed(ELEMENT_BITS), name=f"{name}_{lane:02}_{row:02}", reset_less=True)
                    for name in ("shadow", "weight")
                )
                with m.If(writes[row]):
                    m.d.sync += shadow.eq(written)
                with m.If(swap):
                    m.d.sync += weight.eq(shadow)
                cell = Multiplier(signed(ELEMENT_BITS), signed(ELEMENT_BITS))
                m.submodules[f"product_{lane:02}_{row:02}"] = cell
                m.d.comb += [
                    cell.left.eq(weight),
                    cell.right.eq(operands.operands[row][lane]),
                ]
                products.append(cell.product)
            total = _tree(m, products, f"sum_{lane:02}")
            late = delayed(m, total, OUTPUT_CYCLES, f"late_{lane:02}")
            m.d.comb += self.sums[lane].eq(late.as_signed())
        return m


def _tree(m: Module, terms: list[Signal], name: str) -> Signal:
    """Add terms in pairs, one level per cycle."""
    level = 0
    while len(terms) > 1:
        sums = []
        for index in range(0, len(terms), 2):
            value: Value = terms[index] + terms[index + 1]
            register = Signal(
                value.shape(), name=f"{name}_{level}_{index // 2:02}", reset_less=True
            )
            m.d.sync += register.eq(value)
            sums.append(register)
        terms, level = sums, level + 1
    return terms[0]

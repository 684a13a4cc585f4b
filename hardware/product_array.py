"""The array on chips with narrow multipliers: one int8 multiplier for each product.

The current weights lie in the multipliers' operand registers.
"""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from ..isa.pipeline import GEMM_ARRAY_CYCLES, MULTIPLIER_CYCLES
from .array_operands import ELEMENT_BITS, ArrayOperands, array_modes, array_ports
from .blocks import TapRows
from .cells import gowin, ice40
from .delay import delayed
from .technology import Technology

SPARE_CYCLES = GEMM_ARRAY_CYCLES - MULTIPLIER_CYCLES - 1
"""Extra cycles of delay, so that the latency is that of all arrays."""

HELD_PAIRS = {Technology.GOWIN: gowin.HeldPair, Technology.ICE40: ice40.HeldPair}
"""Cells with two multipliers, by technology; each cell serves two output lanes in one row."""


class ProductArray(wiring.Component):
    """The array of `MacArray`, with the same ports and the same latency.

    Registers keep running when there is no vector. `for_depthwise` has no effect: a tap's weights
    lie in the row that the program names.

    Parameters
    ----------
    lanes_in, lanes_out, taps, lines : int
        As in `MacArray`.

    Members
    -------
    As in `MacArray`.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int, lines: int):
        self.lanes_in, self.lanes_out = lanes_in, lanes_out
        self.taps, self.lines = taps, lines
        self.levels = (lanes_in - 1).bit_length()
        self.latency = GEMM_ARRAY_CYCLES + self.levels
        super().__init__(array_ports(lanes_in, lanes_out, taps, lines))

    def elaborate(self, platform) -> Module:
        m = Module()
        rows = TapRows(self.lanes_in, self.taps * self.lines, spread=False)
        m.submodules.operands = operands = ArrayOperands(
            self.lanes_in, self.lanes_out, self.taps, self.lines, rows
        )
        for name in ("valid", *array_modes(self.taps, self.lines)):
            m.d.comb += getattr(operands, name).eq(getattr(self, name))
        m.d.comb += [a.eq(b) for a, b in zip(operands.vector, self.vector, strict=True)]
        swaps, writes = Signal(), Signal(self.lanes_in)
        m.d.sync += [swaps.eq(self.swap), writes.eq(Mux(self.write, 1 << self.row, 0))]

        element = signed(ELEMENT_BITS)
        for lane in range(0, self.lanes_out, 2):
            written = [
                Signal(element, name=f"written_{lane + side:02}", reset_less=True)
                for side in range(2)
            ]
            m.d.sync += [written[side].eq(self.weights[lane + side]) for side in range(2)]
            products: list[list[Signal]] = [[], []]
            for row in range(self.lanes_in):
                cell = HELD_PAIRS[platform]()
                m.submodules[f"products_{lane:02}_{row:02}"] = cell
                m.d.comb += cell.load_left.eq(swaps)
                for side in range(2):
                    name = f"shadow_{lane + side:02}_{row:02}"
                    shadow = Signal(element, name=name, reset_less=True)
                    with m.If(writes[row]):
                        m.d.sync += shadow.eq(written[side])
                    m.d.comb += [
                        cell.left[side].eq(shadow),
                        cell.right[side].eq(operands.operands[row][lane + side]),
                    ]
                    products[side].append(cell.products[side])
            for side in range(2):
                total = _tree(m, products[side], f"sum_{lane + side:02}")
                late = delayed(m, total, SPARE_CYCLES, f"late_{lane + side:02}")
                m.d.comb += self.sums[lane + side].eq(late.as_signed())
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

"""The weight-stationary array: one activation vector times a tile of weights per cycle.

In a depthwise step the first rows of the array do not broadcast: each output lane has its own
operand register there. These registers pass a channel's values from row to row, so they also form
the delay line of the convolution.
"""

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring

from ..isa.pipeline import GEMM_ARRAY_CYCLES
from .array_operands import ELEMENT_BITS, ArrayOperands, array_modes, array_ports
from .blocks import TapRows
from .delay import delayed
from .packed_array import PackedArray
from .product_array import ProductArray
from .technology import Technology

MAPPED = {
    Technology.ECP5: PackedArray,
    Technology.GOWIN: ProductArray,
    Technology.ICE40: ProductArray,
    Technology.XILINX7: PackedArray,
    Technology.ULTRASCALE: PackedArray,
}
"""Arrays of the cells of a technology."""

PLAIN_CYCLES = 2
"""Cycles that the portable description needs besides its adder trees: operands, products."""


class MacArray(wiring.Component):
    """Multiply int8[lanes_in] by int8[lanes_in, lanes_out], weights held in registers.

    One vector per cycle; never stalls. `sums` follow their `vector` by `latency` cycles: those of
    the fastest mapped description, and one for each level of the adder trees. The portable
    description has fewer registers of its own, so it delays its inputs.

    A second set of weights, the shadow, is written row by row meanwhile. `swap` makes it current:
    the new weights multiply the vector of the same cycle. A row written in that cycle belongs to
    the next tile.

    With `depthwise`, row `k * taps + j` of the tile (`j` < `taps`, `k` < `lines`) multiplies the
    vector of `j` valid cycles and `k` lines ago, channel by channel; further rows are ignored. A
    vector with `begins` is the first of a line, one with `opens` the first of the first line: what
    lies before them counts as zero. So do earlier lines of a vector without `joins`.

    Parameters
    ----------
    lanes_in, lanes_out : int
        Number of inputs and outputs.
    taps : int
        Rows used for each line in a depthwise step; 0 for an array without that mode.
    lines : int
        Lines used in a depthwise step.

    Members
    -------
    weights : In(int8)[lanes_out]
        A row of the tile: the weights of input lane `row`.
    row : In(range(lanes_in))
    write : In(1)
        Write `weights` to the shadow.
    for_depthwise : In(1)
        The row belongs to the tile of a depthwise step; only in arrays with taps.
    swap : In(1)
    vector : In(int8)[lanes_in]
    valid : In(1)
        A vector is present; pipeline stages without one hold their values.
    depthwise, begins : In(1)
    part : In(range(parts))
        Output `o` takes channel `part * lanes_out + o % lanes_in` of a depthwise vector. These
        three only in arrays with taps.
    opens, joins : In(1)
        Only in arrays with several lines.
    sums : Out(signed)[lanes_out]
        Products summed over the inputs, exact.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int = 0, lines: int = 1):
        self.lanes_in, self.lanes_out = lanes_in, lanes_out
        self.taps, self.lines = taps, lines
        self.levels = (lanes_in - 1).bit_length()
        self.latency = GEMM_ARRAY_CYCLES + self.levels
        super().__init__(array_ports(lanes_in, lanes_out, taps, lines))

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform in MAPPED:
            m.submodules.mapped = array = MAPPED[platform](
                self.lanes_in, self.lanes_out, self.taps, self.lines
            )
            early = self.latency - array.latency
            for target, source in zip(_inputs(array), _inputs(self), strict=True):
                # The scratchpads may be far away, so their data pass a register on the way.
                name = f"arriving_{target.name}"
                m.d.comb += target.eq(delayed(m, source, early, name) if early else source)
            m.d.comb += [a.eq(b) for a, b in zip(self.sums, array.sums, strict=True)]
        else:
            self._multiply(m)
        return m

    def _multiply(self, m: Module) -> None:
        """One product for each weight, and a tree of sums for each output lane."""
        # A simulator sorts signals by name and vectorises equal work on neighbours. Names therefore
        # begin with the output lane and sort as numbers, and the adder trees add half to half.
        rows = TapRows(self.lanes_in, self.taps * self.lines, spread=False)
        m.submodules.operands = operands = ArrayOperands(
            self.lanes_in, self.lanes_out, self.taps, self.lines, rows
        )
        early = GEMM_ARRAY_CYCLES - PLAIN_CYCLES
        row, write, swap, valid = (
            delayed(m, getattr(self, name), early, f"arriving_{name}")
            for name in ("row", "write", "swap", "valid")
        )
        weights, vector = (
            _split(delayed(m, Cat(getattr(self, name)), early, f"arriving_{name}"))
            for name in ("weights", "vector")
        )
        m.d.comb += [
            operands.valid.eq(valid),
            *(a.eq(b) for a, b in zip(operands.vector, vector, strict=True)),
        ]
        if self.taps:
            m.d.comb += [
                getattr(operands, name).eq(
                    delayed(m, getattr(self, name), early, f"arriving_{name}")
                )
                for name in array_modes(self.taps, self.lines)
                if len(getattr(self, name))
            ]
        valids = Signal(self.levels + 1)
        m.d.sync += valids.eq(Cat(valid, valids))

        for lane in range(self.lanes_out):
            terms = []
            for index in range(self.lanes_in):
                shadow, weight = (
                    Signal(
                        signed(ELEMENT_BITS), name=f"{name}_{lane:02}_{index:02}", reset_less=True
                    )
                    for name in ("shadow", "weight")
                )
                with m.If(write & (row == index)):
                    m.d.sync += shadow.eq(weights[lane])
                with m.If(swap):
                    m.d.sync += weight.eq(shadow)
                terms.append(operands.operands[index][lane] * weight)
            for stage, stage_valid in enumerate(valids):
                registers = [
                    Signal(term.shape(), name=f"sum_{lane:02}_{stage}_{index:02}", reset_less=True)
                    for index, term in enumerate(terms)
                ]
                with m.If(stage_valid):
                    m.d.sync += [
                        register.eq(term) for register, term in zip(registers, terms, strict=True)
                    ]
                half = len(registers) // 2
                terms = [a + b for a, b in zip(registers[:half], registers[half:], strict=False)]
            m.d.comb += self.sums[lane].eq(registers[0])


def _inputs(array: wiring.Component) -> list[Value]:
    """Return the input ports of an array, in the order of their names."""
    return [
        Value.cast(value)
        for _, member, value in array.signature.flatten(array)
        if member.flow is wiring.In
    ]


def _split(values: Value) -> list[Value]:
    """Return the elements of a row."""
    return [
        values[low : low + ELEMENT_BITS].as_signed() for low in range(0, len(values), ELEMENT_BITS)
    ]

"""The weight-stationary array: one activation vector times a tile of weights per cycle.

In a depthwise step the first rows of the array do not broadcast: each output lane has its own
operand register there. These registers pass a channel's values from row to row, so they also form
the delay line of the convolution.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import GEMM_ARRAY_CYCLES
from .selection import choose

ELEMENT_BITS = 8


def sum_bits(lanes: int) -> int:
    """Bits of a sum of `lanes` products of int8, the most negative factors included."""
    return 2 * ELEMENT_BITS + (lanes - 1).bit_length()


class MacArray(wiring.Component):
    """Multiply int8[lanes_in] by int8[lanes_in, lanes_out], weights held in registers.

    One vector per cycle; never stalls. `sums` follow their `vector` by `latency` cycles: the
    registered vector, the products, and one register per level of the adder trees.

    A second set of weights, the shadow, is written row by row meanwhile. `swap` makes it current:
    the new weights multiply the vector of the same cycle. A row written in that cycle belongs to
    the next tile.

    With `depthwise`, row `j` of the tile (`j` < `taps`) multiplies the vector of `j` valid cycles
    ago, channel by channel; further rows are ignored. `begins` marks a vector without
    predecessors: rows 1 and up multiply zeros then.

    Parameters
    ----------
    lanes_in, lanes_out : int
        Number of inputs and outputs.
    taps : int
        Rows used in a depthwise step; 0 for an array without that mode.

    Members
    -------
    weights : In(int8)[lanes_out]
        A row of the tile: the weights of input lane `row`.
    row : In(range(lanes_in))
    write : In(1)
        Write `weights` to the shadow.
    swap : In(1)
    vector : In(int8)[lanes_in]
    valid : In(1)
        A vector is present; pipeline stages without one hold their values.
    depthwise, begins : In(1)
    part : In(range(parts))
        Output `o` takes channel `part * lanes_out + o % lanes_in` of a depthwise vector. These
        three only where there are taps.
    sums : Out(signed)[lanes_out]
        Products summed over the inputs, exact.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int = 0):
        self.lanes_in, self.lanes_out, self.taps = lanes_in, lanes_out, taps
        self.channels = min(lanes_in, lanes_out)
        self.levels = (lanes_in - 1).bit_length()
        self.latency = GEMM_ARRAY_CYCLES + self.levels
        mode = {
            "depthwise": In(1),
            "begins": In(1),
            "part": In(range(lanes_in // self.channels)),
        }
        super().__init__(
            {
                "weights": In(signed(ELEMENT_BITS)).array(lanes_out),
                "row": In(range(lanes_in)),
                "write": In(1),
                "swap": In(1),
                "vector": In(signed(ELEMENT_BITS)).array(lanes_in),
                "valid": In(1),
                "sums": Out(signed(sum_bits(lanes_in))).array(lanes_out),
                **(mode if taps else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # A simulator sorts signals by name and vectorises equal work on neighbours. Names therefore
        # begin with the output lane and sort as numbers, and the adder trees add half to half.
        valids = Signal(self.latency - 1)
        m.d.sync += valids.eq(Cat(self.valid, valids))
        operands = self._operands(m)

        for lane in range(self.lanes_out):
            terms = []
            for row in range(self.lanes_in):
                shadow, weight = (
                    Signal(signed(ELEMENT_BITS), name=f"{name}_{lane:02}_{row:02}", reset_less=True)
                    for name in ("shadow", "weight")
                )
                with m.If(self.write & (self.row == row)):
                    m.d.sync += shadow.eq(self.weights[lane])
                with m.If(self.swap):
                    m.d.sync += weight.eq(shadow)
                terms.append(operands[row][lane] * weight)
            for stage, valid in enumerate(valids):
                registers = [
                    Signal(term.shape(), name=f"sum_{lane:02}_{stage}_{index:02}", reset_less=True)
                    for index, term in enumerate(terms)
                ]
                with m.If(valid):
                    m.d.sync += [
                        register.eq(term) for register, term in zip(registers, terms, strict=True)
                    ]
                half = len(registers) // 2
                terms = [a + b for a, b in zip(registers[:half], registers[half:], strict=False)]
            m.d.comb += self.sums[lane].eq(registers[0])
        return m

    def _operands(self, m: Module) -> list[list[Signal]]:
        """The registered vector, by row and output lane."""
        operands = []
        following: list[Value] = []
        if self.taps:
            channels = (self.vector[channel :: self.channels] for channel in range(self.channels))
            following = [choose(parts, self.part) for parts in channels]
        for row, element in enumerate(self.vector):
            if row < self.taps:
                registers = [
                    Signal.like(element, name=f"channel_{channel:02}_{row:02}", reset_less=True)
                    for channel in range(self.channels)
                ]
                values = [Mux(self.depthwise, channel, element) for channel in following]
                following = [Mux(self.begins, 0, register) for register in registers]
            else:
                registers = [Signal.like(element, name=f"vector_{row:02}", reset_less=True)]
                values = [Mux(self.depthwise, 0, element) if self.taps else element]
            with m.If(self.valid):
                m.d.sync += [
                    register.eq(value) for register, value in zip(registers, values, strict=True)
                ]
            operands.append(registers * (self.lanes_out // len(registers)))
        return operands

"""The operands of the array: the vector that its rows multiply, or channels of earlier vectors."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .blocks import TapRows
from .selection import choose

ELEMENT_BITS = 8


def array_ports(lanes_in: int, lanes_out: int, taps: int) -> dict[str, wiring.Member]:
    """Return the members that all descriptions of the array share; see `MacArray`."""
    levels = (lanes_in - 1).bit_length()
    element = signed(ELEMENT_BITS)
    mode = {
        "depthwise": In(1),
        "begins": In(1),
        "part": In(range(max(1, lanes_in // lanes_out))),
        "for_depthwise": In(1),
    }
    return {
        "weights": In(element).array(lanes_out),
        "row": In(range(lanes_in)),
        "write": In(1),
        "swap": In(1),
        "vector": In(element).array(lanes_in),
        "valid": In(1),
        # The most negative factors have the greatest product.
        "sums": Out(signed(2 * ELEMENT_BITS + levels)).array(lanes_out),
        **(mode if taps else {}),
    }


class ArrayOperands(wiring.Component):
    """Registers with the operands of every row and output lane.

    An operand is an element of the vector of the cycle before. In a depthwise step it is a channel
    of that vector or of an earlier one. Vectors that are not `valid` are ignored.

    Parameters
    ----------
    lanes_in, lanes_out, taps : int
        As in `MacArray`.
    rows : TapRows
        Where the taps lie.

    Members
    -------
    vector : In(int8)[lanes_in]
    valid : In(1)
    depthwise, begins, part : In
        As in `MacArray`; only in arrays with taps.

    Attributes
    ----------
    operands : list[list[Signal]]
        The registers, int8, by row and output lane; lanes share them.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int, rows: TapRows):
        self.lanes_in, self.lanes_out, self.taps, self.rows = lanes_in, lanes_out, taps, rows
        self.channels = min(lanes_in, lanes_out)
        self.parts = lanes_in // self.channels
        element = signed(ELEMENT_BITS)
        self.channel_registers = [
            [
                Signal(element, name=f"channel_{channel:02}_{tap:02}", reset_less=True)
                for channel in range(self.channels)
            ]
            for tap in range(taps)
        ]
        self.vector_registers = {
            row: Signal(element, name=f"vector_{row:02}", reset_less=True)
            for row in range(rows.last, lanes_in)
        }
        mode = {"depthwise": In(1), "begins": In(1), "part": In(range(self.parts))}
        ports = {"vector": In(element).array(lanes_in), "valid": In(1)}
        super().__init__(ports | (mode if taps else {}))
        self.operands = [
            [self._operand(row, lane) for lane in range(lanes_out)] for row in range(lanes_in)
        ]

    def _operand(self, row: int, lane: int) -> Signal:
        if row >= self.rows.last:
            return self.vector_registers[row]
        tap = self.rows.tap(row)
        # In a row between the two of a spread tap's pair, the lane that has no tap there shares
        # the operand of the one that has.
        owner = lane if self.rows.row(tap, lane) == row else lane ^ 1
        return self.channel_registers[tap][owner % self.channels]

    def elaborate(self, platform) -> Module:
        m = Module()
        following: list[Value] = []
        if self.taps:
            channels = (self.vector[channel :: self.channels] for channel in range(self.channels))
            following = [choose(parts, self.part) for parts in channels]
        with m.If(self.valid):
            for tap, registers in enumerate(self.channel_registers):
                for channel, (register, before) in enumerate(
                    zip(registers, following, strict=True)
                ):
                    element = self.vector[self.rows.row(tap, channel)]
                    m.d.sync += register.eq(Mux(self.depthwise, before, element))
                following = [Mux(self.begins, 0, register) for register in registers]
            for row, register in self.vector_registers.items():
                element = self.vector[row]
                m.d.sync += register.eq(Mux(self.depthwise, 0, element) if self.taps else element)
        return m

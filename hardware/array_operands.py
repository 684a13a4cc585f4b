"""The operands of the array: the vector that its rows multiply, or channels of earlier vectors."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import LINE_STEPS
from .blocks import TapRows
from .selection import choose

ELEMENT_BITS = 8


def array_modes(taps: int, lines: int) -> tuple[str, ...]:
    """Return the names of the members that say how an array with taps multiplies a vector."""
    if not taps:
        return ()
    return ("depthwise", "begins", "part", *(("opens", "joins") if lines > 1 else ()))


def array_ports(lanes_in: int, lanes_out: int, taps: int, lines: int) -> dict[str, wiring.Member]:
    """Return the members that all descriptions of the array share; see `MacArray`."""
    levels = (lanes_in - 1).bit_length()
    element = signed(ELEMENT_BITS)
    mode = {
        "depthwise": In(1),
        "begins": In(1),
        "part": In(range(max(1, lanes_in // lanes_out))),
        "for_depthwise": In(1),
        **(dict.fromkeys(("opens", "joins"), In(1)) if lines > 1 else {}),
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
    lanes_in, lanes_out, taps, lines : int
        As in `MacArray`.
    rows : TapRows
        Where the taps lie.

    Members
    -------
    vector : In(int8)[lanes_in]
    valid : In(1)
    depthwise, begins, part, opens, joins : In
        As in `MacArray`, where it has them.

    Attributes
    ----------
    operands : list[list[Signal]]
        The registers, int8, by row and output lane; lanes share them.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int, lines: int, rows: TapRows):
        self.lanes_in, self.lanes_out, self.rows = lanes_in, lanes_out, rows
        self.taps, self.lines = taps, lines
        self.channels = min(lanes_in, lanes_out)
        self.parts = lanes_in // self.channels
        element = signed(ELEMENT_BITS)
        self.channel_registers = [
            [
                Signal(element, name=f"channel_{channel:02}_{tap:02}", reset_less=True)
                for channel in range(self.channels)
            ]
            for tap in range(taps * lines)
        ]
        self.vector_registers = {
            row: Signal(element, name=f"vector_{row:02}", reset_less=True)
            for row in range(rows.last, lanes_in)
        }
        mode = {name: In(1) for name in array_modes(taps, lines)}
        if taps:
            mode["part"] = In(range(self.parts))
        super().__init__({"vector": In(element).array(lanes_in), "valid": In(1), **mode})
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
        heads = [following]
        if self.lines > 1:
            heads += self._earlier_lines(m, following)
        with m.If(self.valid):
            for tap, registers in enumerate(self.channel_registers):
                line, first = divmod(tap, self.taps)
                if not first:
                    following = heads[line]
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

    def _earlier_lines(self, m: Module, newest: list[Value]) -> list[list[Value]]:
        """Return the channels of one line earlier, and of two, at the same step of the line.

        A memory holds a line: what the newest vector replaces is passed on to the next memory.
        """
        count = Signal(range(LINE_STEPS), reset_less=True)
        seen = Signal(range(self.lines), reset_less=True)
        place, ready = Signal.like(count), Signal.like(seen)
        later = Mux(seen == self.lines - 1, seen, seen + 1)
        m.d.comb += [
            place.eq(Mux(self.begins, 0, count)),
            ready.eq(Mux(self.begins, Mux(self.opens, 0, later), seen)),
        ]
        with m.If(self.valid):
            m.d.sync += [count.eq(place + 1), seen.eq(ready)]
        passed: Value = Cat(newest)
        heads = []
        for line in range(1, self.lines):
            m.submodules[f"line_{line}"] = kept = Memory(
                shape=len(passed), depth=LINE_STEPS, init=[]
            )
            write, read = kept.write_port(), kept.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(place),
                write.data.eq(passed),
                write.en.eq(self.valid),
                read.addr.eq(place),
            ]
            passed = read.data
            counts = self.joins & (ready >= line)
            heads.append(
                [
                    Mux(counts, passed.word_select(channel, ELEMENT_BITS), 0).as_signed()
                    for channel in range(self.channels)
                ]
            )
        return heads

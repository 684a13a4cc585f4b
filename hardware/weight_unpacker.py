"""Weight tiles of 4 bits on their way into WGT: each weight times the factor of its column."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from .logic_adder import LogicAdder


class WeightUnpacker(wiring.Component):
    """Keep the factors that begin a packed tile, and multiply the rows that follow; never stalls.

    A packed row wider than a beat comes in words of a beat. The word itself, `packed`, is there a
    cycle after its place, and so is what is to be written to WGT.

    Members
    -------
    valid, begins : In(1)
        A word of a packed row is there; it is the first one of a run.
    row : In
        Row of WGT where the run begins; read if it `begins`.
    word : In
        Number of the word in its packed row.
    packed : In
        The word, a cycle later.
    enable, address, data, mask : Out
        As of a write client of WGT. A word of factors is not written.
    """

    def __init__(self, configuration: Configuration):
        self.lanes_in, self.lanes_out = configuration.lanes_in, configuration.lanes_out
        self.word_bytes = min(configuration.packed_row_bytes, configuration.bus_bytes)
        self.words = configuration.packed_row_bytes // self.word_bytes
        super().__init__(
            {
                "valid": In(1),
                "begins": In(1),
                "row": In(address_width(configuration.rows(Memory.WGT))),
                "word": In((self.words - 1).bit_length()),
                "packed": In(8 * self.word_bytes),
                "enable": Out(1),
                "address": Out(address_width(configuration.rows(Memory.WGT))),
                "data": Out(8 * self.lanes_out),
                "mask": Out(self.lanes_out),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # Place of the row in its packed tile. Runs are whole tiles, so each begins with factors.
        place = Signal(range(self.lanes_in + 1))
        row = Signal.like(self.row, reset_less=True)
        ends_row = self.word == self.words - 1
        with m.If(self.valid):
            with m.If(ends_row):
                m.d.sync += place.eq(Mux(place == self.lanes_in, 0, place + 1))
            with m.If(self.begins):
                m.d.sync += row.eq(self.row)
            with m.Elif(ends_row & (place != 0)):
                m.d.sync += row.eq(row + 1)

        word = Signal.like(self.word, reset_less=True)
        has_factors = Signal()
        m.d.sync += [
            self.enable.eq(self.valid & (place != 0)),
            has_factors.eq(self.valid & (place == 0)),
            self.address.eq(row),
            word.eq(self.word),
        ]
        factors = Array(
            Signal(len(self.packed), name=f"factors_{number}", reset_less=True)
            for number in range(self.words)
        )
        with m.If(has_factors):
            m.d.sync += factors[word].eq(self.packed)
        now = Signal.like(self.packed)
        m.d.comb += now.eq(factors[word])
        products = [
            self._product(m, number, self.packed[low : low + 4].as_signed(), now[low : low + 4])
            for number, low in enumerate(range(0, len(self.packed), 4))
        ]
        columns = len(products)
        chosen = Cat((word == number).replicate(columns) for number in range(self.words))
        m.d.comb += [self.data.eq(Cat(products).replicate(self.words)), self.mask.eq(chosen)]
        return m

    def _product(self, m: Module, number: int, weight: Value, factor: Value) -> Value:
        """Return a signed 4-bit number times an unsigned one, 8 bits wide."""
        halves = []
        for low in (0, 2):
            adder = LogicAdder(6)
            m.submodules[f"pair_{number}_{low}"] = adder
            m.d.comb += [
                adder.a.eq(weight << 1),
                adder.b.eq(factor[low + 1].replicate(6)),
                adder.c.eq(weight),
                adder.d.eq(factor[low].replicate(6)),
            ]
            halves.append(adder.sum)
        total = LogicAdder(6)
        m.submodules[f"product_{number}"] = total
        m.d.comb += [
            total.a.eq(halves[0].as_signed() >> 2),
            total.b.eq(-1),
            total.c.eq(halves[1]),
            total.d.eq(-1),
        ]
        return Value.cast(Cat(halves[0][:2], total.sum))

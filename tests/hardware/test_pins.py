"""The registers around a core reach all of its inputs and show all of its outputs."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tilewright.hardware.pins import Pins

INPUT_BITS, OUTPUT_BITS = 3, 4


class Copier(wiring.Component):
    """Its outputs are its inputs, and one constant."""

    first: In(1)
    others: In(2)
    copies: Out(3)
    one: Out(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.copies.eq(self.first + (self.others << 1)), self.one.eq(1)]
        return m


def run(bits: list[int]) -> list[int]:
    """What comes out while bits go in, then zeros."""
    pins = Pins(Copier())
    found = []

    async def bench(context):
        for bit in bits:
            context.set(pins.shift_in, bit)
            found.append(context.get(pins.shift_out))
            await context.tick()

    simulator = Simulator(pins)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def expected(bits: list[int]) -> list[int]:
    before, behind, found = [0] * INPUT_BITS, [0] * OUTPUT_BITS, []
    for bit in bits:
        found.append(behind[-1])
        given = [*before, 1]
        behind = [now ^ last for now, last in zip(given, [before[-1], *behind], strict=False)]
        before = [bit, *before[:-1]]
    return found


def test_every_port_is_between_the_pins():
    bits = [1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0]
    assert run(bits) == expected(bits)

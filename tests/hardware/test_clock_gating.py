"""Parts of a machine are reset by `clears`, and by a reset of the whole machine."""

import pytest
from amaranth.hdl import Const, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hardware.clock_gating import ClockGating

from .simulated import Simulated


class Counter(wiring.Component):
    """Counts the cycles since its reset."""

    count: Out(4)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.count.eq(self.count + 1)
        return m


class Gated(wiring.Component):
    """A counter as a part, on a chip, where clocks do not stop."""

    clears: In(1)
    count: Out(4)

    def elaborate(self, platform) -> Module:
        m = Module()
        clear = Signal()
        m.d.sync += clear.eq(self.clears)
        part = Counter()
        ClockGating(m, None, clear, self.clears).add("part", {"part": part}, Const(1))
        m.d.comb += self.count.eq(part.count)
        return m


@pytest.mark.parametrize("cause", ["clears", "reset"])
def test_a_part_is_reset_a_cycle_later(cause):
    gated, reset = Gated(), Signal()
    signals = {"clears": gated.clears, "reset": reset}
    counts = []

    async def bench(context):
        for cycle in range(10):
            context.set(signals[cause], cycle == 6)
            await context.tick()
            counts.append(context.get(gated.count))

    Simulated(ResetInserter(reset)(gated)).run(bench)
    assert counts == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]

"""Performance counters of one unit, in the order of the contract."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.registers import UNIT_COUNTERS

COUNTER_BITS = 32


def increments_layout(configuration: Configuration) -> data.StructLayout:
    """By how much each counter grows in this cycle: one, or the bytes moved."""
    return data.StructLayout(
        {
            name: range(configuration.bus_bytes + 1) if name == "bytes" else 1
            for name in UNIT_COUNTERS
        }
    )


class UnitCounters(wiring.Component):
    """Add up what a unit does; counters wrap.

    Members
    -------
    clear : In(1)
    increments : In(increments_layout)
    counts : Out(32)[counters]
        In the order of `UNIT_COUNTERS`.
    """

    def __init__(self, configuration: Configuration):
        super().__init__(
            {
                "clear": In(1),
                "increments": In(increments_layout(configuration)),
                "counts": Out(COUNTER_BITS).array(len(UNIT_COUNTERS)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for name, total in zip(UNIT_COUNTERS, self.counts, strict=True):
            count = Signal(COUNTER_BITS, name=name)
            increment = getattr(self.increments, name)
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(increment != 0):
                m.d.sync += count.eq(count + increment)
            m.d.comb += total.eq(count)
        return m

"""Performance counters of one unit, in the order of the contract."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.registers import UNIT_COUNTERS

COUNTER_BITS = 32


def increments_signature(configuration: Configuration) -> wiring.Signature:
    """Increment of each counter in a cycle: 1, or the number of bytes moved."""
    return wiring.Signature(
        {
            name: Out(range(configuration.bus_bytes + 1) if name == "bytes" else 1)
            for name in UNIT_COUNTERS
        }
    )


class UnitCounters(wiring.Component):
    """Count the activity of a unit; counters wrap.

    Members
    -------
    clear : In(1)
    enable : In(1)
        Counters count while it is set, and hold otherwise.
    increments : In(increments_signature)
    counts : Out(32)[counters]
        In the order of `UNIT_COUNTERS`.
    """

    def __init__(self, configuration: Configuration):
        super().__init__(
            {
                "clear": In(1),
                "enable": In(1),
                "increments": In(increments_signature(configuration)),
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
            with m.Elif(self.enable & (increment != 0)):
                m.d.sync += count.eq(count + increment)
            m.d.comb += total.eq(count)
        return m

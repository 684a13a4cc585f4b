"""Token counters, one per ordered pair of units, with which instructions wait for each other."""

from amaranth.hdl import Assert, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import Unit, peers
from .layouts import MASK_BITS

COUNT_BITS = 8
"""Bits of a counter in the host's TOKENS register."""


class TokenCounters(wiring.Component):
    """Count the signals that no wait has consumed yet, for each ordered pair of units.

    Masks are those of the contract: bit `n` of a unit's mask stands for its n-th peer. A change is
    seen in the next cycle. A unit consumes only what is `available` and produces only where there
    is `room`.

    Members
    -------
    consume : In(mask)[units]
        By the waiting unit: take one token from each of these peers.
    available : Out(mask)[units]
        By the waiting unit: peers of which at least one token is available.
    produce : In(mask)[units]
        By the signalling unit: add one token for each of these peers.
    room : Out(mask)[units]
        By the signalling unit: peers whose counter is not full.
    counts : Out(8)[units][peers]
        By the waiting unit: tokens from each peer.
    """

    def __init__(self, configuration: Configuration):
        self.limit = configuration.token_limit
        super().__init__(
            {
                "consume": In(MASK_BITS).array(len(Unit)),
                "available": Out(MASK_BITS).array(len(Unit)),
                "produce": In(MASK_BITS).array(len(Unit)),
                "room": Out(MASK_BITS).array(len(Unit)),
                "counts": Out(data.ArrayLayout(COUNT_BITS, MASK_BITS)).array(len(Unit)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for source in Unit:
            for bit, target in enumerate(peers(source)):
                back = peers(target).index(source)
                name = f"{source.name}_{target.name}".lower()
                count = Signal(range(self.limit + 1), name=name)
                some, full = Signal(name=f"{name}_some"), Signal(name=f"{name}_full")
                produces, consumes = self.produce[source][bit], self.consume[target][back]
                m.d.comb += [
                    self.room[source][bit].eq(~full),
                    self.available[target][back].eq(some),
                    self.counts[target][back].eq(count),
                ]
                with m.If(produces & ~consumes):
                    m.d.sync += [count.eq(count + 1), some.eq(1), full.eq(count == self.limit - 1)]
                with m.If(consumes & ~produces):
                    m.d.sync += [count.eq(count - 1), some.eq(count != 1), full.eq(0)]
        m.d.sync += [
            Assert(
                ~(Cat(self.consume) & ~Cat(self.available)).any(),
                "a unit took a token that does not exist",
            ),
            Assert(~(Cat(self.produce) & ~Cat(self.room)).any(), "a token counter overflows"),
        ]
        return m

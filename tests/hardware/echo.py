"""A system on chip that is small enough for any chip: it sends bytes back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Echo(wiring.Component):
    """It sends each byte back, adds one to it for every byte since the reset, and is busy."""

    received: In(stream.Signature(8))
    sent: Out(stream.Signature(8))
    busy: Out(1, init=1)
    ended: Out(1)
    linked: Out(1)
    clock_hz = 10

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(8)
        with m.If(self.sent.valid & self.sent.ready):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [
            self.sent.valid.eq(self.received.valid),
            self.sent.payload.eq(self.received.payload + count),
            self.received.ready.eq(self.sent.ready),
            self.linked.eq(count[0]),
            self.busy.eq(1),
        ]
        return m

"""A system on chip that is small enough for any chip: it sends bytes back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hardware.axi import read_port, write_port
from tilewright.hardware.soc.sdram_pins import sdram_pins
from tilewright.isa.configuration import Configuration
from tilewright.isa.sdram import Sdram


class Echo(wiring.Component):
    """It sends each byte back, adds one to it for every byte since the reset, and is busy.

    With an SDRAM, it puts the byte on all outputs in turn, and adds what it reads to the count.
    With memory outside, its port is silent.
    """

    clock_hz = 10

    def __init__(self, sdram: Sdram | None = None, outside: Configuration | None = None):
        members = {name: Out(1) for name in ("busy", "ended", "linked")}
        members |= {"received": In(stream.Signature(8)), "sent": Out(stream.Signature(8))}
        if sdram:
            members["sdram"] = Out(sdram_pins(sdram))
        if outside:
            self.configuration = outside
            members |= {"read": Out(read_port(outside)), "write": Out(write_port(outside))}
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(8)
        with m.If(self.sent.valid & self.sent.ready):
            m.d.sync += count.eq(count + 1)
            if "sdram" in self.signature.members:
                for name in self.sdram.signature.members:
                    pins = getattr(self.sdram, name)
                    change = count.eq(count + 1 + pins) if name == "read" else pins.eq(~pins)
                    m.d.sync += change
        m.d.comb += [
            self.sent.valid.eq(self.received.valid),
            self.sent.payload.eq(self.received.payload + count),
            self.received.ready.eq(self.sent.ready),
            self.linked.eq(count[0]),
            self.busy.eq(1),
        ]
        return m

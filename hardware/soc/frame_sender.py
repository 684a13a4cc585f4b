"""From the bodies of answers to bytes: flags, escapes and the check."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...isa.link import CHECK_BYTES, CHECK_INITIAL, ESCAPE, ESCAPE_FLIP, FLAG
from .check import CHECK_BITS, next_check

BODY_LAYOUT = data.StructLayout({"byte": 8, "last": 1})
"""A byte of a body; `last` ends it."""


class FrameSender(wiring.Component):
    """Send bodies as frames, one byte per cycle.

    Members
    -------
    body : In(stream of BODY_LAYOUT)
    bytes : Out(stream of 8 bits)
    """

    body: In(stream.Signature(BODY_LAYOUT))
    bytes: Out(stream.Signature(8))

    def elaborate(self, platform) -> Module:
        m = Module()
        check = Signal(CHECK_BITS, init=CHECK_INITIAL)
        left = Signal(range(CHECK_BYTES))
        escaping = Signal()
        byte, offered, passes = Signal(8), Signal(), Signal()
        special = ((byte == FLAG) | (byte == ESCAPE)) & ~escaping

        def send_flag() -> None:
            m.d.comb += [self.bytes.valid.eq(1), self.bytes.payload.eq(FLAG)]

        def send_stuffed() -> None:
            m.d.comb += [
                self.bytes.valid.eq(offered),
                self.bytes.payload.eq(
                    Mux(special, ESCAPE, byte ^ Mux(escaping, ESCAPE_FLIP, 0)),
                ),
                passes.eq(offered & self.bytes.ready & ~special),
            ]
            with m.If(offered & self.bytes.ready):
                m.d.sync += escaping.eq(special)

        with m.FSM():
            with m.State("Begin"), m.If(self.body.valid):
                send_flag()
                m.d.sync += check.eq(CHECK_INITIAL)
                with m.If(self.bytes.ready):
                    m.next = "Body"
            with m.State("Body"):
                m.d.comb += [
                    byte.eq(self.body.payload.byte),
                    offered.eq(self.body.valid),
                    self.body.ready.eq(passes),
                ]
                send_stuffed()
                with m.If(passes):
                    m.d.sync += check.eq(next_check(check, byte))
                    with m.If(self.body.payload.last):
                        m.d.sync += left.eq(CHECK_BYTES - 1)
                        m.next = "Check"
            with m.State("Check"):
                m.d.comb += [byte.eq(~check[:8]), offered.eq(1)]
                send_stuffed()
                with m.If(passes):
                    m.d.sync += [check.eq(check >> 8), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "End"
            with m.State("End"):
                send_flag()
                with m.If(self.bytes.ready):
                    m.next = "Begin"
        return m

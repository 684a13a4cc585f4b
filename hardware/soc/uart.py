"""A serial port: bytes on two wires, eight bits without parity, one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from ..queue import Queue

RECEIVED_BYTES = 64
"""Bytes that arrive while the bridge writes a frame or sends an answer to one."""


class Uart(wiring.Component):
    """Send and receive bytes at one rate.

    A received byte without a stop bit, or one that finds no room, is lost; the frame's check shows
    it.

    Parameters
    ----------
    divisor : int
        Cycles of a bit, at least 4. The other side's bits may be 4 % longer or shorter.

    Members
    -------
    rx : In(1)
    tx : Out(1)
        The wires; high when idle.
    received : Out(stream of 8 bits)
    sent : In(stream of 8 bits)
    busy : Out(1)
        A byte is on its way.
    """

    rx: In(1, init=1)
    tx: Out(1, init=1)
    received: Out(stream.Signature(8))
    sent: In(stream.Signature(8))
    busy: Out(1)

    def __init__(self, divisor: int):
        self.divisor = divisor
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        receiving, sending = self._receive(m), self._send(m)
        m.d.comb += self.busy.eq(receiving | sending | self.received.valid)
        return m

    def _receive(self, m: Module) -> Value:
        """Receive bytes; return whether one is on its way."""
        m.submodules.bytes = received = Queue(8, RECEIVED_BYTES)
        wiring.connect(m, received.output, wiring.flipped(self.received))
        rx = Signal(init=1)
        m.submodules.rx = FFSynchronizer(self.rx, rx, init=1)
        timer = Signal(range(self.divisor))
        bits, left = Signal(8, reset_less=True), Signal(range(10))
        m.d.comb += received.input.payload.eq(bits)
        with m.If(left == 0):
            m.d.sync += timer.eq(self.divisor // 2 - 1)
            with m.If(~rx):
                m.d.sync += left.eq(9)
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += timer.eq(self.divisor - 1)
            self._sample(m, rx, bits, left, received)
        return left != 0

    def _sample(self, m: Module, rx: Signal, bits: Signal, left: Signal, received: Queue) -> None:
        """Take the middle of a bit: the start bit, eight bits, the stop bit."""
        started = Signal()
        with m.If(~started):
            m.d.sync += started.eq(~rx)
            with m.If(rx):  # a glitch
                m.d.sync += left.eq(0)
        with m.Else():
            m.d.sync += left.eq(left - 1)
            with m.If(left == 1):
                m.d.comb += received.input.valid.eq(rx)
                m.d.sync += started.eq(0)
            with m.Else():
                m.d.sync += bits.eq(Cat(bits[1:], rx))

    def _send(self, m: Module) -> Value:
        """Send bytes; return whether one is on its way."""
        timer = Signal(range(self.divisor))
        bits, left = Signal(9, init=0x1FF), Signal(range(11))
        m.d.comb += [self.tx.eq(bits[0]), self.sent.ready.eq(left == 0)]
        with m.If(left == 0):
            m.d.sync += timer.eq(self.divisor - 1)
            with m.If(self.sent.valid):
                m.d.sync += [bits.eq(Cat(Const(0, 1), self.sent.payload)), left.eq(10)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [
                timer.eq(self.divisor - 1),
                bits.eq(Cat(bits[1:], Const(1, 1))),
                left.eq(left - 1),
            ]
        return left != 0

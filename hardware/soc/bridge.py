"""The host bridge: bytes of the link in, accesses of memory and registers, bytes out."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...isa.configuration import Configuration
from ...isa.link import PAYLOAD_BYTES
from ..axi import read_port, write_port
from ..axi_lite import axi_lite_port
from ..control import ADDRESS_BITS
from .executor import CommandExecutor
from .frame_receiver import FrameReceiver
from .frame_sender import FrameSender


def driver_members(configuration: Configuration) -> dict[str, wiring.Member]:
    """Return the members of whatever drives the core: a `Bridge`, or a CPU in its place."""
    return {
        "received": In(stream.Signature(8)),
        "sent": Out(stream.Signature(8)),
        "read": Out(read_port(configuration)),
        "write": Out(write_port(configuration)),
        "registers": Out(axi_lite_port(ADDRESS_BITS)),
        "answered": Out(1),
        "busy": Out(1),
    }


class Bridge(wiring.Component):
    """Execute the requests that arrive as frames, and answer them.

    A request is executed after its whole frame has arrived and its check was right. While it is
    executed, no byte is taken.

    Parameters
    ----------
    configuration, board
        As in `CommandExecutor`.

    Members
    -------
    received : In(stream of 8 bits)
    sent : Out(stream of 8 bits)
    read : Out(read_port)
    write : Out(write_port)
    registers : Out(AXI4-Lite)
    answered : Out(1)
        A request is complete.
    busy : Out(1)
        A request is executed, or its answer sent.
    """

    def __init__(self, configuration: Configuration, board: dict[str, int]):
        self.configuration, self.board = configuration, board
        super().__init__(driver_members(configuration))

    def elaborate(self, platform) -> Module:
        m = Module()
        receiver = FrameReceiver(self.configuration.bus_bytes, PAYLOAD_BYTES)
        m.submodules.receiver = receiver
        m.submodules.executor = executor = CommandExecutor(
            self.configuration, self.board, PAYLOAD_BYTES
        )
        m.submodules.sender = sender = FrameSender()
        wiring.connect(m, wiring.flipped(self.received), receiver.bytes)
        wiring.connect(m, receiver.requests, executor.requests)
        wiring.connect(m, executor.body, sender.body)
        wiring.connect(m, sender.bytes, wiring.flipped(self.sent))
        for port in ("read", "write", "registers"):
            wiring.connect(m, getattr(executor, port), wiring.flipped(getattr(self, port)))
        m.d.comb += [
            executor.payload_bytes.eq(receiver.payload_bytes),
            executor.payload.eq(receiver.read_data),
            receiver.read_enable.eq(executor.payload_enable),
            receiver.read_address.eq(executor.payload_address),
            self.answered.eq(executor.requests.valid & executor.requests.ready),
            self.busy.eq(executor.busy | self.sent.valid),
        ]
        return m

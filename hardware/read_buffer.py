"""Registers between the memory's read channel and the core."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.pipeline import READ_BUFFER_BEATS
from .axi import RESPONSE_BITS, read_port
from .queue import Queue


class ReadBuffer(wiring.Component):
    """Pass requests on and register beats, so no combinational path of a beat crosses the port.

    Members
    -------
    core : In(read_port)
        The master inside the core.
    memory : Out(read_port)
    """

    def __init__(self, configuration: Configuration):
        self.layout = data.StructLayout(
            {"data": configuration.bus_bits, "response": RESPONSE_BITS, "last": 1}
        )
        super().__init__(
            {"core": In(read_port(configuration)), "memory": Out(read_port(configuration))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.beats = beats = Queue(self.layout, READ_BUFFER_BEATS)
        core, memory = self.core, self.memory
        m.d.comb += [
            memory.araddr.eq(core.araddr),
            memory.arlen.eq(core.arlen),
            memory.arsize.eq(core.arsize),
            memory.arburst.eq(core.arburst),
            memory.arvalid.eq(core.arvalid),
            core.arready.eq(memory.arready),
            beats.input.valid.eq(memory.rvalid),
            beats.input.payload.data.eq(memory.rdata),
            beats.input.payload.response.eq(memory.rresp),
            beats.input.payload.last.eq(memory.rlast),
            memory.rready.eq(beats.input.ready),
            core.rvalid.eq(beats.output.valid),
            core.rdata.eq(beats.output.payload.data),
            core.rresp.eq(beats.output.payload.response),
            core.rlast.eq(beats.output.payload.last),
            beats.output.ready.eq(core.rready),
        ]
        return m

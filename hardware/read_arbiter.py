"""Arbiter that shares the memory's read channels between FETCH and LOAD, burst by burst."""

from amaranth.hdl import Assert, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.pipeline import FETCH_BURSTS, REQUEST_REGISTERS
from .axi import (
    RESPONSE_OKAY,
    assign_address,
    read_beat_layout,
    read_port,
    request_layout,
)
from .queue import Queue


class ReadArbiter(wiring.Component):
    """Forward read requests, FETCH first, and return beats to the client that asked.

    A request is at `memory` one cycle after it was accepted; one request per cycle while `arready`
    is high. The ready signals of requests do not depend on `arready` in that cycle. Beats pass
    without delay. LOAD may have `outstanding_bursts` requests in flight, FETCH `FETCH_BURSTS`.

    Members
    -------
    fetch_requests, load_requests : In(stream of request_layout)
    fetch_beats, load_beats : Out(stream of read_beat_layout)
        In request order. A client that does not take its beat also stalls the other one.
    memory : Out(read_port)
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        request = stream.Signature(request_layout(configuration))
        beat = stream.Signature(read_beat_layout(configuration))
        super().__init__(
            {
                "fetch_requests": In(request),
                "load_requests": In(request),
                "fetch_beats": Out(beat),
                "load_beats": Out(beat),
                "memory": Out(read_port(configuration)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        memory = self.memory
        owners_depth = self.configuration.outstanding_bursts + FETCH_BURSTS
        # The owner of a burst is a register, in time for its first beat: a burst is at `memory` in
        # the cycle before. So no beat has to wait for `owners.output.valid`.
        m.submodules.owners = owners = Queue(1, owners_depth, buffered=True)
        m.submodules.queue = queue = Queue(request_layout(self.configuration), REQUEST_REGISTERS)

        asks = self.fetch_requests.valid | self.load_requests.valid
        m.d.comb += [
            self.fetch_requests.ready.eq(queue.input.ready),
            self.load_requests.ready.eq(queue.input.ready & ~self.fetch_requests.valid),
            owners.input.valid.eq(asks & queue.input.ready),
            owners.input.payload.eq(self.fetch_requests.valid),
            queue.input.valid.eq(asks),
            queue.input.payload.eq(
                Mux(
                    self.fetch_requests.valid,
                    self.fetch_requests.payload.as_value(),
                    self.load_requests.payload.as_value(),
                )
            ),
            memory.arvalid.eq(queue.output.valid),
            queue.output.ready.eq(memory.arready),
            assign_address(memory, "ar", queue.output.payload, self.configuration),
        ]

        for owner, beats in enumerate((self.load_beats, self.fetch_beats)):
            mine = owners.output.payload == owner
            m.d.comb += [
                beats.valid.eq(memory.rvalid & mine),
                beats.payload.data.eq(memory.rdata),
                beats.payload.failed.eq(memory.rresp != RESPONSE_OKAY),
                beats.payload.last.eq(memory.rlast),
            ]
            with m.If(mine):
                m.d.comb += memory.rready.eq(beats.ready)
        m.d.comb += owners.output.ready.eq(memory.rvalid & memory.rready & memory.rlast)
        m.d.sync += [
            Assert(owners.input.ready | ~owners.input.valid, "more bursts in flight than agreed"),
            Assert(~memory.rvalid | owners.output.valid, "read data without a request"),
        ]
        return m

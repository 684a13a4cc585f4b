"""The arbiter between the core and the bridge, in front of main memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.configuration import Configuration
from ...isa.pipeline import FETCH_BURSTS
from ..axi import read_port, write_port
from ..queue import Queue

CORE, BRIDGE = 0, 1
"""The owner of a burst."""

BRIDGE_BURSTS = 1
"""Reads of the bridge in flight at most; of its writes, one that has not been sent."""


def bursts_in_flight(configuration: Configuration) -> int:
    """Return how many bursts the core and the bridge have in flight in a direction, at most."""
    return configuration.outstanding_bursts + FETCH_BURSTS + BRIDGE_BURSTS


class PortArbiter(wiring.Component):
    """Pass bursts of the core and of the bridge to memory, and responses back to their owner.

    Each direction is arbitrated burst by burst; the bridge goes first. Nothing is delayed while the
    bridge is silent, so that the core's time is that of the memory alone. A burst's data follow its
    address: W is accepted from the cycle after AW.

    Members
    -------
    core_read, core_write, bridge_read, bridge_write : In
    read, write : Out
        The memory.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        reads, writes = read_port(configuration), write_port(configuration)
        super().__init__(
            {
                "core_read": In(reads),
                "bridge_read": In(reads),
                "core_write": In(writes),
                "bridge_write": In(writes),
                "read": Out(reads),
                "write": Out(writes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = bursts_in_flight(self.configuration)
        reads, writes = (self.core_read, self.bridge_read), (self.core_write, self.bridge_write)
        m.submodules.readers = readers = Queue(1, depth)
        m.submodules.writers = writers = Queue(1, depth)
        m.submodules.answered = answered = Queue(1, depth)
        self._choose(m, "ar", reads, self.read, [readers])
        self._choose(m, "aw", writes, self.write, [writers, answered])
        m.d.comb += [
            readers.output.ready.eq(self.read.rvalid & self.read.rready & self.read.rlast),
            writers.output.ready.eq(self.write.wvalid & self.write.wready & self.write.wlast),
            answered.output.ready.eq(self.write.bvalid & self.write.bready),
        ]
        for owner, (read, write) in enumerate(zip(reads, writes, strict=True)):
            m.d.comb += [
                read.rdata.eq(self.read.rdata),
                read.rresp.eq(self.read.rresp),
                read.rlast.eq(self.read.rlast),
                write.bresp.eq(self.write.bresp),
            ]
            with m.If(readers.output.valid & (readers.output.payload == owner)):
                m.d.comb += [
                    read.rvalid.eq(self.read.rvalid),
                    self.read.rready.eq(read.rready),
                ]
            with m.If(writers.output.valid & (writers.output.payload == owner)):
                m.d.comb += [
                    self.write.wvalid.eq(write.wvalid),
                    write.wready.eq(self.write.wready),
                ]
            with m.If(answered.output.valid & (answered.output.payload == owner)):
                m.d.comb += [
                    write.bvalid.eq(self.write.bvalid),
                    self.write.bready.eq(write.bready),
                ]
        bridged = writers.output.payload
        for name in ("wdata", "wstrb", "wlast"):
            core, bridge = (getattr(write, name) for write in writes)
            m.d.comb += getattr(self.write, name).eq(Mux(bridged, bridge, core))
        return m

    def _choose(self, m: Module, prefix: str, masters, memory, owners: list[Queue]) -> None:
        """Arbitrate an address channel, and note the owner of each burst in all queues."""

        def signal(port, name: str):
            return getattr(port, f"{prefix}{name}")

        room = Signal(name=f"{prefix}_room")
        chosen = Signal(name=f"{prefix}_chosen")
        # What the core offered must stay until the memory takes it.
        waiting = Signal(name=f"{prefix}_core_waits")
        core, bridge = masters
        valid, ready = signal(memory, "valid"), signal(memory, "ready")
        m.d.sync += waiting.eq(valid & ~ready & (chosen == CORE))
        m.d.comb += [
            room.eq(_all_ready(owners)),
            chosen.eq(Mux(signal(bridge, "valid") & ~waiting, BRIDGE, CORE)),
            valid.eq(room & Mux(chosen, signal(bridge, "valid"), signal(core, "valid"))),
            signal(core, "ready").eq(room & ready & (chosen == CORE)),
            signal(bridge, "ready").eq(room & ready & (chosen == BRIDGE)),
        ]
        for name in ("addr", "len", "size", "burst"):
            m.d.comb += signal(memory, name).eq(
                Mux(chosen, signal(bridge, name), signal(core, name))
            )
        for queue in owners:
            m.d.comb += [
                queue.input.valid.eq(valid & ready),
                queue.input.payload.eq(chosen),
            ]


def _all_ready(queues: list[Queue]):
    ready = queues[0].input.ready
    for queue in queues[1:]:
        ready = ready & queue.input.ready
    return ready

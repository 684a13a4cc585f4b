"""STORE: copies byte runs from ACT or ACC to main memory."""

from amaranth.hdl import Assert, Module, Mux, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.durations import commands_in_flight
from ..isa.instructions import Store
from ..isa.instructions.store import SOURCES
from ..isa.registers import Error
from .axi import (
    RESPONSE_OKAY,
    WINDOW_BITS,
    assign_address,
    request_layout,
    write_port,
)
from .beat_packer import BeatPacker, read_client
from .bursts import BurstIssuer
from .in_flight import InFlight
from .layouts import command_layout
from .pieces import PieceCutter, begin_cut, cut_layout
from .queue import Queue


class StoreUnit(wiring.Component):
    """Copy byte runs from a scratchpad to main memory, one piece per cycle.

    Timing: the first write address is at `memory` four cycles after the command was accepted. The
    first row is read two cycles later. A beat is at `memory` `PACKING_CYCLES` + 1 cycles after
    its last row was read. Bursts of a command follow each other without bubbles while fewer than
    `outstanding_bursts` had no response before this cycle. A command is complete when the memory
    has answered its last burst.

    Members
    -------
    commands : In(stream of command_layout)
    retired : Out(stream)
        Once per command, in order; valid from the cycle after its last response.
    act, acc : Out(read_client)
    memory : Out(write_port)
    data_base : In(address_bits)
        Byte address of the data window, a multiple of 4096.
    data_bytes : In(32)
        Size of the data window in bytes.
    stop : In(1)
        Make no more requests from the next cycle on; bursts whose address was issued are completed.
    busy : Out(1)
        Commands are in flight; after `stop` or an error, transfers are in flight.
    starved : Out(1)
        STORE waits for the memory port: for room, or for responses.
    moved_bytes : Out(range(bus_bytes + 1))
        Bytes sent to memory in this cycle.
    error : Out(Error)
        Stays set until reset. After an error there are no more requests or retirements.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(Store, configuration))),
                "retired": Out(stream.Signature(0)),
                "act": Out(read_client(Memory.ACT, configuration)),
                "acc": Out(read_client(Memory.ACC, configuration)),
                "memory": Out(write_port(configuration)),
                "data_base": In(configuration.address_bits),
                "data_bytes": In(WINDOW_BITS),
                "stop": In(1),
                "busy": Out(1),
                "starved": Out(1),
                "moved_bytes": Out(range(configuration.bus_bytes + 1)),
                "error": Out(Shape.cast(Error)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration, memory = self.configuration, self.memory
        limit = configuration.outstanding_bursts
        m.submodules.issuer = issuer = BurstIssuer(Store, configuration)
        m.submodules.pending = pending = Queue(cut_layout(Store, configuration, SOURCES), limit)
        m.submodules.cutter = cutter = PieceCutter(Store, configuration, SOURCES)
        m.submodules.packer = packer = BeatPacker(configuration)
        m.submodules.unanswered = unanswered = Queue(1, limit)
        m.submodules.in_flight = in_flight = InFlight(commands_in_flight(configuration))
        wiring.connect(m, pending.output, cutter.bursts)
        wiring.connect(m, cutter.pieces, packer.pieces)
        wiring.connect(m, wiring.flipped(self.act), packer.act)
        wiring.connect(m, wiring.flipped(self.acc), packer.acc)
        wiring.connect(m, in_flight.retired, wiring.flipped(self.retired))

        halted, failed = Signal(), Signal()
        refuses = Signal()
        m.d.sync += refuses.eq(halted)
        m.d.comb += [
            halted.eq(self.stop | failed),
            in_flight.freeze.eq(halted),
            issuer.data_base.eq(self.data_base),
            issuer.data_bytes.eq(self.data_bytes),
            issuer.commands.payload.eq(self.commands.payload),
            issuer.commands.valid.eq(self.commands.valid & in_flight.room),
            self.commands.ready.eq(issuer.commands.ready & in_flight.room),
            in_flight.accept.eq(self.commands.valid & self.commands.ready),
        ]

        # Every burst goes to three places at once: its address to memory, its bytes to the cutter,
        # and a count of expected responses.
        burst = issuer.bursts.payload
        request = Signal(request_layout(configuration), reset_less=True)
        sends = Signal()
        m.d.comb += [
            sends.eq(
                issuer.bursts.valid
                & ~refuses
                & (~memory.awvalid | memory.awready)
                & unanswered.input.ready
            ),
            issuer.bursts.ready.eq(sends),
            *(
                pending.input.payload[name].eq(value)
                for name, value in begin_cut(burst, Store, configuration, SOURCES).items()
            ),
            pending.input.valid.eq(sends),
            unanswered.input.payload.eq(burst.last),
            unanswered.input.valid.eq(sends),
            assign_address(memory, "aw", request, configuration),
        ]
        with m.If(sends):
            m.d.sync += [
                memory.awvalid.eq(1),
                request.address.eq(burst.address),
                request.beats_minus_one.eq(burst.beats_minus_one),
            ]
        with m.Elif(memory.awready):
            m.d.sync += memory.awvalid.eq(0)

        rejected = memory.bresp != RESPONSE_OKAY
        with m.If(~memory.wvalid | memory.wready):
            m.d.sync += [
                memory.wvalid.eq(packer.beats.valid),
                memory.wdata.eq(packer.beats.payload.data),
                memory.wstrb.eq(packer.beats.payload.strobe),
                memory.wlast.eq(packer.beats.payload.last),
            ]
        m.d.comb += [
            packer.beats.ready.eq(~memory.wvalid | memory.wready),
            memory.bready.eq(1),
            unanswered.output.ready.eq(memory.bvalid),
            in_flight.complete.eq(memory.bvalid & ~rejected & unanswered.output.payload),
        ]
        takes = cutter.pieces.valid & cutter.pieces.ready
        m.d.comb += [
            self.busy.eq(Mux(refuses, unanswered.output.valid, in_flight.active)),
            self.starved.eq(~takes & unanswered.output.valid),
        ]
        with m.If(takes):
            m.d.comb += self.moved_bytes.eq(cutter.pieces.payload.bytes_minus_one + 1)

        with m.If(~failed):
            with m.If(memory.bvalid & rejected):
                m.d.sync += [failed.eq(1), self.error.eq(Error.MEMORY_RESPONSE)]
            with m.Elif(issuer.out_of_window):
                m.d.sync += [failed.eq(1), self.error.eq(Error.OUT_OF_WINDOW)]
        m.d.sync += Assert(
            ~memory.bvalid | unanswered.output.valid, "a write response without a request"
        )
        return m

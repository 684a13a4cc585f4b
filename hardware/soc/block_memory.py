"""Main memory made of block RAM, behind AXI4."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ...isa.configuration import Configuration
from ...isa.pipeline import RAM_CYCLES
from ..axi import LEN_BITS, RESPONSE_OKAY, read_port, write_port
from ..queue import Queue
from ..ram import Ram
from ..technology import Technology
from .banked_ram import BankedRam
from .port_arbiter import bursts_in_flight
from .simulated_ram import SimulatedRam

LATENCY_CYCLES = RAM_CYCLES + 3
"""From accepting a read's address to its first beat, and from a burst's last beat to its response.

A request passes a queue and a register on its way to the RAM, and a beat passes a queue behind it.
"""

BEATS_AHEAD = 8
"""Beats that are read before they are taken: as many as the way through the RAM holds, or more."""


class BlockMemory(wiring.Component):
    """A beat per cycle in each direction, after a fixed latency: `MemoryModel` holds exactly.

    A program may read a word in the cycle in which other bytes of it are written. A chip whose RAM
    loses such reads must not use this memory.

    Parameters
    ----------
    configuration : Configuration
    memory_bytes : int
        A multiple of the bus width.

    Members
    -------
    read : In(read_port)
    write : In(write_port)
        W is accepted after AW. Addresses beyond the memory access any word.
    """

    def __init__(self, configuration: Configuration, memory_bytes: int):
        self.configuration = configuration
        self.words = memory_bytes // configuration.bus_bytes
        super().__init__(
            {"read": In(read_port(configuration)), "write": In(write_port(configuration))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = self.configuration.bus_bits
        simulated = platform is Technology.SIMULATION
        ram = SimulatedRam(self.words, bits) if simulated else BankedRam(self.words, bits)
        m.submodules.ram = ram
        self._read(m, ram)
        self._write(m, ram)
        return m

    def _burst_queue(self) -> Queue:
        self._word_bits = max(1, (self.words - 1).bit_length())
        layout = data.StructLayout({"word": self._word_bits, "length": LEN_BITS})
        return Queue(layout, bursts_in_flight(self.configuration))

    def _accept(self, m: Module, prefix: str, port, bursts: Queue) -> None:
        """Put the requests of an address channel into a queue."""
        lane_bits = (self.configuration.bus_bytes - 1).bit_length()
        m.d.comb += [
            bursts.input.valid.eq(getattr(port, f"{prefix}valid")),
            getattr(port, f"{prefix}ready").eq(bursts.input.ready),
            bursts.input.payload.word.eq(getattr(port, f"{prefix}addr")[lane_bits:]),
            bursts.input.payload.length.eq(getattr(port, f"{prefix}len")),
        ]

    def _read(self, m: Module, ram: Ram) -> None:
        m.submodules.reads = bursts = self._burst_queue()
        self._accept(m, "ar", self.read, bursts)
        beat = data.StructLayout({"data": self.configuration.bus_bits, "last": 1})
        m.submodules.beats = beats = Queue(beat, BEATS_AHEAD)
        done = Signal(LEN_BITS)
        room = Signal(range(BEATS_AHEAD + 1), init=BEATS_AHEAD)
        last = done == bursts.output.payload.length
        issues, taken = Signal(), Signal()
        m.d.comb += [
            issues.eq(bursts.output.valid & (room != 0)),
            bursts.output.ready.eq(issues & last),
            taken.eq(self.read.rvalid & self.read.rready),
        ]
        with m.If(issues):
            m.d.sync += done.eq(done + 1)
            with m.If(last):
                m.d.sync += done.eq(0)
        # Valid and last of a beat accompany it through the register of its address and the RAM.
        valids, lasts = Signal(RAM_CYCLES + 1), Signal(RAM_CYCLES + 1, reset_less=True)
        m.d.sync += [
            room.eq(room - issues + taken),
            ram.read_address.eq(bursts.output.payload.word + done),
            valids.eq(Cat(issues, valids)),
            lasts.eq(Cat(last, lasts)),
        ]
        m.d.comb += [
            ram.read_enable.eq(valids[0]),
            beats.input.valid.eq(valids[-1]),
            beats.input.payload.data.eq(ram.read_data),
            beats.input.payload.last.eq(lasts[-1]),
            self.read.rvalid.eq(beats.output.valid),
            self.read.rdata.eq(beats.output.payload.data),
            self.read.rlast.eq(beats.output.payload.last),
            self.read.rresp.eq(RESPONSE_OKAY),
            beats.output.ready.eq(self.read.rready),
        ]

    def _write(self, m: Module, ram: Ram) -> None:
        m.submodules.writes = bursts = self._burst_queue()
        self._accept(m, "aw", self.write, bursts)
        write = self.write
        done = Signal(LEN_BITS)
        taken = Signal()
        m.d.comb += [
            write.wready.eq(bursts.output.valid),
            taken.eq(write.wvalid & write.wready),
            bursts.output.ready.eq(taken & write.wlast),
            write.bresp.eq(RESPONSE_OKAY),
        ]
        with m.If(taken):
            m.d.sync += done.eq(done + 1)
            with m.If(write.wlast):
                m.d.sync += done.eq(0)
        m.d.sync += [
            ram.write_enable.eq(write.wstrb & taken.replicate(len(write.wstrb))),
            ram.write_address.eq(bursts.output.payload.word + done),
            ram.write_data.eq(write.wdata),
        ]
        # The response of a burst comes as late as a beat of a read would.
        ended = Signal(LATENCY_CYCLES - 1)
        open_responses = Signal(range(bursts_in_flight(self.configuration) + 1))
        answered = write.bvalid & write.bready
        m.d.sync += [
            ended.eq(Cat(taken & write.wlast, ended)),
            open_responses.eq(open_responses + ended[-1] - answered),
        ]
        m.d.comb += write.bvalid.eq(open_responses != 0)

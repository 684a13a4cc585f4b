"""The system on chip: core, memory, bridge; and the same behind the wires of a serial port."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...errors import HardwareError
from ...isa.configuration import Configuration
from ...isa.configuration_rules import PAGE_BYTES
from ...isa.registers import OFFSETS
from ..axi import read_port, write_port
from ..axi_lite import axi_lite_port
from ..control import ADDRESS_BITS
from ..core import Core
from .block_memory import LATENCY_CYCLES, BlockMemory
from .bridge import Bridge
from .port_arbiter import PortArbiter
from .uart import Uart

START, STOP = 0, 1
"""Bits of `CONTROL`."""


class System(wiring.Component):
    """A core with main memory of block RAM, served by a host over a link of bytes.

    Parameters
    ----------
    configuration : Configuration
    memory_bytes : int
        Size of main memory: whole pages, within the reach of `address_bits`.
    clock_hz : int
        The clock, for the host's information.
    multipliers : int, optional
        As in `Core`.

    Members
    -------
    received : In(stream of 8 bits)
        Bytes from the host.
    sent : Out(stream of 8 bits)
        Bytes to the host.
    busy : Out(1)
        A program runs, or a request is executed.
    ended : Out(1)
        The program is done, or an error stopped it.
    linked : Out(1)
        Changes with each request.

    Raises
    ------
    HardwareError
        If the memory is too large, or not whole pages.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory_bytes: int,
        clock_hz: int,
        multipliers: int | None = None,
    ):
        self.configuration, self.memory_bytes = configuration, memory_bytes
        self.clock_hz, self.multipliers = clock_hz, multipliers
        reach = 1 << configuration.address_bits
        if not PAGE_BYTES <= memory_bytes <= reach or memory_bytes % PAGE_BYTES:
            raise HardwareError(
                f"memory of {memory_bytes} bytes: expected a multiple of {PAGE_BYTES} bytes up to "
                f"the {reach} bytes that `address_bits` = {configuration.address_bits} reaches"
            )
        super().__init__(
            {
                "received": In(stream.Signature(8)),
                "sent": Out(stream.Signature(8)),
                "busy": Out(1),
                "ended": Out(1),
                "linked": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration = self.configuration
        m.submodules.core = core = Core(configuration, self.multipliers)
        m.submodules.memory = memory = BlockMemory(configuration, self.memory_bytes)
        m.submodules.arbiter = arbiter = PortArbiter(configuration)
        board = {
            "MEMORY_BYTES": self.memory_bytes,
            "MEMORY_LATENCY": LATENCY_CYCLES,
            "CLOCK_HZ": self.clock_hz,
        }
        m.submodules.bridge = bridge = Bridge(configuration, board)
        wiring.connect(m, wiring.flipped(self.received), bridge.received)
        wiring.connect(m, bridge.sent, wiring.flipped(self.sent))
        wiring.connect(m, bridge.read, arbiter.bridge_read)
        wiring.connect(m, bridge.write, arbiter.bridge_write)
        wiring.connect(m, arbiter.read, memory.read)
        wiring.connect(m, arbiter.write, memory.write)
        for port, prefix, signature in (
            (arbiter.core_read, "m_axi", read_port(configuration)),
            (arbiter.core_write, "m_axi", write_port(configuration)),
            (bridge.registers, "s_axi", axi_lite_port(ADDRESS_BITS)),
        ):
            for name, member in signature.members.items():
                outside, inside = getattr(port, name), getattr(core, f"{prefix}_{name}")
                from_core = (member.flow is Out) == (prefix == "m_axi")
                m.d.comb += outside.eq(inside) if from_core else inside.eq(outside)

        # When the answer to a start is there, the end of the run before is no longer shown.
        registers = bridge.registers
        running = Signal()
        m.d.comb += [self.ended.eq(core.interrupt), self.busy.eq(running | bridge.busy)]
        with m.If(registers.bvalid & (registers.awaddr == OFFSETS["CONTROL"])):
            m.d.sync += running.eq(registers.wdata[START] & ~registers.wdata[STOP])
        with m.Elif(core.interrupt):
            m.d.sync += running.eq(0)
        with m.If(bridge.answered):
            m.d.sync += self.linked.eq(~self.linked)
        return m


class WiredSystem(wiring.Component):
    """A system behind a serial port, and the host's serial port at the other end of the wires.

    Parameters
    ----------
    system : System
    divisor : int
        Cycles of a bit.

    Members
    -------
    As of `System`; the bytes are those of the host's port.
    """

    def __init__(self, system: System, divisor: int):
        self.system, self.divisor = system, divisor
        super().__init__(dict(system.signature.members))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.system = system = self.system
        m.submodules.board = board = Uart(self.divisor)
        m.submodules.host = host = Uart(self.divisor)
        m.d.comb += [board.rx.eq(host.tx), host.rx.eq(board.tx)]
        wiring.connect(m, board.received, system.received)
        wiring.connect(m, system.sent, board.sent)
        wiring.connect(m, wiring.flipped(self.received), host.sent)
        wiring.connect(m, host.received, wiring.flipped(self.sent))
        m.d.comb += [
            self.busy.eq(system.busy | board.busy | host.busy),
            self.ended.eq(system.ended),
            self.linked.eq(system.linked),
        ]
        return m

"""The system on chip: core, memory, bridge or CPU; the same behind the wires of a serial port."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...errors import HardwareError
from ...isa.configuration import Configuration
from ...isa.configuration_rules import PAGE_BYTES
from ...isa.memory_model import MemoryModel
from ...isa.registers import OFFSETS
from ...isa.sdram import Sdram
from ..axi import read_port, write_port
from ..axi_lite import axi_lite_port
from ..control import ADDRESS_BITS
from ..core import Core
from ..fan_out import add_with_resets
from .block_memory import LATENCY_CYCLES, BlockMemory
from .bridge import Bridge
from .port_arbiter import PortArbiter
from .sdram import SdramController
from .sdram_chip import SdramChip, Violation
from .sdram_pads import SdramPads
from .sdram_pins import sdram_pins
from .soft_cpu import SoftCpu
from .uart import Uart

START, STOP = 0, 1
"""Bits of `CONTROL`."""

STATE = ("busy", "ended", "linked")
"""Outputs of a system that tell its state."""


class System(wiring.Component):
    """A core with main memory, driven by a host over a link of bytes, or by a soft CPU.

    Parameters
    ----------
    configuration : Configuration
    memory_bytes : int
        Size of main memory: whole pages, within the reach of `address_bits`.
    clock_hz : int
        The clock: for the host's information, and for the timing of an SDRAM.
    multipliers : int, optional
        As in `Core`.
    sdram : Sdram, optional
        Main memory; block RAM without it.
    external : MemoryModel, optional
        Main memory is outside, and this is its timing for the host's information.
    cpu : SoftCpu, optional
        Drives the core in place of the host; the link then carries the bytes of its program.

    Members
    -------
    received : In(stream of 8 bits)
        Bytes from the host, or for the program.
    sent : Out(stream of 8 bits)
        Bytes to the host, or from the program.
    busy : Out(1)
        A program runs, or a request is executed.
    ended : Out(1)
        The program is done, or an error stopped it.
    linked : Out(1)
        Changes with each request.
    sdram : Out(sdram_pins)
        With an SDRAM alone.
    read : Out(read_port), write : Out(write_port)
        With external memory alone.

    Raises
    ------
    HardwareError
        If the memory is too large, or not whole pages; or for an SDRAM as `SdramController`.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory_bytes: int,
        clock_hz: int,
        multipliers: int | None = None,
        sdram: Sdram | None = None,
        cpu: SoftCpu | None = None,
        external: MemoryModel | None = None,
    ):
        self.configuration, self.memory_bytes = configuration, memory_bytes
        self.chip, self.cpu, self.external = sdram, cpu, external
        self.clock_hz, self.multipliers = clock_hz, multipliers
        reach = 1 << configuration.address_bits
        if not PAGE_BYTES <= memory_bytes <= reach or memory_bytes % PAGE_BYTES:
            raise HardwareError(
                f"memory of {memory_bytes} bytes: expected a multiple of {PAGE_BYTES} bytes up to "
                f"the {reach} bytes that `address_bits` = {configuration.address_bits} reaches"
            )
        if sdram is not None and memory_bytes > sdram.size_bytes:
            raise HardwareError(
                f"memory of {memory_bytes} bytes: expected at most the {sdram.size_bytes} bytes "
                f"of SDRAM `{sdram.name}`"
            )
        pins = {} if sdram is None else {"sdram": Out(sdram_pins(sdram))}
        if external is not None:
            pins |= {
                "read": Out(read_port(configuration)), "write": Out(write_port(configuration))
            }  # fmt: skip
        super().__init__(
            {
                "received": In(stream.Signature(8)),
                "sent": Out(stream.Signature(8)),
                "busy": Out(1),
                "ended": Out(1),
                "linked": Out(1),
                **pins,
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration = self.configuration
        core, arbiter = Core(configuration, self.multipliers), PortArbiter(configuration)
        starts = Signal()
        memory, board = self._memory(m, starts)
        outside = wiring.flipped(self) if memory is None else memory
        board |= {"MEMORY_BYTES": self.memory_bytes, "CLOCK_HZ": self.clock_hz}
        bridge = self.cpu or Bridge(configuration, board)
        parts = {"core": core, "arbiter": arbiter, "bridge": bridge}
        parts |= {} if memory is None else {"memory": memory}
        add_with_resets(m, platform, parts)
        wiring.connect(m, wiring.flipped(self.received), bridge.received)
        wiring.connect(m, bridge.sent, wiring.flipped(self.sent))
        wiring.connect(m, bridge.read, arbiter.bridge_read)
        wiring.connect(m, bridge.write, arbiter.bridge_write)
        wiring.connect(m, arbiter.read, outside.read)
        wiring.connect(m, arbiter.write, outside.write)
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
            m.d.comb += starts.eq(registers.wdata[START] & ~registers.wdata[STOP])
            m.d.sync += running.eq(starts)
        with m.Elif(core.interrupt):
            m.d.sync += running.eq(0)
        with m.If(bridge.answered):
            m.d.sync += self.linked.eq(~self.linked)
        return m

    def _memory(self, m: Module, starts: Value):
        """Connect main memory; return it if it is inside, and the registers with its timing."""
        if self.external is not None:
            return None, {"MEMORY_LATENCY": self.external.latency_cycles}
        if self.chip is None:
            memory = BlockMemory(self.configuration, self.memory_bytes)
            return memory, {"MEMORY_LATENCY": LATENCY_CYCLES}
        memory = SdramController(self.configuration, self.chip, self.clock_hz)
        wiring.connect(m, memory.pins, wiring.flipped(self.sdram))
        # A program starts with a refresh, so that it takes the same cycles each time.
        m.d.comb += memory.restart.eq(starts)
        schedule = memory.schedule
        return memory, {
            "MEMORY_LATENCY": schedule.latency_cycles,
            "MEMORY_BEAT_CYCLES": schedule.beat_cycles,
            "MEMORY_READ_GAP": schedule.read_gap_cycles,
            "MEMORY_WRITE_GAP": schedule.write_gap_cycles,
            "MEMORY_REFRESH": memory.cycles.rfc,
            "MEMORY_REFRESH_INTERVAL": memory.cycles.refi,
        }


class SystemWithChip(wiring.Component):
    """A system with the chip that it needs, for a simulator.

    Parameters
    ----------
    system : System
        With an SDRAM.

    Members
    -------
    As of `System`, without the pins.
    violation : Out(Violation)
        As of `SdramChip`.
    """

    def __init__(self, system: System):
        self.system = system
        members = dict(system.signature.members)
        del members["sdram"]
        super().__init__({**members, "violation": Out(Violation)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.system = system = self.system
        assert system.chip is not None
        m.submodules.chip = chip = SdramChip(system.chip, system.clock_hz)
        m.submodules.pads = pads = SdramPads(system.chip)
        wiring.connect(m, system.sdram, pads.controller)
        wiring.connect(m, pads.chip, chip.pins)
        wiring.connect(m, wiring.flipped(self.received), system.received)
        wiring.connect(m, system.sent, wiring.flipped(self.sent))
        m.d.comb += self.violation.eq(chip.violation)
        m.d.comb += [getattr(self, each).eq(getattr(system, each)) for each in STATE]
        return m


class WiredSystem(wiring.Component):
    """A system behind a serial port, and the host's serial port at the other end of the wires.

    Parameters
    ----------
    system : System or SystemWithChip
    divisor : int
        Cycles of a bit.

    Members
    -------
    As of `System`; the bytes are those of the host's port.
    """

    def __init__(self, system: System | SystemWithChip, divisor: int):
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
        m.d.comb += self.busy.eq(system.busy | board.busy | host.busy)
        passed = self.signature.members.keys() - {"received", "sent", "busy"}
        m.d.comb += [getattr(self, each).eq(getattr(system, each)) for each in sorted(passed)]
        return m

"""A soft CPU in place of the host: PicoRV32 with its program memory, in front of the core.

The CPU's Verilog is not part of this package: add the module `picorv32` to that of a design.
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import memory, wiring

from ...errors import HardwareError
from ...isa.configuration import Configuration
from ..axi import BURST_INCR
from .bridge import driver_members

MODULE = "picorv32"

ARRAY = "program_words"
"""Name of the program memory; a simulator finds it by this name to load a program."""

WORD_BITS = 32
WORD_BYTES = WORD_BITS // 8

PROGRAM_BYTES = 128 * 1024
"""Bytes of program memory, unless another size is given."""

SPACE_BITS = 30
"""Bits of an address within a space; the two bits above them select the space."""

PROGRAM, REGISTERS, MEMORY, LINK = range(4)
"""Codes of the spaces: program memory, the core's registers, main memory, and the link."""


def check_size(program: bytes, program_bytes: int = PROGRAM_BYTES) -> None:
    """Reject a program that does not fit its memory.

    Raises
    ------
    HardwareError
        With both sizes.
    """
    if len(program) > program_bytes:
        raise HardwareError(
            f"program of {len(program)} bytes: expected at most the {program_bytes} bytes of the "
            "CPU's program memory"
        )


class SoftCpu(wiring.Component):
    """An RV32IMC that accesses memory, registers and the link, one word at a time.

    An access of program memory takes two cycles. A read of the link takes a byte, and waits until
    there is one; a write sends its lowest byte. The core's memory is accessed in single beats, and
    a write is over when its response is there, so that the program needs no barriers.

    Parameters
    ----------
    configuration : Configuration
    program : bytes
        Contents of the program memory at power-up, from address 0, where the CPU starts. A reset
        does not restore them.
    program_bytes : int
        Size of the program memory, which also holds the program's data and its stack.

    Members
    -------
    As of `Bridge`, but for:

    answered : Out(1)
        The program took a byte from the link.
    busy : Out(1)
        The CPU runs: it neither waits for a byte nor has met an illegal instruction.

    Raises
    ------
    HardwareError
        As `check_size`.
    """

    def __init__(
        self,
        configuration: Configuration,
        program: bytes = b"",
        program_bytes: int = PROGRAM_BYTES,
    ):
        check_size(program, program_bytes)
        self.configuration = configuration
        self.program, self.program_bytes = program, program_bytes
        super().__init__(driver_members(configuration))

    def elaborate(self, platform) -> Module:
        m = Module()
        valid, ready, trap = Signal(), Signal(), Signal()
        address, strobe = Signal(32), Signal(WORD_BYTES)
        written, shown = Signal(WORD_BITS), Signal(WORD_BITS)
        m.submodules.cpu = Instance(
            MODULE,
            p_ENABLE_FAST_MUL=1,
            p_ENABLE_DIV=1,
            p_BARREL_SHIFTER=1,
            p_COMPRESSED_ISA=1,
            i_clk=ClockSignal(),
            i_resetn=~ResetSignal(),
            o_trap=trap,
            o_mem_valid=valid,
            i_mem_ready=ready,
            o_mem_addr=address,
            o_mem_wdata=written,
            o_mem_wstrb=strobe,
            i_mem_rdata=shown,
            i_pcpi_wr=0,
            i_pcpi_rd=0,
            i_pcpi_wait=0,
            i_pcpi_ready=0,
            i_irq=0,
        )
        m.submodules[ARRAY] = program = memory.Memory(
            shape=WORD_BITS, depth=self.program_bytes // WORD_BYTES, init=_words(self.program)
        )
        fetch, store = program.read_port(), program.write_port(granularity=8)
        place = address[2:SPACE_BITS]
        m.d.comb += [fetch.addr.eq(place), store.addr.eq(place), store.data.eq(written)]
        self._connect(m, address, written, strobe)

        writes, awaits = strobe.any(), Signal()
        m.d.comb += [
            self.busy.eq(~trap & ~awaits),
            self.sent.payload.eq(written),
            self.answered.eq(self.received.valid & self.received.ready),
        ]
        with m.FSM():
            with m.State("Wait"), m.If(valid), m.Switch(address[SPACE_BITS:]):
                with m.Case(PROGRAM):
                    m.d.comb += [fetch.en.eq(1), store.en.eq(strobe)]
                    m.next = "Program"
                for space, name, port in (
                    (REGISTERS, "registers", self.registers),
                    (MEMORY, "memory", self.write),
                ):
                    with m.Case(space):
                        with m.If(writes):
                            m.d.sync += [port.awvalid.eq(1), port.wvalid.eq(1)]
                            m.next = f"Write {name}"
                        with m.Else():
                            m.next = f"Read {name}"
                with m.Case(LINK):
                    m.next = "Link"
            with m.State("Program"):
                m.d.comb += [ready.eq(1), shown.eq(fetch.data)]
                m.next = "Wait"
            with m.State("Link"):
                m.d.comb += [
                    self.sent.valid.eq(writes),
                    self.received.ready.eq(~writes),
                    awaits.eq(~writes & ~self.received.valid),
                    shown.eq(self.received.payload),
                    ready.eq((writes & self.sent.ready) | (~writes & self.received.valid)),
                ]
                with m.If(ready):
                    m.next = "Wait"
            for name, read, write in (
                ("registers", self.registers, self.registers),
                ("memory", self.read, self.write),
            ):
                with m.State(f"Read {name}"):
                    m.d.comb += read.arvalid.eq(1)
                    with m.If(read.arready):
                        m.next = f"Take {name}"
                with m.State(f"Take {name}"):
                    data = read.rdata.word_select(_lane(read.rdata, address), WORD_BITS)
                    m.d.comb += [read.rready.eq(1), ready.eq(read.rvalid), shown.eq(data)]
                    with m.If(read.rvalid):
                        m.next = "Wait"
                with m.State(f"Write {name}"):
                    m.d.comb += [write.bready.eq(1), ready.eq(write.bvalid)]
                    with m.If(write.bvalid):
                        m.next = "Wait"
        return m

    def _connect(self, m: Module, address: Signal, written: Signal, strobe: Signal) -> None:
        """Connect addresses and written data, and let each write be offered until it is taken."""
        registers, write = self.registers, self.write
        lane_bits = (self.configuration.bus_bytes - 1).bit_length()
        beat = Cat(Const(0, lane_bits), address[lane_bits:SPACE_BITS])
        for port, prefix in ((self.read, "ar"), (write, "aw")):
            m.d.comb += [
                getattr(port, f"{prefix}addr").eq(beat),
                getattr(port, f"{prefix}len").eq(0),
                getattr(port, f"{prefix}size").eq(lane_bits),
                getattr(port, f"{prefix}burst").eq(BURST_INCR),
            ]
        m.d.comb += [
            registers.araddr.eq(address),
            registers.awaddr.eq(address),
            registers.wdata.eq(written),
            registers.wstrb.eq(strobe),
            write.wdata.eq(written.replicate(self.configuration.bus_bytes // WORD_BYTES)),
            write.wstrb.eq(strobe << (_lane(write.wdata, address) * WORD_BYTES)),
            write.wlast.eq(1),
        ]
        for port in (registers, write):
            with m.If(port.awready):
                m.d.sync += port.awvalid.eq(0)
            with m.If(port.wready):
                m.d.sync += port.wvalid.eq(0)


def _lane(word: Value, address: Signal):
    """Return the place of the addressed word in one of the port's width."""
    return address[2 : (len(word) // 8 - 1).bit_length()]


def _words(program: bytes) -> list[int]:
    """Return a program as words, the last one filled with zeros."""
    padded = program + bytes(-len(program) % WORD_BYTES)
    return [
        int.from_bytes(padded[at : at + WORD_BYTES], "little")
        for at in range(0, len(padded), WORD_BYTES)
    ]

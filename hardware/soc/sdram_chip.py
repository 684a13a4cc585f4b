"""A strict SDR SDRAM for simulation: it keeps its data, and names the first rule that is broken.

Source: JEDEC JESD21-C, section 3.11.5.
"""

from enum import IntEnum

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.sdram import MODE_CYCLES, STARTUP_REFRESHES, Sdram
from ..ram import Ram
from ..technology import Technology
from .sdram_pins import PRECHARGE_ALL, SdramCommand, sdram_pins
from .simulated_ram import SimulatedRam

POSTPONED_REFRESHES = 8
"""Refreshes that may be late at a time."""

ABSENT = 0xA5
"""Each byte of the data pins while the chip does not drive them."""


class Violation(IntEnum):
    """A rule that the controller broke; `SENTENCES` explains it."""

    NONE = 0
    STARTUP = 1
    UNPREPARED = 2
    MODE = 3
    RCD = 4
    RP = 5
    RC = 6
    RAS = 7
    WR = 8
    RRD = 9
    RFC = 10
    MRD = 11
    CLOSED_BANK = 12
    OPEN_BANK = 13
    COLLISION = 14
    NO_DATA = 15
    REFRESH = 16
    UNKNOWN = 17


SENTENCES = {
    Violation.STARTUP: "a command came before the chip had started up",
    Violation.UNPREPARED: "the chip was used before all banks were closed, it was refreshed "
    f"{STARTUP_REFRESHES} times, and its mode was set",
    Violation.MODE: "the mode register does not select single words and the chip's CAS latency",
    Violation.RCD: "a column was accessed before tRCD after the activation",
    Violation.RP: "a command came before tRP after the precharge",
    Violation.RC: "a bank was activated before tRC after its activation",
    Violation.RAS: "a bank was closed before tRAS after its activation",
    Violation.WR: "a bank was closed before tWR after its last write",
    Violation.RRD: "a bank was activated before tRRD after another one",
    Violation.RFC: "a command came before tRFC after the refresh",
    Violation.MRD: "a command came too early after the mode was set",
    Violation.CLOSED_BANK: "a column of a closed bank was accessed",
    Violation.OPEN_BANK: "a bank was open that had to be closed",
    Violation.COLLISION: "controller and chip drove the data pins in the same cycle",
    Violation.NO_DATA: "a write came without data",
    Violation.REFRESH: f"more than {POSTPONED_REFRESHES} refreshes are missing",
    Violation.UNKNOWN: "a command came that no controller of single words needs",
}


class SdramChip(wiring.Component):
    """Act as an SDRAM, and watch its rules.

    Parameters
    ----------
    sdram : Sdram
    clock_hz : int

    Members
    -------
    pins : In(sdram_pins)
    violation : Out(Violation)
        The first rule that was broken; it stays until a reset.
    """

    def __init__(self, sdram: Sdram, clock_hz: int):
        self.sdram, self.cycles = sdram, sdram.at(clock_hz)
        super().__init__({"pins": In(sdram_pins(sdram)), "violation": Out(Violation)})

    def elaborate(self, platform) -> Module:
        m = Module()
        pins, sdram, cycles = self.pins, self.sdram, self.cycles
        selected = pins.cke & ~pins.cs_n
        given = {each: selected & (pins.command == each) for each in SdramCommand}
        all_banks = pins.address[PRECHARGE_ALL]
        opened, rows = Signal(1 << sdram.bank_bits), []
        addressed = [pins.bank == bank for bank in range(1 << sdram.bank_bits)]
        broken: list[tuple[Value, Violation]] = []

        def since(name: str, event: Value, cycles: int) -> Value:
            """Return whether fewer than `cycles` cycles have passed since the event."""
            count = Signal(range(cycles + 1), init=cycles, name=f"since_{name}")
            with m.If(event):
                m.d.sync += count.eq(1)
            with m.Elif(count != cycles):
                m.d.sync += count.eq(count + 1)
            return count < cycles

        early = Signal()
        any_command = selected & (pins.command != SdramCommand.NOTHING)
        m.d.comb += early.eq(self._starting(m))
        broken.append((any_command & early, Violation.STARTUP))
        refreshing = since("refresh", given[SdramCommand.REFRESH], cycles.rfc)
        setting = since("mode", given[SdramCommand.MODE], MODE_CYCLES)
        activated = since("activation", given[SdramCommand.ACTIVATE], cycles.rrd)
        closing = []
        for bank, here in enumerate(addressed):
            row = Signal(sdram.row_bits, name=f"row_{bank}")
            rows.append(row)
            activates = given[SdramCommand.ACTIVATE] & here
            closes = given[SdramCommand.PRECHARGE] & (here | all_banks) & opened[bank]
            column = (given[SdramCommand.READ] | given[SdramCommand.WRITE]) & here
            since_precharge = since(f"precharge_{bank}", closes, cycles.rp)
            closing.append(since_precharge)
            with m.If(activates):
                m.d.sync += [opened[bank].eq(1), row.eq(pins.address)]
            with m.If(closes):
                m.d.sync += opened[bank].eq(0)
            writes = given[SdramCommand.WRITE] & here
            broken += [
                (activates & opened[bank], Violation.OPEN_BANK),
                (activates & since_precharge, Violation.RP),
                (activates & since(f"cycle_{bank}", activates, cycles.rc), Violation.RC),
                (column & ~opened[bank], Violation.CLOSED_BANK),
                (column & since(f"row_{bank}", activates, cycles.rcd), Violation.RCD),
                (closes & since(f"active_{bank}", activates, cycles.ras), Violation.RAS),
                (closes & since(f"write_{bank}", writes, cycles.wr), Violation.WR),
            ]
        quiet = given[SdramCommand.REFRESH] | given[SdramCommand.MODE]
        starting = quiet | given[SdramCommand.ACTIVATE]
        broken += [
            (given[SdramCommand.ACTIVATE] & activated, Violation.RRD),
            (starting & refreshing, Violation.RFC),
            (any_command & setting, Violation.MRD),
            (quiet & opened.any(), Violation.OPEN_BANK),
            (quiet & Cat(closing).any(), Violation.RP),
            (given[SdramCommand.STOP], Violation.UNKNOWN),
        ]
        ready = self._prepare(m, given, all_banks, broken)
        self._refresh(m, ready, given[SdramCommand.REFRESH], broken)
        self._move(m, given, Array(rows)[pins.bank], platform, broken)
        with m.If(self.violation == Violation.NONE):
            for condition, violation in reversed(broken):
                with m.If(condition):
                    m.d.sync += self.violation.eq(violation)
        return m

    def _starting(self, m: Module) -> Value:
        left = Signal(range(self.cycles.startup + 1), init=self.cycles.startup)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        return left != 0

    def _prepare(self, m: Module, given: dict, all_banks: Value, broken: list) -> Value:
        """Watch the sequence after power-up; return whether it is complete."""
        closed, ready = Signal(), Signal()
        refreshes = Signal(range(STARTUP_REFRESHES + 1))
        enough = refreshes == STARTUP_REFRESHES
        with m.If(given[SdramCommand.PRECHARGE] & all_banks):
            m.d.sync += closed.eq(1)
        with m.If(given[SdramCommand.REFRESH] & ~enough):
            m.d.sync += refreshes.eq(refreshes + 1)
        with m.If(given[SdramCommand.MODE]):
            m.d.sync += ready.eq(1)
        access = given[SdramCommand.ACTIVATE] | given[SdramCommand.READ] | given[SdramCommand.WRITE]
        unprepared = (access & ~ready) | (given[SdramCommand.REFRESH] & ~closed)
        unprepared |= given[SdramCommand.MODE] & ~(closed & enough)
        mode = self.pins.address[:PRECHARGE_ALL] != self.cycles.cas << 4
        broken += [
            (unprepared, Violation.UNPREPARED),
            (given[SdramCommand.MODE] & mode, Violation.MODE),
        ]
        return ready

    def _refresh(self, m: Module, ready: Value, refreshed: Value, broken: list) -> None:
        """Count the refreshes that are missing."""
        timer = Signal(range(self.cycles.refi), init=self.cycles.refi - 1)
        missing = Signal(range(POSTPONED_REFRESHES + 2))
        passes = ready & (timer == 0) & (missing <= POSTPONED_REFRESHES)
        m.d.sync += [
            timer.eq(Mux(timer == 0, self.cycles.refi - 1, timer - 1)),
            missing.eq(missing + passes - (refreshed & (missing != 0))),
        ]
        broken.append((missing > POSTPONED_REFRESHES, Violation.REFRESH))

    def _move(self, m: Module, given: dict, row: Value, platform, broken: list) -> None:
        """Read and write words, and watch who drives the data pins."""
        pins, sdram = self.pins, self.sdram
        depth = sdram.size_bytes * 8 // sdram.data_bits
        if platform is Technology.SIMULATION:
            ram = SimulatedRam(depth, sdram.data_bits)
        else:
            ram = Ram(depth, sdram.data_bits, granularity=8)
        m.submodules.words = ram
        place = Cat(pins.address[: sdram.column_bits], pins.bank, row)
        reads, writes = given[SdramCommand.READ], given[SdramCommand.WRITE]
        m.d.comb += [
            ram.read_enable.eq(reads),
            ram.read_address.eq(place),
            ram.write_enable.eq(Mux(writes, ~pins.mask if sdram.has_masks else -1, 0)),
            ram.write_address.eq(place),
            ram.write_data.eq(pins.written),
        ]
        driving = Signal(self.cycles.cas)
        m.d.sync += driving.eq(Cat(reads, driving))
        word = ram.read_data
        for step in range(2, self.cycles.cas):
            later = Signal(sdram.data_bits, name=f"word_{step}")
            m.d.sync += later.eq(word)
            word = later
        absent = int.from_bytes(bytes([ABSENT]) * (sdram.data_bits // 8), "little")
        m.d.comb += pins.read.eq(Mux(driving[-1], word, absent))
        broken += [
            (pins.drives & driving[-1], Violation.COLLISION),
            (writes & ~pins.drives, Violation.NO_DATA),
        ]

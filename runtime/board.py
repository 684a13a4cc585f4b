"""A board, real or virtual, as a device: `serial://` and `tcp://`.

The board keeps what it was sent. A program and the constants of its data window are sent once;
later runs send the bytes that differ from those on the board, and read back those that the program
stores. Scratchpads are cleared by a program before each run. When the board was reset or unplugged,
everything is sent again and the run repeated. Now and then, the results are compared with `sim`.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from typing_extensions import override

from ..errors import DeviceError
from ..isa.clearing import clearing_program
from ..isa.configuration import CONTRACT_VERSION, Configuration, Memory
from ..isa.configuration_rules import PAGE_BYTES
from ..isa.footprints import footprint, intervals
from ..isa.instructions import Instruction, Unit
from ..isa.link import (
    BOARD_OFFSETS,
    BOARD_SPACE_BYTES,
    LINK_MAGIC,
    LINK_VERSION,
    Command,
)
from ..isa.memory_model import MemoryModel, SharedBus
from ..isa.registers import (
    MAGIC,
    OFFSETS,
    REGISTER_SPACE_BYTES,
    Error,
    counter_registers,
)
from ..quoting import shell_word
from ..sim.explain_hang import explain_hang
from ..sim.timing import Timer, Timing
from .device import Device, LoadedProgram, OtherConfigurationError, Result
from .known_machines import machine_of
from .link import Connection, Link
from .spot_checks import SpotChecks
from .transports import Address, LinkBrokenError, reopen

BUSY, DONE, ERROR = 1, 2, 4
"""Bits of `STATUS`."""

START, STOP = 1, 2
"""Bits of `CONTROL`."""

GAP_BYTES = 24
"""Two ranges at most this many bytes apart are moved as one, which is cheaper than two requests."""

RECOVERIES = 3
"""Times that a run is repeated because the board was reset or unplugged."""

RECONNECTING_S = 10.0

CHECKED_BYTES = 256
"""Bytes of a block that the check of an SDRAM writes."""

HANG_CYCLES = 100_000
"""Cycles beyond the longest expected ones after which a run counts as hanging."""

HANG_S = 600.0
"""Seconds on the host's clock after which a run counts as hanging, beside those of its cycles."""

SLOWEST_HZ = 10_000
"""Cycles a second of the slowest board, a simulated one on a busy computer."""

STANDSTILL_S = 60.0
"""Seconds after which a run counts as hanging whose cycle counter stands still."""

STOPPING_POLLS = 100
"""Reads of `STATUS` until a stopped core has to be idle."""

MIN_POLL_S, MAX_POLL_S = 0.0005, 0.05


class BoardResetError(DeviceError):
    """The board was reset: memory and registers may have lost their contents."""


@dataclass(slots=True)
class Resident:
    """A program on the board.

    Parameters
    ----------
    program_base, data_base : int
        Byte addresses.
    window : ndarray or None
        uint8[bytes]: the data window as the board has it; None if it has not been sent.
    stored : list
        Ranges of the data window that the program stores, (start, end).
    """

    program_base: int
    data_base: int
    window: np.ndarray | None
    stored: list[tuple[int, int]]


class BoardDevice(Device):
    """A board that is reached over a link; its name is its address.

    Cycles and counters are those of the hardware. Starts and retirements of instructions are those
    of the exact model, if all cycles and counters agree with it.

    Parameters
    ----------
    configuration : Configuration
        The configuration that the board must have.
    address : str
        `serial://` or `tcp://`; see `transports.Address`.

    Raises
    ------
    DeviceError
        If there is no board, it does not answer, or it has another configuration.
    """

    longest_run = 2
    """A run may take this many times its expected cycles."""

    def __init__(self, configuration: Configuration, address: str) -> None:
        super().__init__(configuration, MemoryModel())
        self.name = self._address = address
        self._clearing = LoadedProgram(clearing_program(configuration), configuration)
        self._timings: WeakKeyDictionary[LoadedProgram, Timing] = WeakKeyDictionary()
        self._checks = SpotChecks(configuration, address)
        self._link = self._connect()
        self._forget()
        try:
            self._identify()
        except DeviceError:
            self.close()
            raise

    def _connect(self) -> Connection:
        return Link(Address.parse(self._address).open(), secrets.randbits(16))

    @override
    def _close(self) -> None:
        self._link.close()

    @property
    def checked_runs(self) -> int:
        """Runs whose results were compared with those of `sim`."""
        return self._checks.count

    @property
    def resent(self) -> int:
        """Requests that had to be sent again since the connection was made."""
        return self._link.resent

    def scratchpads(self) -> dict[Memory, np.ndarray]:
        """A board's scratchpads cannot be read.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError(f"device `{self.name}`: scratchpads cannot be read; store them")

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        for recovery in range(RECOVERIES + 1):
            try:
                if not self._session:
                    self._identify()
                return self._run_once(program, dram)
            except DeviceError as problem:
                # What the board has now is not known.
                self._forget()
                if isinstance(problem, LinkBrokenError):
                    self._link.close()
                    if recovery < RECOVERIES:
                        transport = reopen(Address.parse(self._address), RECONNECTING_S)
                        self._link = Link(transport, secrets.randbits(16))
                        continue
                if not isinstance(problem, BoardResetError) or recovery == RECOVERIES:
                    raise
        raise AssertionError("the last recovery returns or raises")

    # Connection ------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Take nothing for granted that was sent."""
        self._residents: dict[LoadedProgram, Resident] = {}
        self._free = 0
        self._session = 0

    def _identify(self) -> None:
        """Check what the board is, and begin a session."""
        board = self._registers(REGISTER_SPACE_BYTES, BOARD_SPACE_BYTES)
        core = self._registers(0, OFFSETS["CONTROL"])
        found = {name: board[offset] for name, offset in BOARD_OFFSETS.items()}
        expected = self.configuration
        if found["LINK_ID"] != LINK_MAGIC or core[OFFSETS["ID"]] != MAGIC:
            raise DeviceError(
                f"device `{self.name}`: it answers, but it is not a board of Tilewright's; correct "
                "the address"
            )
        for what, got, wanted in (
            ("link", found["LINK_VERSION"], LINK_VERSION),
            ("contract", core[OFFSETS["VERSION"]], CONTRACT_VERSION),
        ):
            if got != wanted:
                raise DeviceError(
                    f"device `{self.name}`: the board's {what} has version {got}, expected "
                    f"{wanted}; build its bitstream again with this release"
                )
        configuration = core[OFFSETS["CONFIGURATION"]]
        if configuration != expected.hash:
            known = machine_of(configuration)
            other = f"`{known.name}`" if known else "one unknown here"
            raise OtherConfigurationError(
                f"device `{self.name}`: expected configuration `{expected.name}` "
                f"({expected.hash:#010x}), got a board with {other} ({configuration:#010x}); "
                "load the bitstream of that configuration, or choose the board's with "
                f"`--config {shell_word(known.name) if known else 'FILE.json'}`",
                configuration,
            )
        self.memory_bytes, self.clock_hz = found["MEMORY_BYTES"], found["CLOCK_HZ"]
        memory = _memory_model(found)
        if memory != self.memory:
            self.memory = memory
            self._timings.clear()
        # A program of an earlier connection may still run, and would write into what is sent now.
        self._stop()
        if not found["SESSION"] and self.memory.bus:
            self._check_memory()
        self._session = secrets.randbits(31) + 1
        self._link.write_register(BOARD_OFFSETS["SESSION"], self._session)

    def _registers(self, first: int, length: int) -> dict[int, int]:
        """Read registers by offset."""
        data = self._link.read(Command.READ_REGISTERS, first, length)
        words = np.frombuffer(data, "<u4")
        return {first + 4 * index: int(word) for index, word in enumerate(words)}

    def _register(self, name: str) -> int:
        return self._registers(OFFSETS[name], 4)[OFFSETS[name]]

    def _check_session(self) -> None:
        """Refuse to go on with a board that was reset.

        Raises
        ------
        BoardResetError
            If it was.
        """
        place = BOARD_OFFSETS["SESSION"]
        if self._registers(place, 4)[place] != self._session:
            raise BoardResetError(
                f"device `{self.name}`: the board was reset during the run, {RECOVERIES} times in "
                "a row; check its power supply"
            )

    # Memory ----------------------------------------------------------------------------------

    def _check_memory(self) -> None:
        """Test an SDRAM after a reset, while it holds nothing that is needed.

        A block behind each address line finds lines that stick.

        Raises
        ------
        DeviceError
            If a byte differs.
        """
        lines = range((CHECKED_BYTES - 1).bit_length(), (self.memory_bytes - 1).bit_length())
        blocks = {
            place: secrets.token_bytes(CHECKED_BYTES) for place in (0, *(1 << bit for bit in lines))
        }
        for place, block in blocks.items():
            self._link.write_memory(place, block)
        wrong = [
            place
            for place, block in blocks.items()
            if self._link.read(Command.READ_MEMORY, place, CHECKED_BYTES) != block
        ]
        if wrong:
            raise DeviceError(
                f"device `{self.name}`: main memory gives other bytes than were written, at "
                f"{len(wrong)} of {len(blocks)} places, first at {wrong[0]:#x}; build the "
                "bitstream for a lower `--clock`, or check the board"
            )

    def _place(self, program: LoadedProgram, data_bytes: int) -> Resident:
        """Return where a program lies, and send it if it is not there."""
        resident = self._residents.get(program)
        if resident is not None and (resident.window is None or resident.window.size == data_bytes):
            return resident
        needed = _pages(data_bytes) + _pages(len(program.words))
        if needed + _pages(len(self._clearing.words)) > self.memory_bytes:
            raise DeviceError(
                f"device `{self.name}`: data window of {data_bytes:,} bytes and program of "
                f"{len(program.words):,} bytes do not fit the board's {self.memory_bytes:,} bytes "
                "of memory; use a smaller model or a board with more"
            )
        if self._free + needed > self.memory_bytes:
            self._residents.clear()
            self._free = 0
            self._place(self._clearing, 0)
        data_base = self._free
        program_base = data_base + _pages(data_bytes)
        self._free += needed
        self._link.write_memory(program_base, program.words)
        stored = stored_ranges(program.instructions, self.configuration, data_bytes)
        resident = Resident(program_base, data_base, None, stored)
        self._residents[program] = resident
        return resident

    def _send_window(self, resident: Resident, dram: np.ndarray) -> None:
        """Send the bytes that the board does not have."""
        if resident.window is None:
            ranges = [(0, dram.size)]
            resident.window = np.empty_like(dram)
        else:
            ranges = joined_ranges(resident.window != dram)
        for start, end in ranges:
            self._link.write_memory(resident.data_base + start, dram[start:end].tobytes())
            resident.window[start:end] = dram[start:end]

    def _read_back(self, resident: Resident) -> None:
        assert resident.window is not None
        for start, end in resident.stored:
            data = self._link.read(Command.READ_MEMORY, resident.data_base + start, end - start)
            resident.window[start:end] = np.frombuffer(data, np.uint8)

    # Runs ------------------------------------------------------------------------------------

    def _run_once(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        """Run a program; `dram` changes at the end alone, so that a failed run can be repeated."""
        started = time.monotonic()
        self._check_session()
        self._place(self._clearing, 0)
        resident = self._place(program, dram.size)
        self._send_window(resident, dram)
        assert resident.window is not None
        self._execute(self._clearing, self._residents[self._clearing], 0)
        timing = self._execute(program, resident, dram.size)
        registers = self._registers(0, REGISTER_SPACE_BYTES)
        self._read_back(resident)
        self._check_session()
        self._checks.add_run(time.monotonic() - started)
        if self._checks.is_due(program):
            self._checks.check(program, dram.copy(), resident.window, resident.stored)
        dram[:] = resident.window
        return self._result(registers, timing, dram)

    def _execute(self, program: LoadedProgram, resident: Resident, data_bytes: int) -> Timing:
        """Run a program that is on the board, with its data, to its end."""
        timing = self._timing(program)
        self._stop()
        for name, value in (
            ("PROGRAM_BASE", resident.program_base),
            ("PROGRAM_BYTES", len(program.words)),
            ("DATA_BASE", resident.data_base),
            ("DATA_BYTES", data_bytes),
        ):
            self._link.write_register(OFFSETS[name], value)
        # STOP has cleared `STATUS`, and START sets a bit of it for good. So a start whose answer
        # was lost is recognised, and never repeated.
        while not self._link.write_once(OFFSETS["CONTROL"], START):
            if self._register("STATUS") & (BUSY | DONE | ERROR):
                break
        self._wait(program, timing)
        return timing

    def _stop(self) -> None:
        """Stop the core, and clear its status and queues."""
        self._link.write_register(OFFSETS["CONTROL"], STOP)
        for _ in range(STOPPING_POLLS):
            if not self._register("STATUS") & BUSY:
                return
        raise DeviceError(f"device `{self.name}`: the core does not stop; reset the board")

    def _wait(self, program: LoadedProgram, timing: Timing) -> None:
        """Wait for the end of a run.

        Raises
        ------
        DeviceError
            If the run failed or hangs.
        """
        limit_cycles = HANG_CYCLES + self.longest_run * timing.cycles
        deadline = time.monotonic() + HANG_S + limit_cycles / SLOWEST_HZ
        pause = MIN_POLL_S
        cycles, moved = -1, time.monotonic()
        counts = bool(counter_registers(self.configuration.counters))
        while True:
            registers = self._registers(
                OFFSETS["STATUS"], OFFSETS["CYCLES_HIGH"] + 4 - OFFSETS["STATUS"]
            )
            status = registers[OFFSETS["STATUS"]]
            if not status & (BUSY | DONE):
                self._check_session()
            if status & ERROR:
                code = status >> 4 & 15
                name = Error(code).name if code in tuple(Error) else str(code)
                raise DeviceError(
                    f"device `{self.name}`: the core stopped with error `{name}`; check the "
                    "program with the static checker"
                )
            if status & DONE:
                return
            now = time.monotonic()
            if _cycles(registers) != cycles:
                cycles, moved = _cycles(registers), now
            # What the board says is no reason to wait for ever.
            stands = counts and now > moved + STANDSTILL_S
            if (counts and cycles > limit_cycles) or stands or now > deadline:
                registers = self._registers(0, REGISTER_SPACE_BYTES)
                raise DeviceError(
                    f"device `{self.name}`: hang, not done after {_cycles(registers):,} cycles, "
                    f"expected {timing.cycles:,}; {self._explain(registers, program)}"
                )
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL_S)

    def _explain(self, registers: dict[int, int], program: LoadedProgram) -> str:
        def read(name: str) -> int:
            return registers[OFFSETS[name]]

        done = {unit: read(f"{unit.name}_INSTRUCTIONS") for unit in Unit}
        counts = {unit: (count, count) for unit, count in done.items()}
        return explain_hang(read, counts, program.instructions)

    def _timing(self, program: LoadedProgram) -> Timing:
        """The exact model's times with the board's memory; computed once per program."""
        if program not in self._timings:
            timer = Timer(program.instructions, self.configuration, program.words)
            self._timings[program] = timer.run(self.memory)
        return self._timings[program]

    def _result(self, registers: dict[int, int], timing: Timing, dram: np.ndarray) -> Result:
        names = counter_registers(self.configuration.counters)
        counters = {name: registers[OFFSETS[name]] for name in names}
        timed = bool(counters)
        counters.pop("CYCLES_LOW", None)
        counters.pop("CYCLES_HIGH", None)
        cycles = _cycles(registers) if timed else None
        agrees = cycles == timing.cycles and counters == timing.counters
        return Result(
            device=self.name,
            dram=dram,
            cycles=cycles,
            exact=timed,
            spans=timing.spans if agrees else None,
            counters=counters,
        )


def _cycles(registers: dict[int, int]) -> int:
    return registers[OFFSETS["CYCLES_LOW"]] | registers[OFFSETS["CYCLES_HIGH"]] << 32


def _pages(size: int) -> int:
    """Bytes of the pages that a range takes."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def stored_ranges(
    program: tuple[Instruction, ...], configuration: Configuration, data_bytes: int
) -> list[tuple[int, int]]:
    """Return the ranges of the data window that a program may store to, in order, (start, end)."""
    edges = np.zeros(data_bytes + 1, dtype=np.int32)
    for instruction in program:
        for place in footprint(instruction, configuration).written_regions:
            if place.memory is Memory.DRAM:
                whole = np.array([0]), np.array([place.high - place.low + 1])
                starts, ends = intervals(place.shape) or whole
                np.add.at(edges, place.low + starts, 1)
                np.add.at(edges, place.low + ends, -1)
    return joined_ranges(np.cumsum(edges[:-1]) > 0)


def joined_ranges(marked: np.ndarray) -> list[tuple[int, int]]:
    """Return ranges, (start, end), that hold all marked bytes; small gaps are part of a range."""
    places = np.flatnonzero(marked)
    if not places.size:
        return []
    breaks = np.flatnonzero(np.diff(places) > GAP_BYTES)
    starts = places[np.concatenate([[0], breaks + 1])]
    ends = places[np.concatenate([breaks, [places.size - 1]])] + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def _memory_model(found: Mapping[str, int]) -> MemoryModel:
    """The main memory that the board's registers describe."""
    latency, beat = found["MEMORY_LATENCY"], found["MEMORY_BEAT_CYCLES"]
    if not beat:
        return MemoryModel(latency_cycles=latency)
    bus = SharedBus(
        read_gap_cycles=found["MEMORY_READ_GAP"],
        write_gap_cycles=found["MEMORY_WRITE_GAP"],
        refresh_cycles=found["MEMORY_REFRESH"],
        refresh_interval_cycles=found["MEMORY_REFRESH_INTERVAL"],
    )
    return MemoryModel(latency_cycles=latency, cycles=beat, bus=bus)

"""The Verilated core behind a device interface: registers, runs, scratchpads, waveforms.

A run follows the steps of a driver: write addresses to registers, start, wait for the interrupt,
read the status and the counters. The C++ harness simulates all cycles; Python regains control every
few million cycles so that a user can interrupt.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DeviceError, HardwareError
from ..isa.configuration import Configuration, Memory
from ..isa.configuration_rules import PAGE_BYTES
from ..isa.encoding import word_bytes
from ..isa.instructions import Halt, Instruction, Sync, Unit
from ..isa.memory_model import MemoryModel
from ..isa.registers import OFFSETS, Error, counter_registers
from .explain_hang import explain_hang
from .hardware_sources import keep_verilog
from .harness import INTERRUPTED, SILENT, VIOLATED, Harness
from .scratchpad_arrays import ScratchpadArrays
from .verilate import build_library, runtime_in_background

TOP = "core"
"""Top module of the generated Verilog."""

INTERRUPT_CYCLES = 3
"""From the write of the start bit to FETCH's start, and from done to the interrupt's detection."""

SLICE_CYCLES = 4_000_000
"""Cycles between two checks for an interrupt by the user: a few seconds."""

SILENCE_CYCLES = 20_000
"""Cycles without event or beat, beyond the longest instruction, that count as a hang."""

BUSY, DONE, ERROR = 1, 2, 4
START, STOP = 1, 2


@dataclass(frozen=True, slots=True)
class RtlRun:
    """Results of a finished run.

    Parameters
    ----------
    cycles
        From start to done, as the core counts them.
    counters
        Every performance counter by register name, `FETCHED` too.
    starts, retirements
        Per unit, int64[instructions]: cycles since the start, in program order.
    """

    cycles: int
    counters: dict[str, int]
    starts: dict[Unit, np.ndarray]
    retirements: dict[Unit, np.ndarray]

    def spans(self, program: Sequence[Instruction]) -> np.ndarray:
        """Start and retirement of every instruction, int64[instructions, 2]; -1 for HALT."""
        spans = np.full((len(program), 2), -1, dtype=np.int64)
        units = np.array([-1 if i.home is None else i.home for i in program], dtype=np.int64)
        for unit in Unit:
            places = np.flatnonzero(units == unit)[: self.retirements[unit].size]
            spans[places, 0] = self.starts[unit][: places.size]
            spans[places, 1] = self.retirements[unit]
        return spans


def build_core(configuration: Configuration, *, traced: bool = False) -> Path:
    """The shared library of a configuration; built unless it is in the cache.

    Raises
    ------
    ToolError
        When Verilator or the compiler is missing or fails.
    """
    constants = harness_constants(configuration)
    label = f"configuration `{configuration.name}`" + (" with waveforms" if traced else "")
    with runtime_in_background(traced=traced):
        verilog = core_verilog(configuration)
    return build_library(verilog, TOP, constants, label, traced=traced)


def harness_constants(configuration: Configuration) -> dict[str, int]:
    """Return the constants of a core that the harness needs, for `build_library`."""
    return {
        "BUS_BYTES": configuration.bus_bytes,
        "BURST_BYTES": configuration.burst_bytes,
        "CONTROL_OFFSET": OFFSETS["CONTROL"],
    }


def core_verilog(configuration: Configuration) -> str:
    """Verilog of a configuration; generated again only when a hardware source has changed."""

    def generate() -> str:
        # Imported here: a cached core needs no hardware description language.
        from ..hardware.verilog import generate_verilog

        return generate_verilog(configuration)

    return keep_verilog(configuration, (), f"configuration `{configuration.name}`", generate)


class RtlCore:
    """A configuration's hardware, ready to run programs.

    Every run starts with zeroed scratchpads, like the definition; the caller owns main memory.

    Parameters
    ----------
    configuration
        The machine.
    memory
        Behaviour of main memory; its random draws restart with every run.
    trace
        Path for an FST waveform of all signals.
    max_cycles
        Stop a run after this many cycles.
    library
        A simulator of the same core made from other Verilog, such as its netlist. Its scratchpads
        cannot be read, and a run begins with what the one before left in them, unless `power_up`
        comes between.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory: MemoryModel | None = None,
        *,
        trace: Path | str | None = None,
        max_cycles: int = 1 << 40,
        library: Path | None = None,
    ) -> None:
        self.configuration = configuration
        self.memory = memory or MemoryModel()
        self.max_cycles = max_cycles
        if trace is not None and not os.path.isdir(Path(trace).absolute().parent):
            raise DeviceError(f"rtl: waveform `{trace}`: its folder does not exist; create it")
        built = library or build_core(configuration, traced=trace is not None)
        self._library = built
        self.harness = Harness(built, self.memory)
        if trace is not None:
            self.harness.open_trace(Path(trace))
        self._scratchpads = (
            ScratchpadArrays(configuration, self.harness.arrays()) if library is None else None
        )
        found = self.harness.read("CONFIGURATION")
        if found != configuration.hash:
            raise HardwareError(
                f"configuration `{configuration.name}`: the core's hash is {found:#010x}, "
                f"expected {configuration.hash:#010x}"
            )

    def close(self) -> None:
        """Finish the waveform and free the simulator."""
        self.harness.close()

    def power_up(self) -> None:
        """Replace a simulator made from other Verilog by a new one, whose memories are zero."""
        assert self._scratchpads is None
        self.harness.close()
        self.harness = Harness(self._library, self.memory)

    def scratchpads(self) -> dict[Memory, np.ndarray]:
        """A copy of every scratchpad, uint8[bytes], in the layout of `isa.semantics.Machine`.

        Raises
        ------
        DeviceError
            When the core was made from another library.
        """
        if self._scratchpads is None:
            raise DeviceError("rtl: the scratchpads of this simulator cannot be read; store them")
        return self._scratchpads.read()

    def run(self, code: bytes, dram: np.ndarray, program: Sequence[Instruction] = ()) -> RtlRun:
        """Run a program to its end.

        Parameters
        ----------
        code
            The encoded program.
        dram
            uint8[bytes]: the data window. Changed in place.
        program
            The same program decoded; it limits how long the core may be silent, and names
            instructions in messages.

        Raises
        ------
        DeviceError
            When the core hangs, reports an error, or breaks a rule of its ports or an assertion.
        """
        harness = self.harness
        words = np.frombuffer(code, dtype=np.uint8)
        bases = self._place(len(code), dram.size)
        harness.map(0, bases["PROGRAM_BASE"], words, writable=False)
        harness.map(1, bases["DATA_BASE"], dram, writable=True)
        harness.set_memory(self.memory)
        harness.write("CONTROL", STOP)
        if self._scratchpads is not None:
            self._scratchpads.clear()
        for register, value in bases.items():
            harness.write(register, value)
        harness.start()
        done = self._finish(program)
        return self._collect(done)

    def _place(self, program_bytes: int, data_bytes: int) -> dict[str, int]:
        """Program and data in main memory, each with its first page to itself."""
        data_base = PAGE_BYTES
        program_base = -(-(data_base + data_bytes) // PAGE_BYTES) * PAGE_BYTES
        space = 1 << self.configuration.address_bits
        if program_base + program_bytes > space:
            raise DeviceError(
                f"rtl: data window of {data_bytes} bytes and program of {program_bytes} bytes do "
                f"not fit the {space} bytes that `address_bits` = "
                f"{self.configuration.address_bits} reaches; use a smaller model or raise it"
            )
        return {
            "PROGRAM_BASE": program_base,
            "PROGRAM_BYTES": program_bytes,
            "DATA_BASE": data_base,
            "DATA_BYTES": data_bytes,
        }

    def _finish(self, program: Sequence[Instruction]) -> int:
        """Run until the end; return the cycle of the interrupt."""
        silence = self._silence_cycles(program)
        harness = self.harness
        while True:
            left = self.max_cycles - harness.cycles
            outcome = harness.run(min(SLICE_CYCLES, max(left, 1)), silence)
            if outcome == VIOLATED:
                raise DeviceError(
                    f"rtl: the core broke a rule after {harness.cycles} cycles: {harness.violation}"
                )
            if outcome == SILENT:
                since = f"no event and no beat for {silence} cycles"
                raise DeviceError(f"rtl: hang, {since}; {self._explain(program)}")
            if outcome == INTERRUPTED:
                break
            if harness.cycles >= self.max_cycles:
                raise DeviceError(
                    f"rtl: not done after `max_cycles` = {self.max_cycles} cycles; "
                    f"{self._explain(program)}"
                )
        done = harness.cycles
        status = harness.read("STATUS")
        if status & ERROR:
            raise DeviceError(self._describe_error(status, program))
        return done

    def _silence_cycles(self, program: Sequence[Instruction]) -> int:
        """Maximum cycles between two events of a core that works."""
        longest = 0
        for instruction in program:
            if not isinstance(instruction, Sync | Halt):
                lanes = self.configuration.lanes_in if instruction.unit is Unit.GEMM else 1
                longest = max(longest, instruction.steps() * lanes)
        slowest_beat = self.memory.cycles / (1 - self.memory.stall_probability)
        waiting = self.memory.latency_cycles + self.configuration.burst_beats * slowest_beat
        return SILENCE_CYCLES + 2 * longest + 16 * round(waiting)

    def _explain(self, program: Sequence[Instruction]) -> str:
        harness = self.harness
        counts = {
            unit: (
                harness.events(unit, retirements=False).size,
                harness.events(unit, retirements=True).size,
            )
            for unit in Unit
        }
        return explain_hang(harness.read, counts, program)

    def _describe_error(self, status: int, program: Sequence[Instruction]) -> str:
        code = status >> 4 & 15
        name = Error(code).name if code in tuple(Error) else str(code)
        size = word_bytes(self.configuration)
        return (
            f"rtl: the core stopped with error `{name}` after {self.harness.cycles} cycles"
            f"{self._dispatched(program)} (words of {size} bytes); check the program with the "
            "static checker"
        )

    def _dispatched(self, program: Sequence[Instruction]) -> str:
        if "FETCHED" not in counter_registers(self.configuration.counters):
            return ""
        count = self.harness.read("FETCHED")
        return f" and {count} of {len(program) or '?'} instructions dispatched"

    def _collect(self, done: int) -> RtlRun:
        harness = self.harness
        values = {
            name: harness.read(name) for name in counter_registers(self.configuration.counters)
        }
        # A machine without counters is timed from outside.
        low = values.pop("CYCLES_LOW", done - INTERRUPT_CYCLES)
        cycles = low | values.pop("CYCLES_HIGH", 0) << 32
        return RtlRun(
            cycles,
            values,
            {unit: harness.events(unit, retirements=False) for unit in Unit},
            {unit: harness.events(unit, retirements=True) for unit in Unit},
        )

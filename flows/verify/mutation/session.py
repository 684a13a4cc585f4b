"""One core under test with a chosen fault, and observations of it.

A stimulus is a generator of observations, which are the same for every core. The first one that
differs from the core without faults ends the run. On the core without faults, the stimuli also
compare memories with the *definition*.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....errors import HardwareError
from ....isa.configuration import Configuration, Memory
from ....isa.instructions import Unit
from ....isa.memory_model import MemoryModel
from ....isa.registers import OFFSETS, REGISTER_SPACE_BYTES, REGISTERS
from ....isa.semantics import Machine
from ....sim.harness import INTERRUPTED, VIOLATED, Harness
from ....sim.scratchpad_arrays import ScratchpadArrays

UNLIMITED_CYCLES = 4_000_000
"""Cycle budget: more than any stimulus takes on a core without faults by default."""

SILENCE_CYCLES = 1 << 40
"""Runs end by their budget, never by silence."""

PATIENCE_CYCLES = 300
"""Cycles by which a run may exceed that of the core without faults."""


class ObservationKind(StrEnum):
    """Kind of observation that shows a fault."""

    RULE = "rule of a port, or assertion"
    HANG = "hang"
    VALUE = "value in memory"
    REGISTER = "register"
    TIME = "cycle of an instruction or of a beat"


class Observation(NamedTuple):
    """An observation of a core; comparable."""

    kind: ObservationKind
    name: str
    value: object


Stimulus = Callable[["FaultSession"], Iterator[Observation]]


@dataclass(frozen=True, slots=True)
class StimulusRun:
    """A program, its place and that of its data, and the memory model.

    Parameters
    ----------
    code, image
        Encoded program; uint8[bytes], the data window before the run.
    expected
        The definition's memories after the run; None if the run does not reach its end.
    program_base, image_base
        Byte addresses.
    program_bytes
        Size given to the core; by default, the size of the code.
    data_base, data_bytes
        Window given to the core; by default, the place of the image.
    """

    code: bytes
    image: np.ndarray
    memory: MemoryModel
    expected: Machine | None = None
    program_base: int = 0x8000
    program_bytes: int | None = None
    image_base: int = 0x1000
    data_base: int = 0x1000
    data_bytes: int | None = None


class FaultSession:
    """A core with one fault or none.

    Parameters
    ----------
    library
        From `build_faulty_core`.
    fault
        Its number; 0 for none.
    durations
        Cycles of each run of the core without faults, to detect a hang; None for that core.
    """

    def __init__(
        self,
        library: Path,
        configuration: Configuration,
        fault: int = 0,
        durations: Iterator[int] | None = None,
    ) -> None:
        self.configuration = configuration
        self.harness = Harness(library, MemoryModel())
        arrays = self.harness.arrays()
        self.knobs = next(a for name, (a, _) in arrays.items() if name.endswith("knobs"))
        self.knobs = self.knobs.view(np.uint32)[:, 0]
        core = {name.replace("__DOT__faulty", ""): array for name, array in arrays.items()}
        self.scratchpads = ScratchpadArrays(configuration, core)
        self.known = durations
        self.durations: list[int] = []
        self.dram = np.zeros(0, dtype=np.uint8)
        self.words = self.dram
        self.knobs[0] = fault
        self.harness.reset()

    def set_bench(self, hesitation: int = 0, strobes_off: int = 0, offset: int = 0) -> None:
        """Set the knobs of the register port; see `bench.v`."""
        self.knobs[1:4] = hesitation, strobes_off, offset

    def read_offset(self, offset: int) -> int:
        """Read a register by its byte offset."""
        self.knobs[3] = offset
        value = self.harness.read("ID")  # at offset 0
        self.knobs[3] = 0
        return value

    def write_offset(self, offset: int, value: int) -> None:
        """Write a register by its byte offset, which may be any but CONTROL's."""
        self.knobs[3] = offset
        self.harness.write("ID", value)
        self.knobs[3] = 0

    def begin(self, run: StimulusRun) -> None:
        """Clear everything, set the registers and start."""
        harness = self.harness
        self.dram, self.words = run.image.copy(), np.frombuffer(run.code, dtype=np.uint8)
        harness.map(0, run.program_base, self.words, writable=False)
        harness.map(1, run.image_base, self.dram, writable=True)
        harness.set_memory(run.memory)
        self.scratchpads.clear()
        data_bytes = run.image.size if run.data_bytes is None else run.data_bytes
        program_bytes = len(run.code) if run.program_bytes is None else run.program_bytes
        harness.write("PROGRAM_BASE", run.program_base)
        harness.write("PROGRAM_BYTES", program_bytes)
        harness.write("DATA_BASE", run.data_base)
        harness.write("DATA_BYTES", data_bytes)
        harness.start()

    def go(self, cycles: int) -> Observation:
        """Let some cycles pass, or until the interrupt."""
        return self._outcome(self.harness.run(cycles, SILENCE_CYCLES))

    def finish(self, cycles: int = UNLIMITED_CYCLES) -> Observation:
        """Run to the interrupt, but not much longer than the core without faults."""
        if self.known is not None:
            cycles = min(cycles, next(self.known) + PATIENCE_CYCLES)
        before = self.harness.cycles
        outcome = self._outcome(self.harness.run(cycles, SILENCE_CYCLES))
        self.durations.append(self.harness.cycles - before)
        return outcome

    def _outcome(self, outcome: int) -> Observation:
        if outcome == VIOLATED or self.harness.violation:
            return Observation(ObservationKind.RULE, self.harness.violation, self.harness.violation)
        return Observation(ObservationKind.HANG, "interrupt", outcome == INTERRUPTED)

    def results(self, run: StimulusRun | None = None) -> Iterator[Observation]:
        """Observe the results of a run: memories, registers, times."""
        yield Observation(ObservationKind.VALUE, "DRAM", self.dram.tobytes())
        try:
            pads = self.scratchpads.read()
        except HardwareError as problem:
            yield Observation(ObservationKind.VALUE, "LUT", str(problem))
            return
        for memory, contents in pads.items():
            yield Observation(ObservationKind.VALUE, memory.name, contents.tobytes())
        if run is not None and run.expected is not None and self.known is None:
            self._compare(run.expected, pads)
        yield from self.registers()
        yield self.violation()
        yield Observation(ObservationKind.TIME, "cycles", self.harness.cycles)
        yield Observation(ObservationKind.TIME, "beats", self.harness.beats())
        for unit in Unit:
            for retirements in (False, True):
                times = self.harness.events(unit, retirements=retirements)
                name = f"{unit.name} {'retirements' if retirements else 'starts'}"
                yield Observation(ObservationKind.TIME, name, times.tobytes())

    def _compare(self, expected: Machine, pads: dict[Memory, np.ndarray]) -> None:
        found = {**pads, Memory.DRAM: self.dram}
        for memory, contents in expected.memories.items():
            if not np.array_equal(found[memory], contents):
                raise HardwareError(
                    f"mutation: the core without faults leaves other bytes in {memory.name} than "
                    "the definition; run the co-simulation tests"
                )

    def registers(self) -> Iterator[Observation]:
        """Every register of the contract."""
        for register in REGISTERS:
            yield self.register(register.name)

    def register(self, name: str) -> Observation:
        return Observation(ObservationKind.REGISTER, name, self.harness.read(name))

    def every_offset(self) -> Iterator[Observation]:
        """Read every word of the register space, at varying byte offsets inside the word."""
        for offset in range(0, REGISTER_SPACE_BYTES, 4):
            inside = offset // 4 * 7 % 4
            value = self.read_offset(offset + inside)
            yield Observation(ObservationKind.REGISTER, f"offset {offset:#04x}", value)

    def violation(self) -> Observation:
        """A rule broken since the last start."""
        return Observation(ObservationKind.RULE, self.harness.violation, self.harness.violation)

    def close(self) -> None:
        """Free the simulator."""
        self.harness.close()


CONTROL_OFFSET = OFFSETS["CONTROL"]

"""Mapped cores without a board: registers of the definition or of the RTL, behind a cache."""

import numpy as np

from tilewright.isa.configuration import Configuration
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import OFFSETS
from tilewright.runtime.zynq import MappedCore
from tilewright.sim.harness import VIOLATED, Harness

from .stub_board import StubBoard

BASE = 0x3_0000
"""Byte address of the buffer."""

NAMES = {offset // 4: name for name, offset in OFFSETS.items()}
START = 1
SLICE_CYCLES = 50_000


class Cached(MappedCore):
    """A core behind the worst cache: bytes move when they are flushed or invalidated only."""

    def __init__(self, registers, ram: np.ndarray, base: int = BASE) -> None:
        super().__init__(registers, np.full(ram.size, 0xC3, np.uint8), base)
        self.ram = ram

    def flush(self, start: int, end: int) -> None:
        """See `MappedCore.flush`."""
        self.ram[start:end] = self.memory[start:end]

    def invalidate(self, start: int, end: int) -> None:
        """See `MappedCore.invalidate`."""
        self.memory[start:end] = self.ram[start:end]


class StubRegisters:
    """The registers of a `StubBoard`, by index."""

    def __init__(self, stub: StubBoard) -> None:
        self.stub = stub

    def __getitem__(self, index: int) -> int:
        return self.stub.registers[4 * index]

    def __setitem__(self, index: int, value: int) -> None:
        self.stub._write(4 * index, value)


def stub_core(configuration: Configuration, changes: dict[str, int] | None = None) -> Cached:
    """A core by its definition, with 128 KiB of memory behind `BASE`."""
    stub = StubBoard(configuration, BASE + (1 << 17), changes)
    return Cached(StubRegisters(stub), stub.memory[BASE:])


class SimulatedRegisters:
    """The registers of a core in Verilator, by index; its time passes while `STATUS` is read."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def __getitem__(self, index: int) -> int:
        if NAMES.get(index) == "STATUS":
            outcome = self.harness.run(SLICE_CYCLES, 10 * SLICE_CYCLES)
            assert outcome != VIOLATED, self.harness.violation
        return self.harness.read(NAMES[index]) if index in NAMES else 0

    def __setitem__(self, index: int, value: int) -> None:
        if NAMES[index] == "CONTROL" and value & START:
            self.harness.start()
        else:
            self.harness.write(NAMES[index], value)


def simulated_core(library, memory: MemoryModel, size: int = 1 << 20) -> Cached:
    """A core in Verilator, with memory behind `BASE`."""
    harness = Harness(library, memory)
    ram = np.full(size, 0x99, np.uint8)
    harness.map(0, BASE, ram, writable=True)
    return Cached(SimulatedRegisters(harness), ram)

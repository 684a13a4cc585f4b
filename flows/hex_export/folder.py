"""The folder of `tilewright export --hex`: main memory before and after, the core, two benches.

Host steps cannot run in a bench. So memory begins with the inputs of every segment, which this
computer worked out, and ends with all that the core writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...aligned import align
from ...atomic_write import make_output_folder, write_files
from ...compiler.module import Module
from ...isa.memory_model import MemoryModel
from ...isa.registers import OFFSETS
from ...runtime import Session
from ...runtime.device import LoadedProgram, Result
from ...runtime.devices import SimDevice
from ..bare_metal.layout import lay_out
from ..verilog.readable import readable_verilog

ASSETS, BENCHES = (
    Path(__file__).with_name("assets"),
    ("bench.v", "test_network.py", "run_cocotb.py"),
)
REGISTERS = ("PROGRAM_BASE", "PROGRAM_BYTES", "DATA_BASE", "DATA_BYTES", "CONTROL", "STATUS")

SLOWNESS, SPARE_CYCLES = 8, 100_000
"""A bench gives up after that many times the cycles of the simulator, and these."""


@dataclass(frozen=True, slots=True)
class HexExport:
    """The files of an export by name, and its sizes: bytes of memory, runs, cycles of the core."""

    files: Mapping[str, str]
    memory_bytes: int
    runs: int
    cycles: int


class _RecordingDevice(SimDevice):
    """A device that keeps the data windows before and after each run."""

    def __init__(self, module: Module):
        super().__init__(module.configuration, MemoryModel())
        self.runs: list[tuple[bytes, np.ndarray, np.ndarray, int]] = []

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        before = dram.copy()
        result = super()._run(program, dram)
        self.runs.append((program.words, before, dram.copy(), result.cycles or 0))
        return result

    def take(self, code: bytes) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the first run of a program, and forget it."""
        place = next(index for index, run in enumerate(self.runs) if run[0] == code)
        return self.runs.pop(place)[1:]


def network_in_hex(module: Module, inputs: Mapping[str, np.ndarray]) -> HexExport:
    """Run a network that has segments on one sample, and return the files of its export."""
    machine, layout = module.configuration, lay_out(module)
    device = _RecordingDevice(module)
    Session(module, device).run(dict(inputs))
    size = align(layout.memory_bytes)
    memory = np.zeros(size, dtype=np.uint8)
    for program in (layout.clearing, *layout.programs):
        memory[program.place : program.place + len(program.code)] = np.frombuffer(
            program.code, dtype=np.uint8
        )
    expected = memory.copy()
    runs: list[int] = []
    cycles = 0
    for program in layout.programs:
        before, after, taken = device.take(program.code)
        window = slice(program.data_place, program.data_place + program.data_bytes)
        memory[window], expected[window] = before, after
        cycles += taken
        for one in (layout.clearing, program):
            runs += [one.place, len(one.code), one.data_place, one.data_bytes]
    numbers = {
        "BUS_BITS": machine.bus_bits,
        "ADDRESS_BITS": machine.address_bits,
        "MEMORY_WORDS": size // machine.bus_bytes,
        "RUNS": len(runs) // 4,
        "MAX_CYCLES": SLOWNESS * cycles + SPARE_CYCLES * len(runs) // 4,
        **{name: OFFSETS[name] for name in REGISTERS},
    }
    files = {name: (ASSETS / name).read_text("utf-8") for name in BENCHES}
    files |= {
        "core.v": readable_verilog(machine),
        "memory.hex": _hex(memory, machine.bus_bytes),
        "expected.hex": _hex(expected, machine.bus_bytes),
        "runs.hex": "".join(f"{number:08x}\n" for number in runs),
        "network.vh": "".join(f"localparam {name} = {n};\n" for name, n in numbers.items()),
        "network.json": json.dumps(numbers, indent=2) + "\n",
    }
    return HexExport(files, size, len(runs) // 4, cycles)


def _hex(memory: np.ndarray, word_bytes: int) -> str:
    """One word a line, the byte of the highest address first."""
    words = memory.reshape(-1, word_bytes)[:, ::-1]
    return "".join(f"{word.tobytes().hex()}\n" for word in words)


def write_hex(folder: Path, export: HexExport) -> list[str]:
    """Write the files, and return their names.

    Raises
    ------
    UsageError
        When the folder or a file cannot be written.
    """
    make_output_folder(folder, "--hex")
    write_files(folder, export.files)
    return sorted(export.files)

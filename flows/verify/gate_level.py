"""`make gates`: random programs on the netlist of a core, against the exact model.

`sim.gate` builds the simulator of the netlist. Main memory, both scratchpads that STORE can
read, the start and the retirement of every instruction, the cycles and all performance counters
must be those of the definition and of the timing model.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...errors import DeviceError, TilewrightError, UsageError
from ...isa.configuration import Configuration, Memory
from ...isa.encoding import encode_program
from ...isa.instructions import Halt, Instruction, Loop, Store
from ...isa.semantics import Machine
from ...isa.settings import load_configuration
from ...sim.gate.build import build_gates
from ...sim.gate.cell_models import MODELS, find_cells
from ...sim.rtl import RtlCore
from ...sim.timing import Timer
from ...sim.toolchain import progress
from ..synthesis.devices import DEVICES as ALL_DEVICES
from ..synthesis.devices import find_device
from ..synthesis.flow import shared_multipliers
from .comparison import DATA_BYTES, memory_of, time_differences
from .programs.random_programs import random_program

DEVICES = [name for name, chip in ALL_DEVICES.items() if chip.family.technology.value in MODELS]
"""Chips whose cells have models."""

STORED = Memory.ACT, Memory.ACC
"""Scratchpads that STORE can read."""


@dataclass
class GateTally:
    """Results of a number of programs.

    Parameters
    ----------
    programs, instructions, cycles
        Numbers of programs and instructions; cycles of the netlist.
    failures
        One sentence for each program with a difference.
    """

    programs: int = 0
    instructions: int = 0
    cycles: int = 0
    failures: list[str] = field(default_factory=list)


def verify_gates(
    configuration: Configuration, library: Path, seeds: Sequence[int], length: int
) -> Iterator[GateTally]:
    """Run the program of each seed on the netlist, compare, and yield the tally so far.

    Parameters
    ----------
    library
        As `build_gates` returns it.
    length
        Instructions of a program.
    """
    tally = GateTally()
    for seed in seeds:
        program, image = random_program(configuration, seed, length, DATA_BYTES)
        try:
            found = next(_differences(configuration, library, program, image, seed, tally), "")
        except DeviceError as problem:
            found = str(problem)
        tally.programs += 1
        tally.instructions += len(program)
        if found:
            tally.failures.append(f"{configuration.name}, seed {seed}: {found}")
        yield tally


def _differences(
    configuration: Configuration,
    library: Path,
    program: Sequence[Instruction],
    image: np.ndarray,
    seed: int,
    tally: GateTally,
) -> Iterator[str]:
    memory, dram = memory_of(seed), image.copy()
    # A new instance is a chip after power-up, whose scratchpads are zero.
    core = RtlCore(configuration, memory, library=library)
    try:
        run = core.run(encode_program(program, configuration), dram, program)
        tally.cycles += run.cycles
        reference = Machine(configuration, image.copy())
        reference.run(program)
        yield from _bytes("main memory", dram, reference.memories[Memory.DRAM])
        timing = Timer(program, configuration).run(memory)
        yield from time_differences(timing, run)
        for kind in STORED:
            yield from _bytes(kind.name, stored(core, kind), reference.memories[kind])
    finally:
        core.close()


def _bytes(name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    if not np.array_equal(found, expected):
        place = int(np.flatnonzero(found != expected)[0])
        yield f"the netlist differs from the definition in {name}, byte {place}"


def stored(core: RtlCore, memory: Memory) -> np.ndarray:
    """The content of ACT or ACC, uint8[bytes], which a program of STOREs writes to main memory."""
    configuration = core.configuration
    row = configuration.row_bytes(memory)
    rows = min(configuration.depth(memory), 1 << configuration.extent_bits)
    loops = (Loop(rows, (row, row)),)
    stores = [
        Store(source=memory, length=row, local=start, memory=start, loops=loops)
        for start in range(0, configuration.size_bytes(memory), row * rows)
    ]
    program = [*stores, Halt()]
    dram = np.zeros(configuration.size_bytes(memory), np.uint8)
    core.run(encode_program(program, configuration), dram, program)
    return dram


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if anything differs."""
    options = _parser().parse_args(arguments)
    try:
        return _verify(options)
    except TilewrightError as problem:
        print(f"gate level: {problem}", file=sys.stderr)
        return problem.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.gate_level", description=__doc__
    )
    parser.add_argument("--programs", type=int, default=200, help="in all (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--length", type=int, default=40, help="instructions (default 40)")
    parser.add_argument("--config", default="tiny", help="a small one (default tiny)")
    parser.add_argument("--chip", choices=DEVICES, default=DEVICES[0], help=f"default {DEVICES[0]}")
    return parser


def _verify(options: argparse.Namespace) -> int:
    if options.programs < 1 or options.length < 1:
        raise UsageError("`--programs` and `--length` must be at least 1")
    configuration = load_configuration(options.config)
    chip = find_device(options.chip)
    cells = find_cells(chip.family.technology.value)
    library = build_gates(configuration, cells, shared_multipliers(chip))
    began, tally = time.monotonic(), GateTally()
    seeds = range(options.seed, options.seed + options.programs)
    for tally in verify_gates(configuration, library, seeds, options.length):
        if 10 * tally.programs // options.programs != 10 * (tally.programs - 1) // options.programs:
            progress(f"{tally.programs} of {options.programs} programs", "gates")
    for failure in tally.failures:
        print(failure, file=sys.stderr)
    speed = tally.cycles / (time.monotonic() - began)
    print(
        f"gate level: {tally.programs} programs, {tally.instructions:,} instructions, "
        f"{tally.cycles:,} cycles ({speed:,.0f} a second); {len(tally.failures)} differ"
    )
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())

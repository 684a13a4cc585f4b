"""Comparison of one program on the integer definition, on `sim` and on the RTL."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...atomic_write import write_output
from ...errors import DeviceError
from ...isa.configuration import SCRATCHPADS, Configuration
from ...isa.encoding import encode_program
from ...isa.instructions import Instruction
from ...isa.memory_model import MemoryModel
from ...isa.semantics import Machine
from ...sim.native_functional import functional_machine
from ...sim.rtl import RtlCore, RtlRun
from ...sim.timing import Timer, Timing
from ...sim.timing.shared_bus import model_of
from .programs.cases import ProgramCase, format_case
from .programs.random_configurations import random_memory_parameters
from .programs.random_programs import random_program
from .programs.shrink_programs import shrink

DATA_BYTES = 1 << 14
"""Size of the data window of every program."""

STALLED_EVERY = 4
"""One program in this many also runs with a stalling memory."""

DEFINITION_EVERY = 5
"""One program in this many is also timed by the Python definition."""

MAX_FAILURES = 3
"""Number of failures that are described; further ones are only counted."""

SHRINK_TRIES = 400
"""Programs to try when a failing one is shrunk."""


@dataclass
class VerifyTally:
    """Results for one configuration.

    Parameters
    ----------
    programs, instructions, cycles
        Numbers of programs and instructions; cycles of the RTL.
    stalled
        Programs that also ran with a stalling memory.
    largest_error
        Largest difference in cycles between model and RTL, in total or for an instruction.
    failures
        One sentence for each of the first few programs with a difference.
    failed
        Number of programs with a difference.
    """

    configuration: str
    programs: int = 0
    instructions: int = 0
    cycles: int = 0
    stalled: int = 0
    largest_error: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    rtl_s: float = 0.0
    model_s: float = 0.0
    definition_s: float = 0.0
    definition_instructions: int = 0

    def add(self, other: "VerifyTally") -> None:
        """Add the results of another tally of the same configuration."""
        for name, value in vars(other).items():
            if name == "largest_error":
                self.largest_error = max(self.largest_error, value)
            elif name == "failures":
                self.failures = (self.failures + value)[:MAX_FAILURES]
            elif name != "configuration":
                setattr(self, name, getattr(self, name) + value)


@lru_cache(maxsize=2)
def _core(configuration: Configuration) -> RtlCore:
    return RtlCore(configuration)


def verify_programs(
    configuration: Configuration, seeds: Sequence[int], length: int, keep: Path | None = None
) -> VerifyTally:
    """Run the programs of some seeds on all machines and compare.

    Parameters
    ----------
    length
        Instructions of a program.
    keep
        Folder for failing programs, made as small as possible, as `.tw` files.
    """
    tally = VerifyTally(configuration.name)
    core = _core(configuration)
    for seed in seeds:
        program, image = random_program(configuration, seed, length, DATA_BYTES)
        found = first_difference(core, program, image, seed, tally)
        tally.programs += 1
        if found:
            tally.failed += 1
            kept = f"; kept as `{_keep(core, program, image, seed, found, keep)}`" if keep else ""
            tally.failures.append(f"{configuration.name}, seed {seed}: {found}{kept}")
    del tally.failures[MAX_FAILURES:]
    return tally


def first_difference(
    core: RtlCore,
    program: Sequence[Instruction],
    image: np.ndarray,
    seed: int,
    tally: VerifyTally,
) -> str:
    """First difference between the machines; empty if all agree."""
    try:
        return next(_differences(core, program, image, seed, tally), "")
    except DeviceError as problem:
        return str(problem)


def _keep(
    core: RtlCore,
    program: Sequence[Instruction],
    image: np.ndarray,
    seed: int,
    why: str,
    folder: Path,
) -> Path:
    """Write the smallest program found that still fails."""

    def fails(smaller: Sequence[Instruction]) -> bool:
        return bool(first_difference(core, smaller, image, seed, VerifyTally("")))

    configuration, memory = core.configuration, memory_of(seed)
    small = shrink(program, configuration, image.size, fails, SHRINK_TRIES)
    case = ProgramCase(
        why=why,
        configuration=configuration,
        memory=asdict(memory),
        image_seed=seed,
        data_bytes=image.size,
        program=small,
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{configuration.name}-{seed}.tw"
    write_output(path, format_case(case), f"case `{path}`")
    return path


def _differences(
    core: RtlCore,
    program: Sequence[Instruction],
    image: np.ndarray,
    seed: int,
    tally: VerifyTally,
) -> Iterator[str]:
    configuration = core.configuration
    reference = Machine(configuration, image.copy())
    reference.run(program)
    fast = functional_machine(configuration)(configuration, image.copy())
    fast.run(program)
    for memory, contents in reference.memories.items():
        if not np.array_equal(fast.memories[memory], contents):
            yield f"`sim` differs from the definition in {memory.name}"

    core.memory = memory = memory_of(seed)
    dram, code = image.copy(), encode_program(program, configuration)
    began = time.perf_counter()
    run = core.run(code, dram, program)
    tally.rtl_s += time.perf_counter() - began
    yield from _values(core, reference, dram)

    timer = Timer(program, configuration)
    began = time.perf_counter()
    timing = timer.run(memory)
    tally.model_s += time.perf_counter() - began
    tally.instructions += len(program)
    tally.cycles += run.cycles
    yield from time_differences(timing, run, tally)
    if seed % DEFINITION_EVERY == 0:
        yield from _definition(program, timing, tally)
    if seed % STALLED_EVERY == 0:
        tally.stalled += 1
        stalling = {**random_memory_parameters(seed), "stall_probability": 0.5}
        core.memory = MemoryModel.of_parameters(stalling)
        dram = image.copy()
        core.run(code, dram, program)
        yield from (f"{text}, under stalls" for text in _values(core, reference, dram))


def memory_of(seed: int) -> MemoryModel:
    """Memory model for a program: the default, or a random one without stalls."""
    if seed % 3 == 0:
        return MemoryModel()
    steady = {**random_memory_parameters(seed), "stall_probability": 0.0}
    return MemoryModel.of_parameters(steady)


def _values(core: RtlCore, reference: Machine, dram: np.ndarray) -> Iterator[str]:
    scratchpads = core.scratchpads()
    for memory, contents in reference.memories.items():
        found = scratchpads[memory] if memory in SCRATCHPADS else dram
        if not np.array_equal(found, contents):
            place = int(np.flatnonzero(found != contents)[0])
            yield f"the RTL differs from the definition in {memory.name}, byte {place}"


def time_differences(
    timing: Timing, run: RtlRun, tally: VerifyTally | None = None
) -> Iterator[str]:
    """Differences between the timing model and a run: starts, retirements, cycles, counters."""
    errors = np.abs(timing.spans - run.spans(timing.program)).max(axis=1)
    worst = max(int(errors.max()), abs(timing.cycles - run.cycles))
    if tally is not None:
        tally.largest_error = max(tally.largest_error, worst)
    if worst:
        first = int(np.argmax(errors > 0))
        yield (
            f"model and RTL differ by up to {worst} cycles ({timing.cycles} and {run.cycles} in "
            f"all), first at instruction {first}: model {timing.spans[first]}, RTL "
            f"{run.spans(timing.program)[first]}"
        )
    for name, count in run.counters.items():
        if timing.counters[name] != count:
            yield f"counter {name}: model {timing.counters[name]}, RTL {count}"


def _definition(
    program: Sequence[Instruction], timing: Timing, tally: VerifyTally
) -> Iterator[str]:
    began = time.perf_counter()
    cycles, times = model_of(program, timing.configuration, timing.memory).run()
    tally.definition_s += time.perf_counter() - began
    tally.definition_instructions += len(program)
    if cycles != timing.cycles or not np.array_equal(times, timing.times):
        yield f"the compiled model differs from its definition ({timing.cycles}, {cycles} cycles)"

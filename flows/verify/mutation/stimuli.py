"""Stimuli for every faulty core: registers, programs with varied memories, and errors.

Stimuli that find many faults quickly come first, slow ones last. A fault runs until the first
difference.
"""

import random
from collections.abc import Iterator

import numpy as np

from ....isa.configuration import Configuration
from ....isa.instructions import Halt, Unit
from ....isa.registers import OFFSETS, REGISTERS
from ..programs.random_programs import random_program
from .directed import lengths, near_ties, small_sums
from .error_stimuli import ErrorStimuli, error_stimuli
from .loops import lonely_loops, long_loops, tireless_rows, wrapping_runs, wrapping_tiles
from .runs import QUICK, encode_loosely, prepare
from .session import FaultSession, Observation, ObservationKind, Stimulus, StimulusRun

START = 1
EARLY_PROGRAMS = 5
"""Random programs before the errors: they find most faults in a few milliseconds."""

LONG = "long waits"
"""Name of the stimulus that only faults in the counters need."""


def stimuli(configuration: Configuration, programs: int) -> dict[str, Stimulus]:
    """All stimuli by name, in the order in which they are applied.

    Parameters
    ----------
    programs
        Number of random programs.
    """
    found: dict[str, Stimulus] = {"registers": registers}
    for seed in range(programs):
        found[f"program {seed}"] = _program(configuration, seed)
        if seed == EARLY_PROGRAMS:
            found |= error_stimuli(configuration) | directed(configuration)
    return found | {LONG: ErrorStimuli(configuration).long_waits}


def directed(configuration: Configuration) -> dict[str, Stimulus]:
    """Programs with one purpose each."""
    chance = random.Random(5)
    named = [*long_loops(configuration, 3), *lonely_loops(configuration, 4)]
    named += [(f"near ties {seed}", near_ties(configuration, seed, 100)) for seed in range(8)]
    named += [("lengths", lengths(configuration)), ("small sums", small_sums(configuration))]
    found = {name: _run(prepare(configuration, chance, *program, QUICK)) for name, program in named}
    image = np.random.default_rng(6).integers(0, 256, 4096, dtype=np.uint8)
    for name, body in (
        ("loops of rows that stay", tireless_rows(configuration)),
        ("loops of tiles that wrap", wrapping_tiles(configuration)),
        ("loops of runs that wrap", wrapping_runs(configuration)),
    ):
        code = encode_loosely([*body, Halt()], configuration, 6)
        found[name] = _run(StimulusRun(code, image, QUICK))
    return found


def _run(run: StimulusRun) -> Stimulus:
    def stimulus(session: FaultSession) -> Iterator[Observation]:
        session.begin(run)
        yield session.finish()
        yield from session.results(run)

    return stimulus


def registers(session: FaultSession) -> Iterator[Observation]:
    """Every word of the register space, read and written whole and in part."""
    yield from session.every_offset()
    names = [register.name for register in REGISTERS if register.name != "CONTROL"]
    for hesitation, pattern in ((0, 0xFFFFFFFF), (0, 0), (11, 0xA5C3_9617), (5, 0x5A3C_69E8)):
        session.set_bench(hesitation)
        for number, name in enumerate(names):
            session.harness.write(name, pattern ^ 0x0101_0101 * number if pattern else 0)
        yield from session.every_offset()
    for off in (1, 2, 4, 8, 15):
        session.set_bench(strobes_off=off)
        session.harness.write("DATA_BASE", 0x1234_0000 + off)
        session.harness.write("CONTROL", START)
        session.set_bench()
        yield session.register("DATA_BASE")
        yield session.register("STATUS")
    for offset in range(0, 256, 4):
        if offset != OFFSETS["CONTROL"]:
            session.write_offset(offset + 1, 0x0F1E_2D3C ^ offset << 16)
    yield from session.every_offset()
    yield session.violation()
    session.harness.reset()
    yield from session.registers()


def _program(configuration: Configuration, seed: int) -> Stimulus:
    """A random program; in some runs the host watches, hesitates, or interferes."""
    chance = random.Random(seed)
    length = chance.choice((16, 40, 40, 80))
    data_bytes = chance.choice((4096, 1 << 14, 1 << 16))
    program, image = random_program(configuration, seed, length, data_bytes)
    run = prepare(configuration, chance, program, image)
    style = chance.choice(("alone", "alone", "watched", "disturbed"))
    hesitation = chance.choice((0, 0, 6, 12))
    pace = chance.randint(3, 90)

    def stimulus(session: FaultSession) -> Iterator[Observation]:
        session.set_bench(hesitation)
        session.begin(run)
        if style != "alone":
            yield from _watch(session, pace, interfering=style == "disturbed")
        yield session.finish()
        session.set_bench()
        yield from session.results(run)

    return stimulus


def _watch(session: FaultSession, pace: int, *, interfering: bool) -> Iterator[Observation]:
    """Read the state of busy units; writes and starts must not disturb them."""
    for look in range(40):
        outcome = session.go(pace)
        if outcome.kind is ObservationKind.RULE or outcome.value is True:
            return
        for unit in Unit:
            yield session.register(f"{unit.name}_STATE")
            yield session.register(f"{unit.name}_TOKENS")
        if interfering:
            session.harness.write(("PROGRAM_BASE", "DATA_BASE", "DATA_BYTES")[look % 3], 64 * look)
            yield session.register("DATA_BYTES")
            session.harness.write("CONTROL", 0xFFFF_FFFC)
            session.write_offset(OFFSETS["CONTROL"], 0)

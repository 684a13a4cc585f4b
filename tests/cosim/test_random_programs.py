"""Reference, `sim` and `rtl` agree on every byte of every memory, whatever the memory's mood."""

import random

import numpy as np
import pytest

from tilewright.errors import DeviceError, ProgramError
from tilewright.flows.verify.programs.mutants import mutants
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, SCRATCHPADS
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Halt, Loop, Vector
from tilewright.isa.legality import has_faults
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.functional import FunctionalMachine
from tilewright.sim.rtl import RtlCore

CONFIGURATIONS = ("tiny", "4x4", "8x8", "8x16", "16x8", "16x16")
PROGRAMS = 100
"""On each machine; `make verify` has many more."""

MUTANT_CONFIGURATIONS = ("tiny", "8x16")
ACCEPTED_MUTANTS = 60
MUTANTS_PER_PROGRAM = 12


def moody_memory(seed: int) -> MemoryModel:
    """Anything from a quick memory to one that stalls four cycles out of five."""
    chance = random.Random(seed)
    cycles = chance.choice((1, 1, 2, 3, 7))
    return MemoryModel(
        latency_cycles=chance.choice((1, 2, 16, 64, 200)),
        beats=chance.randint(1, cycles),
        cycles=cycles,
        outstanding_bursts=chance.choice((1, 2, 64)),
        stall_probability=chance.choice((0.0, 0.1, 0.5, 0.8)),
        seed=seed,
    )


def assert_core_leaves(core: RtlCore, expected: Machine, program, image, context: str) -> None:
    """Run on the RTL; compare main memory and scratchpads."""
    dram = image.copy()
    core.run(encode_program(program, core.configuration), dram, program)
    np.testing.assert_array_equal(dram, expected_dram(expected), err_msg=f"{context}: DRAM")
    scratchpads = core.scratchpads()
    for memory in SCRATCHPADS:
        np.testing.assert_array_equal(
            scratchpads[memory], expected.memories[memory], err_msg=f"{context}: {memory.name}"
        )


def expected_dram(machine: Machine) -> np.ndarray:
    return next(data for memory, data in machine.memories.items() if memory not in SCRATCHPADS)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_three_simulators_agree_on_random_programs(name, record_testsuite_property, capsys):
    configuration = PRESETS[name]
    core = RtlCore(configuration)
    cycles = 0
    for seed in range(PROGRAMS):
        program, image = random_program(configuration, seed)
        reference = Machine(configuration, image.copy())
        reference.run(program)
        fast = FunctionalMachine(configuration, image.copy())
        fast.run(program)
        for memory, contents in reference.memories.items():
            np.testing.assert_array_equal(
                fast.memories[memory], contents, err_msg=f"seed {seed}: sim, {memory.name}"
            )
        core.memory = moody_memory(seed)
        assert_core_leaves(core, reference, program, image, f"seed {seed}: rtl")
        cycles += core.harness.cycles
    core.close()
    record_testsuite_property(f"programs_{name}", PROGRAMS)
    with capsys.disabled():
        print(f"\n{name}: {PROGRAMS} random programs, {cycles} RTL cycles, every byte equal")


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANT_CONFIGURATIONS)
def test_accepted_mutants_run_as_in_program_order(name, capsys):
    """What the checker lets through cannot race: equal results however the memory stalls."""
    configuration = PRESETS[name]
    core = RtlCore(configuration)
    tried = accepted = 0
    for seed in range(1000):
        program, image = random_program(configuration, 10_000 + seed, 30)
        for number, mutant in zip(range(MUTANTS_PER_PROGRAM), mutants(program, seed), strict=False):
            tried += 1
            try:
                check(mutant.program, configuration, image.size)
            except ProgramError:
                continue
            accepted += 1
            reference = Machine(configuration, image.copy())
            reference.run(mutant.program)
            for mood in range(2):
                core.memory = moody_memory(100 * seed + 10 * number + mood)
                context = f"seed {seed}, mutant {number} ({mutant.text}), mood {mood}"
                assert_core_leaves(core, reference, mutant.program, image, context)
        if accepted >= ACCEPTED_MUTANTS:
            break
    core.close()
    assert accepted >= ACCEPTED_MUTANTS
    with capsys.disabled():
        print(f"\n{name}: of {tried} mutants the checker let {accepted} through; all harmless")


@pytest.mark.slow
def test_a_row_is_read_while_it_is_written_only_where_the_checker_says_so():
    """In place, the second slice of a row is read some rows after its first was written."""
    configuration, found = PRESETS["16x8"], []
    for to_acc in (False, True):
        slices = configuration.lanes_out if to_acc else configuration.lanes_in
        slices //= configuration.vector_lanes
        for rows in range(8, 40):
            loops = Loop(2, (1, 1, 0, 0)), Loop(rows, (slices, slices, 0, 0))
            vector = Vector(dst=0, a=0, a_from_acc=to_acc, to_acc=to_acc, map_loops=loops)
            program, refused = [vector, Halt()], has_faults(vector, configuration, 4096)
            found += [(to_acc, rows)] * refused
            core = RtlCore(configuration)
            image = np.zeros(4096, np.uint8)
            if refused:
                with pytest.raises(DeviceError, match="an assertion failed"):
                    core.run(encode_program(program, configuration), image, program)
            else:
                core.run(encode_program(program, configuration), image, program)
            core.close()
    assert [to_acc for to_acc, _ in found] == [False, True]

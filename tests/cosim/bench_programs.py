"""Whole programs under random memory latency: main memory, counters and events must be right."""

import os
import random

import cocotb
import numpy as np
from bench import CONFIGURATION, Bench

from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Halt, Sync, Unit
from tilewright.isa.semantics import Machine

SEEDS = int(os.environ.get("TILEWRIGHT_BENCH_SEEDS", "5"))
DATA_BYTES = 1 << 12
MACHINE = Machine(CONFIGURATION, np.zeros(DATA_BYTES, dtype=np.uint8))
"""One for all tests: neither a reset nor a start clears the core's scratchpads."""


@cocotb.test()
async def random_programs_leave_the_memory_that_they_should(dut):
    """One after the other on one core: scratchpads keep their contents from run to run."""
    bench = await Bench.create(dut, 10)
    for seed in range(SEEDS):
        chance = random.Random(seed)
        bench.memory.latency = chance.choice((1, 10, 60, 150))
        bench.memory.stalls = chance.choice((0.0, 0.3, 0.7))
        program, image = random_program(CONFIGURATION, seed, 30, DATA_BYTES)
        MACHINE.memories[Memory.DRAM] = image.copy()
        MACHINE.run(program)
        bench.starts, bench.retirements = [0] * 4, [0] * 4
        got = await bench.run(program, image)
        np.testing.assert_array_equal(got, MACHINE.memories[Memory.DRAM], err_msg=f"seed {seed}")
        for unit in Unit:
            count = sum(instruction.home is unit for instruction in program)
            assert bench.starts[unit] == bench.retirements[unit] == count, unit.name
            assert await bench.read(f"{unit.name}_INSTRUCTIONS") == count, unit.name
        bench.checker.finish()
    assert bench.checker.beats["R"] > 0
    assert bench.checker.beats["W"] > 0


@cocotb.test()
async def a_program_of_nothing_ends_at_once(dut):
    bench = await Bench.create(dut, 11)
    for program in ([Halt()], [Sync(target=unit) for unit in Unit] + [Halt()]):
        image = np.zeros(DATA_BYTES, dtype=np.uint8)
        np.testing.assert_array_equal(await bench.run(program, image), image)
        assert 0 < await bench.read("CYCLES_LOW") < 2000
        assert await bench.read("FETCHED") == len(program) - 1
    bench.checker.finish()


@cocotb.test()
async def a_start_while_busy_changes_nothing(dut):
    bench = await Bench.create(dut, 12, latency=100)
    program, image = random_program(CONFIGURATION, 99, 30, DATA_BYTES)
    MACHINE.memories[Memory.DRAM] = image.copy()
    MACHINE.run(program)
    await bench.start(encode_program(program, CONFIGURATION), image)
    for _ in range(5):
        await bench.wait(30)
        if await bench.read("STATUS") & 1:
            await bench.write("CONTROL", 1)
    done, _ = await bench.finish()
    assert done
    np.testing.assert_array_equal(bench.data(image.size), MACHINE.memories[Memory.DRAM])
    bench.checker.finish()

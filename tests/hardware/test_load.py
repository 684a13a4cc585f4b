"""LOAD with the read arbiter against the instruction's NumPy semantics."""

import random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from tilewright.hardware.load import DESTINATIONS, LoadUnit
from tilewright.hardware.read_arbiter import ReadArbiter
from tilewright.isa.configuration import Configuration, Memory
from tilewright.isa.instructions import Load, Loop
from tilewright.isa.registers import Error
from tilewright.isa.semantics import Machine

from .axi_memory import CommandSource, ReadMemory, Sink, simulate
from .transfers import CONFIGURATIONS, command_bits, random_transfer

BASE = 0x3000
DRAM_BYTES = 5000


class LoadWithArbiter(Elaboratable):
    def __init__(self, configuration: Configuration):
        self.unit = LoadUnit(configuration)
        self.arbiter = ReadArbiter(configuration)

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = self.unit
        m.submodules.arbiter = self.arbiter
        wiring.connect(m, self.unit.requests, self.arbiter.load_requests)
        wiring.connect(m, self.arbiter.load_beats, self.unit.beats)
        return m


class Scratchpads:
    """Apply the unit's writes to bytes."""

    def __init__(self, unit: LoadUnit, configuration: Configuration):
        self.ports = {memory: getattr(unit, memory.name.lower()) for memory in DESTINATIONS}
        self.memories = {
            memory: np.zeros(
                (configuration.rows(memory), configuration.row_bytes(memory)), np.uint8
            )
            for memory in DESTINATIONS
        }
        self.write_cycles: list[int] = []
        self.cycle = 0

    def drive(self, ctx):
        pass

    def sample(self, ctx):
        for memory, port in self.ports.items():
            if ctx.get(port.enable):
                row = self.memories[memory][ctx.get(port.address)]
                data, mask = ctx.get(port.data), ctx.get(port.mask)
                for byte in range(row.size):
                    if mask >> byte & 1:
                        row[byte] = data >> (8 * byte) & 0xFF
                self.write_cycles.append(self.cycle)
        self.cycle += 1


class Bench:
    """One run of a program of LOADs."""

    def __init__(self, configuration, program, seed=0, idle=0.0, latency=1, failing=frozenset()):
        generator = random.Random(seed)
        self.configuration = configuration
        self.dram = np.random.default_rng(seed).integers(0, 256, DRAM_BYTES, np.uint8)
        image = np.concatenate([np.full(BASE, 0xEE, np.uint8), self.dram, np.zeros(4096, np.uint8)])
        self.top = LoadWithArbiter(configuration)
        unit = self.top.unit
        commands = [command_bits(load, configuration) for load in program]
        self.source = CommandSource(unit.commands, commands, generator, idle)
        self.retired = Sink(unit.retired, generator, idle)
        self.scratchpads = Scratchpads(unit, configuration)
        self.memory = ReadMemory(
            self.top.arbiter.memory,
            image,
            configuration.bus_bytes,
            configuration.burst_bytes,
            generator,
            idle,
            latency,
            frozenset(BASE + address for address in failing),
        )
        self.program = program
        self.unit = unit

    def run(self, finished=None) -> int:
        def all_retired(ctx):
            return len(self.retired.taken) == len(self.program)

        return simulate(
            self.top,
            [self.source, self.retired, self.memory, self.scratchpads],
            finished or all_retired,
            [(self.unit.data_base, BASE), (self.unit.data_bytes, DRAM_BYTES)],
        )

    def check(self):
        machine = Machine(self.configuration, self.dram)
        for load in self.program:
            machine.execute(load)
        for memory in DESTINATIONS:
            got, expected = self.scratchpads.memories[memory].reshape(-1), machine.memories[memory]
            np.testing.assert_array_equal(got, expected, err_msg=memory.name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_programs_load_what_the_semantics_says(name, seed):
    configuration, generator = CONFIGURATIONS[name], random.Random(seed)
    program = [random_transfer(generator, configuration, Load, DRAM_BYTES) for _ in range(14)]
    idle = (0.0, 0.2, 0.5)[seed]
    bench = Bench(configuration, program, seed, idle, latency=generator.choice((1, 5, 20)))
    bench.run()
    bench.check()

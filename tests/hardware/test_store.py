"""STORE against the instruction's NumPy semantics."""

import random

import numpy as np
import pytest

from tilewright.hardware.store import StoreUnit
from tilewright.isa.configuration import Configuration, Memory
from tilewright.isa.instructions import Loop, Store
from tilewright.isa.pipeline import PACKING_CYCLES, READ_LATENCY
from tilewright.isa.registers import Error
from tilewright.isa.semantics import Machine

from .axi_memory import CommandSource, Sink, WriteMemory, simulate
from .simulated import simulated
from .transfers import CONFIGURATIONS, command_bits, random_transfer

BASE = 0x3000
DRAM_BYTES = 5000


class SourceScratchpads:
    """Answer the unit's reads; the data are random in all other cycles."""

    def __init__(self, unit: StoreUnit, memories: dict[Memory, np.ndarray]):
        self.ports = {memory: getattr(unit, memory.name.lower()) for memory in memories}
        self.memories = memories
        self.pipelines = {memory: [None] * READ_LATENCY for memory in memories}
        self.read_cycles: list[int] = []
        self.cycle = 0

    def drive(self, ctx):
        for memory, port in self.ports.items():
            row = self.pipelines[memory][0]
            if row is None:
                ctx.set(port.data, (1 << len(port.data)) - 1)
            else:
                data = self.memories[memory][row].tobytes()
                ctx.set(port.data, int.from_bytes(data, "little"))

    def sample(self, ctx):
        for memory, port in self.ports.items():
            row = ctx.get(port.address) if ctx.get(port.enable) else None
            if row is not None:
                self.read_cycles.append(self.cycle)
            self.pipelines[memory] = [*self.pipelines[memory][1:], row]
        self.cycle += 1


class StoreSimulation:
    """One run of a program of STOREs."""

    def __init__(
        self,
        configuration: Configuration,
        program,
        seed=0,
        idle=0.0,
        latency=1,
        failing=frozenset(),
    ):
        generator, numbers = random.Random(seed), np.random.default_rng(seed)
        self.program = program
        self.image = numbers.integers(0, 256, BASE + DRAM_BYTES + 4096, np.uint8)
        self.before = self.image.copy()
        self.machine = Machine(configuration, self.image[BASE : BASE + DRAM_BYTES].copy())
        rows = {}
        for memory in (Memory.ACT, Memory.ACC):
            contents = self.machine.memories[memory]
            contents[:] = numbers.integers(0, 256, contents.size, np.uint8)
            rows[memory] = contents.reshape(configuration.rows(memory), -1)
        self.simulated = simulated(StoreUnit, configuration)
        self.unit = self.simulated.top
        commands = [command_bits(store, configuration) for store in program]
        self.source = CommandSource(self.unit.commands, commands, generator, idle)
        self.retired = Sink(self.unit.retired, generator, idle)
        self.scratchpads = SourceScratchpads(self.unit, rows)
        self.memory = WriteMemory(
            self.unit.memory,
            self.image,
            configuration.bus_bytes,
            configuration.burst_bytes,
            generator,
            idle,
            latency,
            frozenset(BASE + address for address in failing),
        )

    def run(self, finished=None) -> int:
        def all_retired(ctx):
            return len(self.retired.taken) == len(self.program)

        return simulate(
            self.simulated,
            [self.source, self.retired, self.memory, self.scratchpads],
            finished or all_retired,
            [(self.unit.data_base, BASE), (self.unit.data_bytes, DRAM_BYTES)],
        )

    def run_until_error(self) -> Error:
        """Run until the unit is dry after an error, and return it."""
        code = Error.NONE

        def dry(ctx):
            nonlocal code
            code = Error(ctx.get(self.unit.error))
            return code is not Error.NONE and not ctx.get(self.unit.busy)

        self.run(dry)
        return code

    def check(self):
        for store in self.program:
            self.machine.execute(store)
        window = slice(BASE, BASE + DRAM_BYTES)
        np.testing.assert_array_equal(self.image[window], self.machine.memories[Memory.DRAM])
        self.image[window] = self.before[window]
        np.testing.assert_array_equal(self.image, self.before, err_msg="outside the window")


@pytest.mark.parametrize(
    "seed", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_programs_store_what_the_semantics_says(name, seed):
    configuration, generator = CONFIGURATIONS[name], random.Random(seed)
    program = [random_transfer(generator, configuration, Store, DRAM_BYTES) for _ in range(8)]
    idle = (0.0, 0.2, 0.5)[seed]
    bench = StoreSimulation(configuration, program, seed, idle, latency=generator.choice((1, 4, 9)))
    bench.run()
    bench.check()


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8"])
@pytest.mark.parametrize("source", [Memory.ACT, Memory.ACC])
def test_aligned_stores_send_a_beat_every_cycle(name, source):
    configuration = CONFIGURATIONS[name]
    beats = 4 * configuration.burst_beats
    length = beats * configuration.bus_bytes // 2
    program = [Store(source=source, length=length, local=0, memory=length * i) for i in range(2)]
    bench = StoreSimulation(configuration, program)
    bench.run()
    bench.check()
    cycles = bench.memory.beat_cycles
    per_beat = max(1, configuration.bus_bytes // configuration.row_bytes(source))
    assert len(cycles) == beats
    assert cycles[-1] - cycles[0] == (beats - 1) * per_beat
    assert set(bench.memory.burst_beats) == {configuration.burst_beats}


def test_short_runs_lose_no_cycle():
    configuration = CONFIGURATIONS["16x16"].replace(outstanding_bursts=16)
    runs = Loop(40, (16, 32))
    bench = StoreSimulation(
        configuration, [Store(source=Memory.ACT, length=16, local=0, memory=0, loops=(runs,))]
    )
    bench.run()
    bench.check()
    cycles = bench.memory.beat_cycles
    assert cycles[-1] - cycles[0] == 2 * 40 - 1


def test_first_beat_comes_after_the_documented_cycles():
    configuration = CONFIGURATIONS["16x16"]
    bench = StoreSimulation(configuration, [Store(source=Memory.ACT, length=8, local=0, memory=0)])
    bench.run()
    accepted = bench.source.accepted[0]
    assert bench.scratchpads.read_cycles[0] - accepted == 6
    assert bench.memory.beat_cycles[0] - accepted == 6 + PACKING_CYCLES + 1
    # The response comes a cycle after the beat, and retirement a cycle after the response.
    assert bench.retired.cycles[0] - bench.memory.beat_cycles[0] == 2


@pytest.mark.parametrize("seed", range(2))
def test_runs_that_leave_the_window_stop_the_machine(seed):
    configuration, generator = CONFIGURATIONS["4x4"], random.Random(seed)
    program = [random_transfer(generator, configuration, Store, DRAM_BYTES, stays=False)]
    bench = StoreSimulation(configuration, program, seed, idle=0.2)
    assert bench.run_until_error() is Error.OUT_OF_WINDOW
    assert not bench.retired.taken
    window = slice(BASE, BASE + DRAM_BYTES)
    bench.image[window] = bench.before[window]
    np.testing.assert_array_equal(bench.image, bench.before)


def test_failed_responses_stop_the_machine():
    configuration = CONFIGURATIONS["8x16"]
    program = [Store(source=Memory.ACT, length=256, local=0, memory=256 * i) for i in range(4)]
    bench = StoreSimulation(configuration, program, failing=frozenset({256 + 128}), latency=10)
    assert bench.run_until_error() is Error.MEMORY_RESPONSE
    assert len(bench.retired.taken) == 1


def test_stop_completes_what_was_requested_and_nothing_more():
    configuration = CONFIGURATIONS["16x16"]
    program = [Store(source=Memory.ACT, length=128, local=0, memory=128 * i) for i in range(30)]
    bench = StoreSimulation(configuration, program, idle=0.1, latency=15)

    def stopped_and_dry(ctx):
        if bench.memory.cycle == 60:
            ctx.set(bench.unit.stop, 1)
        return bench.memory.cycle > 60 and not ctx.get(bench.unit.busy)

    bench.run(stopped_and_dry)
    assert not bench.memory.requests
    assert not bench.memory.beats
    assert not bench.memory.responses
    assert 0 < len(bench.memory.burst_beats) < 30

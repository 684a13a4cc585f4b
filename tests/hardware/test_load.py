"""LOAD with the read arbiter against the instruction's NumPy semantics."""

import random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from tilewright.hardware.load import DESTINATIONS, LoadUnit
from tilewright.hardware.read_arbiter import ReadArbiter
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.instructions import Load, Loop
from tilewright.isa.legality import instruction_faults
from tilewright.isa.pipeline import PLACING_CYCLES
from tilewright.isa.registers import Error
from tilewright.isa.semantics import Machine

from .axi_memory import CommandSource, ReadMemory, Sink, simulate
from .simulated import simulated
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


class WrittenScratchpads:
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


class LoadSimulation:
    """One run of a program of LOADs."""

    def __init__(self, configuration, program, seed=0, idle=0.0, latency=1, failing=frozenset()):
        generator = random.Random(seed)
        self.configuration = configuration
        self.dram = np.random.default_rng(seed).integers(0, 256, DRAM_BYTES, np.uint8)
        image = np.concatenate([np.full(BASE, 0xEE, np.uint8), self.dram, np.zeros(4096, np.uint8)])
        self.simulated = simulated(LoadWithArbiter, configuration)
        self.top = self.simulated.top
        unit = self.top.unit
        commands = [command_bits(load, configuration) for load in program]
        self.source = CommandSource(unit.commands, commands, generator, idle)
        self.retired = Sink(unit.retired, generator, idle)
        self.scratchpads = WrittenScratchpads(unit, configuration)
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
        machine = Machine(self.configuration, self.dram)
        for load in self.program:
            machine.execute(load)
        for memory in DESTINATIONS:
            got, expected = self.scratchpads.memories[memory].reshape(-1), machine.memories[memory]
            np.testing.assert_array_equal(got, expected, err_msg=memory.name)


@pytest.mark.parametrize(
    "seed", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_programs_load_what_the_semantics_says(name, seed):
    configuration, generator = CONFIGURATIONS[name], random.Random(seed)
    program = [random_transfer(generator, configuration, Load, DRAM_BYTES) for _ in range(10)]
    idle = (0.0, 0.2, 0.5)[seed]
    bench = LoadSimulation(configuration, program, seed, idle, latency=generator.choice((1, 4, 9)))
    bench.run()
    bench.check()


PACKING = {
    "a row a beat": PRESETS["8x16"].replace(packed_weights="int4"),
    "several rows a beat": PRESETS["8x8"].replace(packed_weights="int4", bus_bits=128),
    "several beats a row": PRESETS["8x16"].replace(packed_weights="int4", bus_bits=32),
    "two lanes, single beats": CONFIGURATIONS["single beats"].replace(packed_weights="int4"),
}


@pytest.mark.parametrize("idle", [0.0, 0.4])
@pytest.mark.parametrize("name", PACKING)
def test_packed_tiles_are_unpacked_between_other_loads(name, idle):
    """At any place of a burst, in one run or several, forwards and backwards."""
    configuration = PACKING[name]
    packed, tile = configuration.packed_tile_bytes, configuration.tile_bytes
    step = min(configuration.packed_row_bytes, configuration.bus_bytes)
    other = Load(destination=Memory.WGT, length=3, memory=7, local=5 * tile - 1)
    program = [
        Load(destination=Memory.WGT, unpack=True, length=2 * packed, memory=13 * step, local=tile),
        other,
        Load(
            destination=Memory.WGT, unpack=True, length=packed, memory=3 * packed, local=5 * tile,
            loops=(Loop(3, (-packed + step, -tile)),),
        ),
        Load(destination=Memory.ACT, length=9, memory=5, local=2),
        Load(destination=Memory.WGT, fill=True, value=3, length=tile, local=6 * tile + 1),
    ]  # fmt: skip
    for load in program:
        assert not list(instruction_faults(load, configuration, DRAM_BYTES))
    bench = LoadSimulation(configuration, program, 3, idle, latency=4)
    bench.run()
    bench.check()


def test_packed_tiles_take_a_row_or_a_beat_every_cycle():
    configuration = PACKING["a row a beat"]
    length = 3 * configuration.packed_tile_bytes
    bench = LoadSimulation(
        configuration, [Load(destination=Memory.WGT, unpack=True, length=length, local=0)] * 2
    )
    bench.run()
    cycles = bench.scratchpads.write_cycles
    assert cycles[-1] - cycles[0] + 2 == 2 * length // configuration.bus_bytes


TRANSPOSING = {
    "beats below a row": PRESETS["8x16"].replace(transposed_weights="int8", bus_bits=32),
    "rows below a beat": PRESETS["8x8"].replace(transposed_weights="int8", bus_bits=128),
    "packed too": PRESETS["8x16"].replace(transposed_weights="int8", packed_weights="int4"),
    "single beats": CONFIGURATIONS["single beats"].replace(transposed_weights="int8"),
}


@pytest.mark.parametrize("idle", [0.0, 0.4])
@pytest.mark.parametrize("name", TRANSPOSING)
def test_columns_are_transposed_between_other_loads(name, idle):
    """From any byte of a beat, in one burst or several, forwards and backwards."""
    configuration = TRANSPOSING[name]
    row, lanes = configuration.lanes_out, configuration.lanes_in
    longest = min(configuration.rows(Memory.WGT), 2 * configuration.burst_bytes + 3)
    turned = {"destination": Memory.WGT, "transpose": True}
    program = [
        Load(**turned, length=longest, memory=5, local=1),
        Load(destination=Memory.WGT, length=3, memory=7, local=5 * row - 1),
        Load(**turned, length=lanes, memory=3, local=0, loops=(Loop(row, (2 * lanes + 1, 1)),)),
        Load(destination=Memory.ACT, length=9, memory=5, local=2),
        Load(**turned, length=1, memory=77, local=row - 1),
        Load(destination=Memory.WGT, fill=True, value=3, length=row, local=6 * row + 1),
        Load(**turned, length=lanes, memory=300, local=2 * row, loops=(Loop(2, (-lanes, -1)),)),
    ]
    for load in program:
        assert not list(instruction_faults(load, configuration, DRAM_BYTES))
    bench = LoadSimulation(configuration, program, 3, idle, latency=4)
    bench.run()
    bench.check()


def test_a_transposed_byte_is_written_every_cycle():
    configuration = TRANSPOSING["beats below a row"]
    runs = Loop(6, (24, 1))
    load = Load(destination=Memory.WGT, transpose=True, length=24, memory=0, local=0, loops=(runs,))
    bench = LoadSimulation(configuration, [load], latency=30)
    bench.run()
    bench.check()
    cycles = bench.scratchpads.write_cycles
    assert cycles[-1] - cycles[0] == 6 * 24 - 1


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8"])
@pytest.mark.parametrize("destination", [Memory.ACT, Memory.WGT, Memory.PARAM])
def test_aligned_loads_take_a_beat_every_cycle_whatever_the_latency(name, destination):
    configuration = CONFIGURATIONS[name]
    beats = 2 * configuration.burst_beats
    length = beats * configuration.bus_bytes
    program = [
        Load(destination=destination, length=length, memory=0, local=length * i) for i in range(3)
    ]
    bench = LoadSimulation(configuration, program, latency=30)
    bench.run()
    bench.check()
    cycles = bench.memory.beat_cycles
    per_beat = max(1, configuration.bus_bytes // configuration.row_bytes(destination))
    assert cycles[-1] - cycles[0] == (3 * beats - 1) * per_beat


def test_short_runs_lose_no_cycle():
    configuration = CONFIGURATIONS["16x16"].replace(outstanding_bursts=16)
    runs = Loop(40, (32, 16))
    program = [Load(destination=Memory.ACT, length=16, memory=0, local=0, loops=(runs,))]
    bench = LoadSimulation(configuration, program, latency=16)
    bench.run()
    bench.check()
    requests, beats = bench.memory.requests, bench.memory.beat_cycles
    assert [cycle for cycle, _, _ in requests[:16]] == list(
        range(requests[0][0], requests[0][0] + 16)
    )
    assert beats[-1] - beats[0] == 2 * 40 - 1


def test_at_most_the_configured_bursts_are_in_flight():
    configuration = CONFIGURATIONS["8x16"].replace(outstanding_bursts=4)
    program = [Load(destination=Memory.ACT, length=2048, memory=0, local=0)]
    bench = LoadSimulation(configuration, program, latency=200)
    bench.run()
    bench.check()
    first_beat = bench.memory.beat_cycles[0]
    early = [cycle for cycle, _, _ in bench.memory.requests if cycle < first_beat]
    assert len(early) == configuration.outstanding_bursts


def test_fills_write_a_row_every_cycle_after_the_documented_start():
    configuration = CONFIGURATIONS["16x16"]
    program = [
        Load(destination=Memory.ACT, fill=True, value=0x80, length=16 * 20, local=160),
        Load(destination=Memory.PARAM, fill=True, value=3, length=128 * 3, local=0),
    ]
    bench = LoadSimulation(configuration, program)
    bench.run()
    bench.check()
    writes, accepted = bench.scratchpads.write_cycles, bench.source.accepted
    first = accepted[0] + 6 + PLACING_CYCLES
    assert writes == list(range(first, first + 23))
    assert bench.retired.cycles == [writes[19], writes[22]]


def test_first_beat_is_requested_and_written_after_the_documented_cycles():
    configuration = CONFIGURATIONS["16x16"]
    bench = LoadSimulation(
        configuration, [Load(destination=Memory.WGT, length=8, memory=0, local=0)], latency=4
    )
    bench.run()
    accepted = bench.source.accepted[0]
    assert bench.memory.requests[0][0] == accepted + 4
    assert bench.scratchpads.write_cycles == [bench.memory.beat_cycles[0] + PLACING_CYCLES]
    assert bench.retired.cycles == bench.scratchpads.write_cycles


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_leave_the_window_are_not_requested(seed):
    configuration, generator = CONFIGURATIONS["4x4"], random.Random(seed)
    program = [random_transfer(generator, configuration, Load, DRAM_BYTES, stays=False)]
    bench = LoadSimulation(configuration, program, seed, idle=0.2)
    assert bench.run_until_error() is Error.OUT_OF_WINDOW
    assert not bench.retired.taken
    for _, address, beats in bench.memory.requests:
        assert BASE // configuration.bus_bytes * configuration.bus_bytes <= address
        assert address + (beats - 1) * configuration.bus_bytes < BASE + DRAM_BYTES


@pytest.mark.parametrize(("memory", "legal"), [(DRAM_BYTES - 24, True), (DRAM_BYTES - 23, False)])
def test_the_last_byte_of_the_window_is_inside(memory, legal):
    configuration = CONFIGURATIONS["16x16"]
    bench = LoadSimulation(
        configuration, [Load(destination=Memory.ACT, length=24, memory=memory, local=0)]
    )
    if legal:
        bench.run()
        bench.check()
    else:
        assert bench.run_until_error() is Error.OUT_OF_WINDOW


def test_addresses_do_not_wrap_into_the_window():
    configuration = CONFIGURATIONS["tiny"]
    back = Loop(2, (-64, 0))
    program = [Load(destination=Memory.ACT, length=4, memory=60, local=0, loops=(back,))]
    assert LoadSimulation(configuration, program).run_until_error() is Error.OUT_OF_WINDOW
    forward = Loop(2, ((1 << configuration.address_bits) - 1, 0))
    program = [Load(destination=Memory.ACT, length=4, memory=60, local=0, loops=(forward,))]
    assert LoadSimulation(configuration, program).run_until_error() is Error.OUT_OF_WINDOW


def test_a_failed_beat_stops_the_machine_and_drains():
    configuration = CONFIGURATIONS["8x16"]
    program = [Load(destination=Memory.ACT, length=256, memory=256 * i, local=0) for i in range(8)]
    bench = LoadSimulation(configuration, program, failing=frozenset({256 + 128}), latency=10)
    assert bench.run_until_error() is Error.MEMORY_RESPONSE
    assert len(bench.retired.taken) == 1
    assert not bench.memory.waiting


def test_stop_drains_what_was_requested_and_nothing_more():
    configuration = CONFIGURATIONS["16x16"]
    program = [Load(destination=Memory.ACT, length=128, memory=128 * i, local=0) for i in range(30)]
    bench = LoadSimulation(configuration, program, idle=0.1, latency=15)

    def stopped_and_dry(ctx):
        if bench.memory.cycle == 60:
            ctx.set(bench.unit.stop, 1)
        return bench.memory.cycle > 60 and not ctx.get(bench.unit.busy)

    bench.run(stopped_and_dry)
    assert not bench.memory.waiting
    assert 0 < len(bench.memory.requests) < 30

"""FETCH with the read arbiter: programs come out word by word, and faulty ones stop."""

import random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from tilewright.hardware.fetch import FetchUnit
from tilewright.hardware.read_arbiter import ReadArbiter
from tilewright.isa.configuration import Configuration, Memory
from tilewright.isa.encoding import encode, word_bytes
from tilewright.isa.instructions import (
    Gemm,
    Halt,
    Instruction,
    Load,
    Store,
    Sync,
    Unit,
    Vector,
    peers,
)
from tilewright.isa.registers import Error

from .axi_memory import ReadMemory, Sink, simulate
from .simulated import simulated
from .transfers import CONFIGURATIONS

BASE = 0x1060
COMBINE_LOW_BIT = 12
"""Bit position in VECTOR's word: after opcode, wait, signal, a_from_acc, to_acc."""


class FetchWithArbiter(Elaboratable):
    def __init__(self, configuration: Configuration):
        self.unit = FetchUnit(configuration)
        self.arbiter = ReadArbiter(configuration)

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = self.unit
        m.submodules.arbiter = self.arbiter
        wiring.connect(m, self.unit.requests, self.arbiter.fetch_requests)
        wiring.connect(m, self.arbiter.fetch_beats, self.unit.beats)
        return m


class FetchSimulation:
    """One run of a program, given as bytes."""

    def __init__(
        self,
        configuration: Configuration,
        code: bytes,
        seed=0,
        idle=0.0,
        latency=1,
        failing=frozenset(),
    ):
        generator = random.Random(seed)
        image = np.random.default_rng(seed).integers(0, 256, BASE + len(code) + 4096, np.uint8)
        image[BASE : BASE + len(code)] = np.frombuffer(code, np.uint8)
        self.simulated = simulated(FetchWithArbiter, configuration)
        self.top = self.simulated.top
        self.unit = unit = self.top.unit
        self.code = code
        self.image = image

        def read(ctx):
            payload = unit.instructions.payload
            fields = ("units", "is_sync", "wait", "signal", "word")
            return tuple(ctx.get(getattr(payload, field)) for field in fields)

        self.sink = Sink(unit.instructions, generator, idle, read)
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

    def run(self, stop_cycle: int | None = None) -> tuple[Error, bool]:
        """Start, run until the unit is dry, and return error and `halted`."""
        unit = self.unit
        result = (Error.NONE, False)

        def dry(ctx):
            nonlocal result
            cycle = self.memory.cycle
            ctx.set(unit.start, cycle == 2)
            if cycle == stop_cycle:
                ctx.set(unit.stop, 1)
            result = (Error(ctx.get(unit.error)), bool(ctx.get(unit.halted)))
            return cycle > 4 and not ctx.get(unit.busy)

        constants = [(unit.program_base, BASE), (unit.program_bytes, len(self.code))]
        simulate(self.simulated, [self.sink, self.memory], dry, constants)
        assert not self.memory.waiting
        return result


def random_instruction(generator: random.Random) -> Instruction:
    kind = generator.randrange(5)
    unit = Unit(generator.randrange(4)) if kind == 4 else Unit(kind)
    masks = {
        mask: frozenset(other for other in peers(unit) if generator.random() < 0.4)
        for mask in ("wait", "signal")
    }
    numbers = [generator.randrange(8) for _ in range(3)]
    if kind == 4:
        return Sync(target=unit, **masks)
    if unit is Unit.LOAD:
        return Load(destination=Memory.WGT, length=1, memory=numbers[0], local=numbers[1], **masks)
    if unit is Unit.GEMM:
        return Gemm(act=numbers[0], wgt=0, acc=numbers[2], **masks)
    if unit is Unit.VECTOR:
        return Vector(dst=numbers[0], a=numbers[1], bias=True, **masks)
    return Store(source=Memory.ACC, length=3, local=numbers[0], memory=numbers[1], **masks)


def handed_out(instruction: Instruction, configuration: Configuration):
    """Return what the dispatcher must receive of an instruction."""
    home = instruction.home
    assert home is not None
    wait, signal = (
        sum(1 << bit for bit, other in enumerate(peers(home)) if other in mask)
        for mask in (instruction.wait, instruction.signal)
    )
    word = int.from_bytes(encode(instruction, configuration), "little")
    return 1 << home, int(isinstance(instruction, Sync)), wait, signal, word


def encode_all(program, configuration: Configuration) -> bytes:
    return b"".join(encode(instruction, configuration) for instruction in program)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_every_instruction_comes_out_once_and_in_order(name, idle):
    configuration, generator = CONFIGURATIONS[name], random.Random(name)
    program = [random_instruction(generator) for _ in range(20)]
    after_halt = [random_instruction(generator) for _ in range(generator.randrange(8))]
    code = encode_all([*program, Halt(), *after_halt], configuration)
    bench = FetchSimulation(
        configuration, code, seed=5, idle=idle, latency=generator.choice((1, 12))
    )
    assert bench.run() == (Error.NONE, True)
    assert bench.sink.taken == [handed_out(i, configuration) for i in program]


def test_nothing_beyond_the_program_is_read():
    configuration = CONFIGURATIONS["16x16"]
    code = encode_all([Sync(target=Unit.LOAD)] * 5 + [Halt()], configuration)
    bench = FetchSimulation(configuration, code)
    bench.run()
    for _, address, beats in bench.memory.requests:
        assert address >= BASE
        assert address + beats * configuration.bus_bytes <= BASE + len(code)


@pytest.mark.parametrize("name", ["tiny", "16x16", "wide bus"])
def test_words_follow_each_other_as_fast_as_the_bus_brings_them(name):
    configuration = CONFIGURATIONS[name]
    code = encode_all([Sync(target=Unit.LOAD)] * 12 + [Halt()], configuration)
    bench = FetchSimulation(configuration, code)
    bench.run()
    beats_per_word = word_bytes(configuration) // configuration.bus_bytes
    cycles = bench.sink.cycles
    assert cycles[-1] - cycles[0] <= 11 * (beats_per_word + 1) + 8
    assert cycles[0] == bench.memory.beat_cycles[beats_per_word - 1] + 2


@pytest.mark.parametrize("opcode", [0, 7])
def test_an_unknown_opcode_stops_before_it(opcode):
    configuration = CONFIGURATIONS["8x16"]
    good = [Sync(target=Unit.GEMM)] * 3
    bad = opcode.to_bytes(word_bytes(configuration), "little")
    code = encode_all(good, configuration) + bad + encode_all([*good, Halt()], configuration)
    bench = FetchSimulation(configuration, code, idle=0.2)
    assert bench.run() == (Error.ILLEGAL_INSTRUCTION, False)
    assert len(bench.sink.taken) == len(good)


@pytest.mark.parametrize("extra", [(), ("difference = a - b",)])
@pytest.mark.parametrize("combine", [4, 5, 6, 7])
def test_codes_without_a_meaning_are_illegal(combine, extra):
    configuration = CONFIGURATIONS["4x4"].replace(extra_operations=extra)
    word = int.from_bytes(encode(Vector(dst=0, a=0), configuration), "little")
    word |= combine << COMBINE_LOW_BIT
    code = word.to_bytes(word_bytes(configuration), "little") + encode(Halt(), configuration)
    bench = FetchSimulation(configuration, code)
    legal = combine < len(configuration.operations)
    assert bench.run() == (Error.NONE if legal else Error.ILLEGAL_INSTRUCTION, legal)


def test_a_halt_that_waits_is_illegal():
    configuration = CONFIGURATIONS["4x4"]
    word = bytearray(encode(Halt(), configuration))
    word[0] |= 1 << 4
    assert FetchSimulation(configuration, bytes(word)).run() == (Error.ILLEGAL_INSTRUCTION, False)


@pytest.mark.parametrize("spare", [0, 1, 24])
def test_a_program_without_halt_ends_in_an_error(spare):
    configuration = CONFIGURATIONS["16x16"]
    good = [Sync(target=Unit.STORE)] * 3
    code = encode_all([*good, Halt()], configuration)
    code = code[: len(code) - word_bytes(configuration) + spare]
    bench = FetchSimulation(configuration, code, idle=0.2)
    assert bench.run() == (Error.NO_HALT, False)
    assert len(bench.sink.taken) == len(good)


def test_an_empty_program_ends_in_an_error():
    assert FetchSimulation(CONFIGURATIONS["tiny"], b"").run() == (Error.NO_HALT, False)


def test_a_failed_read_stops_before_its_word():
    configuration = CONFIGURATIONS["16x8"]
    code = encode_all([Sync(target=Unit.STORE)] * 9 + [Halt()], configuration)
    failing = frozenset({2 * word_bytes(configuration) + configuration.bus_bytes})
    bench = FetchSimulation(configuration, code, idle=0.2, failing=failing)
    assert bench.run() == (Error.MEMORY_RESPONSE, False)
    assert len(bench.sink.taken) == 2


def test_stop_drains_what_was_requested():
    configuration = CONFIGURATIONS["8x16"]
    code = encode_all([Sync(target=Unit.STORE)] * 60 + [Halt()], configuration)
    bench = FetchSimulation(configuration, code, idle=0.1, latency=9)
    assert bench.run(stop_cycle=70) == (Error.NONE, False)
    assert 0 < len(bench.sink.taken) < 60

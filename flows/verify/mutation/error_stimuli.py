"""Stimuli that stop a run early or make it wait; each is followed by a good run."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....isa.configuration import Configuration, Memory
from ....isa.encoding import encode_program, word_bytes
from ....isa.fields import pack
from ....isa.instructions import Gemm, Halt, Instruction, Load, Loop, Store, Sync, Unit, Vector
from ..programs.random_programs import random_program
from .runs import QUICK, moody_memory, prepare
from .session import FaultSession, Observation, Stimulus, StimulusRun

START, STOP = 1, 2
LONG_CYCLES = (1 << 19) + (1 << 17)
"""Cycles of the longest stimulus; higher counter bits are out of reach."""

MORE_CYCLES = tuple(cycles for bit in range(10, 18) for cycles in (1 << bit, 33))
"""Later waits of the longest stimulus: a count has each bit set, once even and once odd."""


def error_stimuli(configuration: Configuration) -> dict[str, Stimulus]:
    """Every way to stop a run early; the next run must be good."""
    bench = ErrorStimuli(configuration)
    return {
        "illegal words": bench.illegal_words,
        "programs without HALT": bench.no_halt,
        "declared sizes": bench.declared_sizes,
        "transfers outside of the window": bench.out_of_window,
        "failed responses": bench.failed_responses,
        "missing tokens": bench.missing_tokens,
        "full counters": bench.full_counters,
        "errors while units wait": bench.errors_while_waiting,
        "stops": bench.stops,
        "resets": bench.resets,
    }


class ErrorStimuli:
    """Faulty programs, prepared once; each method is a stimulus."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.word = word_bytes(configuration)
        self.chance = random.Random(99)
        self.row = configuration.row_bytes(Memory.ACT)
        self.image = np.random.default_rng(5).integers(0, 256, 4096, dtype=np.uint8)
        program, image = random_program(configuration, 77, 24, 4096)
        self.good = prepare(configuration, self.chance, program, image, QUICK)
        self.moody = moody_memory(self.chance)
        self.busy = [
            prepare(configuration, self.chance, *random_program(configuration, seed, 40, 4096))
            for seed in range(1001, 1006)
        ]

    def again(self, session: FaultSession) -> Iterator[Observation]:
        """A good program runs as usual."""
        session.harness.set_fault(0, 0)
        session.begin(self.good)
        yield session.finish()
        yield from session.results(self.good)

    def fail(
        self, session: FaultSession, run: StimulusRun, *, recovers: bool = True
    ) -> Iterator[Observation]:
        """Start and run to the interrupt; the next program runs as usual."""
        session.begin(run)
        yield session.finish()
        yield from session.results()
        if recovers:
            yield from self.again(session)

    def run(self, code: bytes, **changes) -> StimulusRun:
        """A run of words that may be illegal."""
        return replace(StimulusRun(code, self.image, QUICK), **changes)

    def encode(self, *program: Instruction) -> bytes:
        """Words of this configuration."""
        return encode_program(program, self.configuration)

    def illegal_words(self, session: FaultSession) -> Iterator[Observation]:
        """Every unknown opcode; a VECTOR with an unknown operation; HALT with tokens."""
        good = self.good.code
        for opcode in range(16):
            words = bytearray(good)
            place = 4 * self.word
            words[place] = words[place] & 0xF0 | opcode
            yield from self.fail(session, self.run(bytes(words)), recovers=opcode % 5 == 0)
        layout = Vector.layout(self.configuration)
        codes = 1 << next(field.bits for field in layout if field.name == "combine")
        for combine in range(len(self.configuration.operations), codes):
            words = bytearray(self.encode(Vector(dst=0, a=1)))
            values = Vector(dst=0, a=1).values(self.configuration) | {"combine": combine}
            words[:] = pack(layout, values).to_bytes(self.word, "little")
            code = bytes(words) + self.encode(Halt())
            yield from self.fail(session, self.run(code), recovers=False)
        for bit in range(4, 10):
            words = bytearray(self.encode(Halt()))
            words[bit // 8] |= 1 << bit % 8
            yield from self.fail(session, self.run(bytes(words)), recovers=False)

    def no_halt(self, session: FaultSession) -> Iterator[Observation]:
        """Programs that end at every beat, and an empty one."""
        load = Load(destination=Memory.ACT, length=4 * self.row, memory=256, local=0)
        code = self.encode(load, Sync(target=Unit.GEMM), load, Sync(target=Unit.STORE))
        for size in (0, 4, self.word, self.word + 4, 2 * self.word - 4, len(code)):
            yield from self.fail(session, self.run(code[:size] or b""), recovers=size == 4)

    def declared_sizes(self, session: FaultSession) -> Iterator[Observation]:
        """Programs that end long before the size given by the host."""
        load = Load(destination=Memory.ACT, length=4 * self.row, memory=256, local=0)
        code = self.encode(*[load] * 6, Halt())
        for bit in range(9, 32):
            for more in (0, self.word, 3 * self.word):
                size = (1 << bit) + more
                run = self.run(code + bytes(4096), program_bytes=size)
                yield from self.fail(session, run, recovers=False)

    def out_of_window(self, session: FaultSession) -> Iterator[Observation]:
        """Accesses outside by a byte and by a lot, above and below; the exact end is legal."""
        chance = random.Random(3)
        for length in (1, 8, 33):
            for beyond in (-1, 0, 1, 5):
                at = self.image.size - length + beyond
                load = Load(destination=Memory.ACT, length=length, memory=at, local=0)
                store = Store(source=Memory.ACT, length=length, local=0, memory=at)
                for instruction in (load, store):
                    run = self.run(self.encode(instruction, Halt()))
                    yield from self.fail(session, run, recovers=beyond == 1)
        for _ in range(24):
            length = chance.choice((1, 5, 16, 64))
            window = chance.randrange(length, self.image.size)
            for beyond in (0, 1):
                at = window - length + beyond
                load = Load(destination=Memory.ACT, length=length, memory=at, local=0)
                run = self.run(self.encode(load, Halt()), data_bytes=window)
                yield from self.fail(session, run, recovers=False)
                store = Store(source=Memory.ACT, length=length, local=0, memory=at)
                run = self.run(self.encode(store, Halt()), data_bytes=window)
                yield from self.fail(session, run, recovers=False)
        for stride in (1024, -1024, 1 << 14):
            loops = (Loop(5, (stride, 0)),)
            load = Load(destination=Memory.ACT, length=8, memory=0, local=0, loops=loops)
            loops = (Loop(5, (0, stride)),)
            store = Store(source=Memory.ACT, length=8, local=0, memory=0, loops=loops)
            for instruction in (load, store):
                run = self.run(self.encode(instruction, Halt()))
                yield from self.fail(session, run)

    def failed_responses(self, session: FaultSession) -> Iterator[Observation]:
        """Program reads, data reads and writes that memory answers with an error."""
        load = Load(
            destination=Memory.ACT, length=16, memory=256, local=0, signal=frozenset({Unit.STORE})
        )
        store = Store(
            source=Memory.ACT, length=16, local=0, memory=512, wait=frozenset({Unit.LOAD})
        )
        code = self.encode(load, store, Halt())
        run = self.run(code)
        for memory in (QUICK, self.moody):
            for low, size in (
                (run.data_base + 256, 4), (run.data_base + 268, 4), (run.data_base + 512, 4),
                (run.data_base + 524, 4), (run.program_base, 4),
                (run.program_base + self.word - 4, 4), (run.program_base + self.word, 4),
                (run.program_base + 2 * self.word, self.word),
            ):  # fmt: skip
                session.harness.set_fault(low, size)
                yield from self.fail(session, replace(run, memory=memory))

    def missing_tokens(self, session: FaultSession) -> Iterator[Observation]:
        """Every unit waits for every other one; the host reads the state and stops the run."""
        for unit in Unit:
            for other in Unit:
                if other is unit:
                    continue
                spare = Sync(target=other, signal=frozenset({u for u in Unit if u is not other}))
                wait = Sync(target=unit, wait=frozenset({other}))
                program = (*[spare] * 2, wait, wait, wait, Halt())
                session.begin(self.run(self.encode(*program)))
                yield session.go(400)
                yield from session.registers()
                session.harness.write("CONTROL", STOP)
                yield session.register("STATUS")
                yield from session.registers()
            yield from self.again(session)

    def full_counters(self, session: FaultSession) -> Iterator[Observation]:
        """Units that must wait to signal, after a SYNC and after real work, and then can or cannot.

        The checker rejects these programs, because none is needed; the hardware still waits.
        """
        work = {
            Unit.LOAD: Load(destination=Memory.ACT, length=4, memory=64, local=0),
            Unit.GEMM: Gemm(act=0, wgt=0, acc=0),
            Unit.VECTOR: Vector(dst=0, a=1, zero_point=3),
            Unit.STORE: Store(source=Memory.ACC, length=4, local=0, memory=512),
        }
        limit = self.configuration.token_limit
        for unit in Unit:
            others = frozenset(u for u in Unit if u is not unit)
            bare = Sync(target=unit, signal=others)
            real = replace(work[unit], signal=others)
            silent = work[unit]
            for body in ([bare] * 2, [real] * 2, [bare, silent, real, silent, bare, real]):
                body = (body * (limit + 2))[: limit + 4]
                given = sum(bool(i.signal) for i in body)
                takers = [Sync(target=u, wait=frozenset({unit})) for u in sorted(others)] * given
                for taken in (takers, []):
                    session.begin(self.run(self.encode(*body, *taken, Halt())))
                    if taken:
                        yield session.finish()
                    else:
                        yield session.go(600)
                    yield from session.results()
                    session.harness.write("CONTROL", STOP)
                    yield session.register("STATUS")
            yield from self.again(session)

    def errors_while_waiting(self, session: FaultSession) -> Iterator[Observation]:
        """Units wait for tokens, or to signal, when another one fails; counters must stop."""
        limit = self.configuration.token_limit
        for unit in Unit:
            for other in Unit:
                if other is unit:
                    continue
                others = frozenset(u for u in Unit if u is not unit)
                waits = Sync(target=unit, wait=others)
                full = [Sync(target=other, signal=frozenset({unit}))] * (limit + 1)
                code = self.encode(*full, waits, Halt())
                illegal = bytearray(code)
                illegal[-self.word] &= 0xF0
                session.begin(self.run(bytes(illegal)))
                yield session.finish()
                yield from session.registers()
                session.go(100)
                yield from session.registers()
        yield from self.again(session)

    def long_waits(self, session: FaultSession) -> Iterator[Observation]:
        """Long waits for counter carries: all units wait for tokens, then all to signal.

        A bit that another one inverts in every cycle is correct in every second cycle.
        """
        limit = self.configuration.token_limit
        peers = {unit: frozenset(u for u in Unit if u is not unit) for unit in Unit}
        waits = [Sync(target=unit, wait=peers[unit]) for unit in Unit]
        full = [Sync(target=unit, signal=peers[unit]) for unit in Unit] * (limit + 1)
        for program in (waits, full):
            session.begin(self.run(self.encode(*program, Halt())))
            for cycles in (LONG_CYCLES, 301, 1004, 77, 130, *MORE_CYCLES):
                yield session.go(cycles)
                yield from session.registers()
            session.harness.write("CONTROL", STOP)
            yield session.register("STATUS")

    def stops(self, session: FaultSession) -> Iterator[Observation]:
        """Stop at any moment, even after a failed or finished run; no state may remain."""
        chance = random.Random(7)
        for number, run in enumerate(self.busy * 12):
            session.begin(run)
            yield session.go(chance.randint(1, chance.choice((40, 200, 900))))
            session.harness.write("CONTROL", STOP | number % 2)
            for _ in range(3):
                yield session.register("STATUS")
            session.go(chance.choice((0, 40, 1500)))
            yield from session.registers()
            yield session.violation()
            while session.harness.read("STATUS") & 1:
                yield session.go(50)
            yield from self.again(session)

    def resets(self, session: FaultSession) -> Iterator[Observation]:
        """Reset at any moment; settings are lost, and a program runs as usual."""
        chance = random.Random(8)
        for run in self.busy * 2:
            session.begin(run)
            yield session.go(chance.randint(1, 700))
            session.harness.reset()
            yield from session.registers()
            yield from self.again(session)

"""FETCH soon hands out every word, halts at it, or reports an error, whatever its bits are."""

from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal

from tilewright.hardware.fetch import FetchUnit
from tilewright.hardware.layouts import instruction_fields
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import FAMILIES, Halt, Sync, Vector
from tilewright.isa.pipeline import FETCH_BURSTS
from tilewright.isa.registers import Error

from .bench import ProofBench, probe
from .memory import Reads
from .prove import induction
from .watch import flags_follow_level

SMALL = replace(
    PRESETS["tiny"],
    name="two beats a word",
    lanes_in=4,
    lanes_out=4,
    bus_bits=128,
    burst_beats=2,
    tile_loops=1,
    row_loops=1,
    map_loops=1,
    reduce_loops=1,
    dma_loops=1,
)


class FetchBench(ProofBench):
    """Any program at any place, a memory with any data and delays, a host that may stop."""

    def __init__(self, most_quiet: int, configuration: Configuration = SMALL) -> None:
        super().__init__()
        self.most_quiet, self.configuration = most_quiet, configuration

    def world(self, m: Module) -> None:
        configuration = self.configuration
        last = len(configuration.operations) - 1
        fetch = FetchUnit(configuration)
        inside = probe(m, "fetch", fetch)
        requested = fetch.requests.valid & fetch.requests.ready
        length = fetch.requests.payload.beats_minus_one + 1
        memory = Reads(self, m, requested, length, fetch.beats.valid, fetch.buffer_beats)
        m.d.comb += [
            fetch.start.eq(self.any(m, "start")),
            fetch.stop.eq(self.any(m, "stop")),
            fetch.program_base.eq(self.some(m, "program_base", configuration.address_bits)),
            fetch.program_bytes.eq(self.some(m, "program_bytes", 32)),
            fetch.requests.ready.eq(self.any(m, "request_taken")),
            fetch.beats.valid.eq(memory.valid),
            fetch.beats.payload.data.eq(self.any(m, "data", configuration.bus_bits)),
            fetch.beats.payload.failed.eq(self.any(m, "failed")),
            fetch.beats.payload.last.eq(memory.last),
            fetch.instructions.ready.eq(self.any(m, "instruction_taken")),
        ]

        offered = fetch.instructions.valid
        instruction = fetch.instructions.payload
        header = instruction_fields(instruction.word, Sync, configuration)
        vector = instruction_fields(instruction.word, Vector, configuration)
        opcode = header.opcode
        for family in FAMILIES:
            if family.unit is not None:
                mine = offered & (opcode == family.opcode)
                right = (instruction.units == 1 << family.unit) & ~instruction.is_sync
                self.claim(m, ~mine | right, f"{family.mnemonic} goes to its unit")
        syncs = offered & (opcode == Sync.opcode)
        right = instruction.is_sync & (instruction.units == Const(1) << header.target)
        self.claim(m, ~syncs | right, "SYNC goes to its target")
        works = reduce(or_, (opcode == f.opcode for f in FAMILIES if f is not Halt))
        self.claim(m, ~offered | works, "an opcode that is handed out is one of the units'")
        meaningless = (opcode == Vector.opcode) & (vector.combine > last)
        self.claim(m, ~offered | ~meaningless, "no VECTOR with an unknown operation is handed out")
        masks = (instruction.wait == header.wait) & (instruction.signal == header.signal)
        self.claim(m, ~offered | masks, "tokens are those of the word")

        # Every word has one of four fates, by its bits alone.
        word = Cat(inside[f"word_{index}"] for index in range(fetch.word_beats))
        header, vector = (instruction_fields(word, f, configuration) for f in (Sync, Vector))
        known = reduce(or_, (header.opcode == f.opcode for f in FAMILIES))
        unknown = (header.opcode == Vector.opcode) & (vector.combine > last)
        is_halt = header.opcode == Halt.opcode
        legal = known & ~unknown & ~(is_halt & (header.wait | header.signal).any())
        present = inside["running"] & inside["complete"]
        arrived = present & ~inside["failed"]
        judged = present & ~fetch.stop
        target = Const(1) << header.target
        for family in FAMILIES:
            if family.unit is not None:
                target = Mux(header.opcode == family.opcode, 1 << family.unit, target)
        classified = (
            (inside["legal"] == legal)
            & (inside["is_halt"] == is_halt)
            & (inside["is_sync"] == (header.opcode == Sync.opcode))
            & (~legal | is_halt | (inside["units"] == target))
        )
        self.claim(m, ~present | classified, "a complete word is classified by its bits")
        states = Cat(inside["expects"], inside["complete"])
        one = (states != 0) & ((states & (states - 1)) == 0)
        self.claim(m, ~inside["running"] | one, "a word expects one beat, or is complete")
        self.claim(m, offered == (arrived & legal & ~is_halt), "legal words are handed out")
        fates = {
            "halts": (judged & arrived & legal & is_halt, fetch.halted),
            "is_illegal": (judged & arrived & ~legal, fetch.error == Error.ILLEGAL_INSTRUCTION),
            "failed_to_arrive": (judged & inside["failed"], fetch.error == Error.MEMORY_RESPONSE),
        }
        for name, (happens, follows) in fates.items():
            words = name.replace("_", " ")
            happened, followed = Signal(name=name), Signal(name=f"{name}_before")
            starts = fetch.start & ~fetch.busy & ~fetch.stop
            m.d.sync += [happened.eq(happens), followed.eq(follows & ~starts)]
            self.claim(m, follows == (happened | followed), f"a word that {words} ends the program")

        # An end is final: what FETCH says stays until the next start.
        ended, failed = Signal(), Signal()
        starts = fetch.start & ~fetch.busy & ~fetch.stop
        m.d.sync += [
            ended.eq(fetch.halted & ~starts),
            failed.eq((fetch.error != Error.NONE) & ~starts),
        ]
        self.claim(m, ~ended | fetch.halted, "a halt stays")
        self.claim(m, ~failed | (fetch.error != Error.NONE), "an error stays")
        ends = fetch.halted | (fetch.error != Error.NONE)
        self.claim(m, ~ends | ~offered, "nothing is handed out after the end")
        self.claim(m, ~inside["running"] | ~ends, "it runs until an end")
        self.claim(m, ~(fetch.halted & (fetch.error != Error.NONE)), "one end, not two")
        handed_out = Signal()
        m.d.sync += handed_out.eq(offered & fetch.instructions.ready)
        self.claim(m, ~(fetch.halted & handed_out), "a halt is two cycles after what it follows")
        acts = offered | fetch.requests.valid
        stopped = Signal()
        m.d.sync += stopped.eq(fetch.stop)
        self.claim(m, ~stopped | ~acts, "a cycle after a stop it asks for nothing")

        # Quiet: it runs, and waits neither for memory nor for a queue.
        quiet = Signal(range(self.most_quiet + 2))
        waits = acts | (memory.bursts != 0)
        with m.If(inside["running"] & ~waits & ~fetch.stop):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += quiet.eq(0)
        self.claim(m, quiet <= self.most_quiet, "it goes on, or ends")
        self.goal(m, fetch.halted, "a program that halts")

        # Why: every beat is accounted for.
        places, negated = inside["places"], inside["negated"]
        reserved = fetch.buffer_beats - places
        count = -negated
        flags_follow_level(self, m, inside, "buffer", fetch.buffer_beats)
        stored = memory.flying + inside["buffer.level"]
        self.claim(m, reserved == stored, "a place is reserved for every beat")
        self.claim(m, places <= fetch.buffer_beats, "no more places than there are")
        self.claim(m, inside["bursts"] == memory.bursts, "bursts in flight are counted")
        self.claim(m, memory.bursts <= FETCH_BURSTS, "no more bursts than agreed")
        prepared = inside["prepared"]
        some = (count > 0) & (count <= fetch.burst_beats) & (count <= inside["left_beats"])
        self.claim(m, ~prepared | some, "a request is neither empty nor too long")
        fits = reserved + count <= fetch.buffer_beats
        self.claim(m, ~prepared | fits, "a request has room for its beats")
        ahead = prepared & (memory.bursts == FETCH_BURSTS)
        self.claim(m, ~ahead, "a request has room for its burst")


# Words of two beats, and of eight. What is quiet longest is a buffered word being put together.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("configuration", "most_quiet"),
    [
        pytest.param(SMALL, 8, id="small"),
        pytest.param(PRESETS["tiny"], 12, id="tiny"),
    ],
)
def test_every_word_is_handed_out_or_ends_the_program(prover, configuration, most_quiet):
    prover.proves(FetchBench(most_quiet, configuration), induction(most_quiet + 2))


@pytest.mark.slow
def test_the_proof_of_fetch_can_fail(prover):
    prover.refutes(FetchBench(most_quiet=1), "it goes on, or ends")
    prover.reaches(FetchBench(8), "a program that halts")

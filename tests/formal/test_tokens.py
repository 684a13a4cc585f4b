"""Token gates: each instruction takes and gives its tokens exactly once."""

from dataclasses import replace

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal

from tilewright.hardware.token_gate import TokenGate
from tilewright.hardware.tokens import TokenCounters
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Store, Unit, peers

from .bench import ProofBench
from .watch import watch_order

TINY = replace(PRESETS["tiny"], name="two commands")
IN_FLIGHT = 2


class TokensBench(ProofBench):
    """Units that take tokens that are there and give tokens for which there is room."""

    def __init__(self, careless: bool = False) -> None:
        super().__init__()
        self.careless = careless

    def world(self, m: Module) -> None:
        m.submodules.tokens = tokens = TokenCounters(TINY)
        for unit in Unit:
            takes = self.any(m, f"takes_{unit.name}", len(peers(unit)))
            gives = self.any(m, f"gives_{unit.name}", len(peers(unit)))
            m.d.comb += [
                tokens.consume[unit].eq(takes & tokens.available[unit]),
                tokens.produce[unit].eq(gives & (tokens.room[unit] | (-1 if self.careless else 0))),
            ]
        for giver in Unit:
            for bit, taker in enumerate(peers(giver)):
                back = peers(taker).index(giver)
                pair = f"{giver.name} to {taker.name}"
                held = Signal(range(TINY.token_limit + 2), name=f"held_{giver.name}_{taker.name}")
                gives, takes = tokens.produce[giver][bit], tokens.consume[taker][back]
                m.d.sync += held.eq(held + gives - takes)
                self.claim(m, tokens.counts[taker][back] == held, f"{pair}: given minus taken")
                self.claim(m, tokens.available[taker][back] == (held != 0), f"{pair}: available")
                full = held == TINY.token_limit
                self.claim(m, tokens.room[giver][bit] == ~full, f"{pair}: room")
                if giver is Unit.LOAD and taker is Unit.GEMM:
                    self.goal(m, full, "a full counter")


def test_a_counter_holds_what_was_given_and_not_taken(prover):
    prover.proves(TokensBench())


@pytest.mark.slow
def test_the_proof_of_tokens_can_fail(prover):
    prover.refutes(TokensBench(careless=True), "given minus taken")
    prover.reaches(TokensBench(), "a full counter")


class GateBench(ProofBench):
    """A gate between arbitrary instructions, arbitrary tokens and a unit of arbitrary speed.

    The bench watches the lowest and the highest bit of a command; the gate inspects no bit.
    """

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        m.submodules.gate = gate = TokenGate(Store, TINY, IN_FLIGHT)
        layout = gate.instructions.payload.shape()
        working = Signal(range(IN_FLIGHT + 2))
        accepts = gate.commands.valid & gate.commands.ready
        retires = gate.retired.valid & gate.retired.ready
        m.d.sync += working.eq(working + accepts - retires)
        m.d.comb += [
            gate.instructions.valid.eq(self.any(m, "valid")),
            gate.instructions.payload.eq(self.any(m, "instruction", layout)),
            gate.available.eq(self.any(m, "available", len(gate.available))),
            gate.room.eq(self.any(m, "room", len(gate.room))),
            gate.commands.ready.eq(self.any(m, "unit_ready")),
            gate.retired.valid.eq(self.any(m, "unit_done") & (working != 0)),
        ]

        # A token that is there stays until it is taken, as the proof of the counters says.
        stays = Signal.like(gate.available)
        m.d.sync += stays.eq(gate.available & ~gate.consume)
        self.assume(m, ~(stays & ~gate.available).any())

        def ends(command):
            bits = command.as_value()
            return Cat(bits[0], bits[-1])

        # At its start an instruction takes its tokens, and its command goes to the unit unless it
        # is a SYNC; at its end it gives its tokens, and the unit's retirement is taken.
        enters = gate.instructions.valid & gate.instructions.ready
        entering = gate.instructions.payload
        consumed = gate.consume
        if self.fault == "token":
            consumed = gate.consume & self.any(m, "loses", len(gate.consume))
        waits = watch_order(
            self,
            m,
            "start",
            enters,
            Cat(entering.is_sync, entering.wait, Mux(entering.is_sync, 0, ends(entering.command))),
            gate.started,
            Cat(~accepts, consumed, Mux(accepts, ends(gate.commands.payload), 0)),
            TINY.queue_depth,
        )
        watch_order(
            self,
            m,
            "end",
            enters,
            Cat(entering.is_sync, entering.signal),
            gate.ended,
            Cat(~retires, gate.produce),
            TINY.queue_depth + IN_FLIGHT,
        )
        started = Signal(range(IN_FLIGHT + 2))
        m.d.sync += started.eq(started + gate.started - gate.ended)
        self.claim(m, started <= IN_FLIGHT, "no more started than are remembered")
        self.claim(m, ~gate.ended | (started != 0), "what ends has started")
        for name, moves, acts in (
            ("start", gate.started, gate.consume.any() | accepts),
            ("end", gate.ended, gate.produce.any() | retires),
        ):
            self.claim(m, moves | ~acts, f"tokens and commands move only at a {name}")
        self.claim(m, ~(gate.consume & ~gate.available).any(), "only tokens that are there")
        self.claim(m, ~(gate.produce & ~gate.room).any(), "only tokens for which there is room")
        # An instruction is seen two cycles after it entered; FETCH says later than that that it
        # has halted, so that the end of a run is never reported too early.
        entered = Signal()
        m.d.sync += entered.eq(enters)
        nothing = (waits == 0) & (started == 0)
        self.claim(m, ~gate.dry | entered | nothing, "dry is empty, but for what just entered")
        self.goal(m, (started == IN_FLIGHT) & (waits == TINY.queue_depth), "full")


@pytest.mark.slow
def test_a_gate_starts_and_ends_every_instruction_once_with_its_tokens(prover):
    prover.proves(GateBench())


@pytest.mark.slow
def test_the_proof_of_gates_can_fail(prover):
    prover.refutes(GateBench(fault="token"), "start: what leaves is what entered")
    prover.reaches(GateBench(), "full")

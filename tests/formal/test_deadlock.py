"""A program that the checker accepts never deadlocks, however long its instructions take."""

from dataclasses import replace
from functools import reduce
from operator import and_, or_

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from tilewright.hardware.dispatcher import FAMILY_OF, Dispatcher
from tilewright.hardware.token_gate import TokenGate
from tilewright.hardware.tokens import TokenCounters
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Unit, peers

from .bench import ProofBench
from .prove import unrolled

SMALL = replace(PRESETS["tiny"], name="one place in each queue", queue_depth=1)
IN_FLIGHT = 1
SETTLES = 3
"""Cycles for which an instruction can pass through a queue while nothing else moves."""


class MachineBench(ProofBench):
    """Dispatcher, gates and tokens as in the core; units take any time for each instruction.

    The program is endless, and any that the checker accepts: in program order, each wait finds a
    token and no counter exceeds its limit. It may use only the first `units` units, which makes
    the proof smaller.
    """

    def __init__(self, units: int, unchecked: str = "") -> None:
        super().__init__()
        self.units = list(Unit)[:units]
        self.unchecked = unchecked

    def world(self, m: Module) -> None:
        m.submodules.dispatcher = dispatcher = Dispatcher(SMALL)
        m.submodules.tokens = tokens = TokenCounters(SMALL)
        offered = dispatcher.instructions
        instruction = offered.payload
        m.d.comb += [
            offered.valid.eq(self.any(m, "offered")),
            instruction.units.eq(self.any(m, "units", len(Unit))),
            instruction.is_sync.eq(self.any(m, "is_sync")),
            instruction.wait.eq(self.any(m, "wait", 3)),
            instruction.signal.eq(self.any(m, "signal", 3)),
        ]
        self.keep_offer(m, offered)
        self.check(m, offered)

        moves, waits_for_unit, inside = [offered.valid & offered.ready], [], []
        for unit in Unit:
            gate = TokenGate(FAMILY_OF[unit], SMALL, IN_FLIGHT)
            m.submodules[f"{unit.name.lower()}_gate"] = gate
            wiring.connect(m, getattr(dispatcher, unit.name.lower()), gate.instructions)
            working = Signal(range(IN_FLIGHT + 2), name=f"{unit.name}_working")
            accepts = gate.commands.valid & gate.commands.ready
            retires = gate.retired.valid & gate.retired.ready
            m.d.sync += working.eq(working + accepts - retires)
            m.d.comb += [
                gate.available.eq(tokens.available[unit]),
                gate.room.eq(tokens.room[unit]),
                tokens.consume[unit].eq(gate.consume),
                tokens.produce[unit].eq(gate.produce),
                gate.commands.ready.eq(self.any(m, f"{unit.name}_ready")),
                gate.retired.valid.eq(self.any(m, f"{unit.name}_done") & (working != 0)),
            ]
            held = Signal(range(8), name=f"{unit.name}_held")
            enters = gate.instructions.valid & gate.instructions.ready
            m.d.sync += held.eq(held + enters - gate.ended)
            inside.append(held != 0)
            moves += [gate.started, gate.ended]
            unfinished = (working != 0) & ~gate.retired.valid
            waits_for_unit += [gate.commands.valid & ~gate.commands.ready, unfinished]

        still = Signal(range(SETTLES + 2))
        something = offered.valid | reduce(or_, inside)
        waits = reduce(or_, moves + waits_for_unit)
        with m.If(something & ~waits & (still <= SETTLES)):
            m.d.sync += still.eq(still + 1)
        with m.Elif(waits | ~something):
            m.d.sync += still.eq(0)
        self.claim(m, still <= SETTLES, "while no unit works, the machine goes on by itself")
        self.goal(m, reduce(and_, inside[: len(self.units)]), "all units have instructions")

    def keep_offer(self, m: Module, offered) -> None:
        """Assume that an instruction stays offered until it is taken, as FETCH does."""
        payload = offered.payload
        now = [payload.units, payload.is_sync, payload.wait, payload.signal]
        waiting = Signal()
        m.d.sync += waiting.eq(offered.valid & ~offered.ready)
        self.assume(m, ~waiting | offered.valid)
        for index, value in enumerate(now):
            before = Signal(len(value), name=f"offer_{index}")
            m.d.sync += before.eq(value)
            self.assume(m, ~waiting | (value == before))
        self.assume(m, reduce(or_, (payload.units == 1 << unit for unit in self.units)))

    def check(self, m: Module, offered) -> None:
        """Assume the checker's rules for the token counts in program order."""
        payload = offered.payload
        takes = offered.valid & offered.ready
        limit = SMALL.token_limit
        for giver in Unit:
            for bit, taker in enumerate(peers(giver)):
                back = peers(taker).index(giver)
                gives = payload.units[giver] & payload.signal[bit]
                waits = payload.units[taker] & payload.wait[back]
                if giver not in self.units or taker not in self.units:
                    self.assume(m, ~(gives | waits))
                    continue
                pending = Signal(range(limit + 1), name=f"{giver.name}_to_{taker.name}")
                m.d.sync += pending.eq(pending + (takes & gives) - (takes & waits))
                if self.unchecked != "waits":
                    self.assume(m, ~offered.valid | ~waits | (pending != 0))
                if self.unchecked != "limit":
                    self.assume(m, ~offered.valid | ~gives | (pending != limit))


@pytest.mark.slow
def test_checked_programs_for_three_units_do_not_stop_halfway(prover):
    """Programs for two units are among them."""
    prover.proves(MachineBench(3))


@pytest.mark.slow
def test_checked_programs_for_all_units_do_not_stop_halfway(prover):
    prover.proves(MachineBench(4), unrolled(12))


@pytest.mark.slow
def test_the_proof_of_progress_can_fail(prover):
    prover.refutes(MachineBench(2, unchecked="waits"), "goes on by itself")
    prover.reaches(MachineBench(4), "all units have instructions")

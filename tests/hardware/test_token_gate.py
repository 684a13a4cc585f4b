"""Token gates and counters against a model of the contract's token rules."""

import random
from collections import deque

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from tilewright.hardware.dispatcher import FAMILY_OF
from tilewright.hardware.layouts import MASK_BITS
from tilewright.hardware.token_gate import TokenGate
from tilewright.hardware.tokens import TokenCounters
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Unit, peers

CONFIGURATION = PRESETS["tiny"]
IN_FLIGHT = 3


class GateHarness(wiring.Component):
    """All token gates with the counters between them; the test acts as the units."""

    def __init__(self):
        self.gates = {unit: TokenGate(FAMILY_OF[unit], CONFIGURATION, IN_FLIGHT) for unit in Unit}
        self.tokens = TokenCounters(CONFIGURATION)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.tokens = self.tokens
        for unit, gate in self.gates.items():
            m.submodules[unit.name.lower()] = gate
            m.d.comb += [
                gate.available.eq(self.tokens.available[unit]),
                gate.room.eq(self.tokens.room[unit]),
                self.tokens.consume[unit].eq(gate.consume),
                self.tokens.produce[unit].eq(gate.produce),
            ]
        return m


def simulate(bench: GateHarness, process) -> None:
    simulator = Simulator(bench)
    simulator.add_clock(1e-6)
    simulator.add_testbench(process)
    simulator.run()


def random_program(generator: random.Random, length: int):
    """(unit, is_sync, waits, signals) in program order, so that waits meet earlier signals."""
    tokens = dict.fromkeys(((a, b) for a in Unit for b in Unit), 0)
    program = []
    for _ in range(length):
        unit = generator.choice(list(Unit))
        waits = [u for u in peers(unit) if tokens[u, unit] and generator.random() < 0.6]
        signals = [
            u
            for u in peers(unit)
            if tokens[unit, u] < CONFIGURATION.token_limit and generator.random() < 0.3
        ]
        for other in waits:
            tokens[other, unit] -= 1
        for other in signals:
            tokens[unit, other] += 1
        program.append((unit, generator.random() < 0.2, waits, signals))
    return program


def mask(unit: Unit, units) -> int:
    return sum(1 << bit for bit, other in enumerate(peers(unit)) if other in units)


@pytest.mark.parametrize("seed", range(6))
def test_instructions_start_and_signal_as_their_tokens_say(seed):
    generator = random.Random(seed)
    program = random_program(generator, 60)
    bench = GateHarness()
    queues = {u: deque(p for p in program if p[0] is u) for u in Unit}
    started = {u: deque() for u in Unit}  # started, not yet retired, in order
    running = {u: deque() for u in Unit}  # what a unit works on
    tokens = dict.fromkeys(((a, b) for a in Unit for b in Unit), 0)
    offered = deque(program)
    retired = 0

    async def process(ctx):
        nonlocal retired
        for _ in range(3000):
            for gate in bench.gates.values():
                ctx.set(gate.instructions.valid, 0)
            if offered and generator.random() < 0.8:
                unit, is_sync, waits, signals = offered[0]
                payload = bench.gates[unit].instructions.payload
                ctx.set(bench.gates[unit].instructions.valid, 1)
                ctx.set(payload.is_sync, is_sync)
                ctx.set(payload.wait, mask(unit, waits))
                ctx.set(payload.signal, mask(unit, signals))
                if ctx.get(bench.gates[unit].instructions.ready):
                    offered.popleft()
            for unit, gate in bench.gates.items():
                ctx.set(gate.commands.ready, generator.random() < 0.7)
                ctx.set(gate.retired.valid, bool(running[unit]) and generator.random() < 0.5)
            begins = [u for u, gate in bench.gates.items() if ctx.get(gate.started)]
            ends = [u for u, gate in bench.gates.items() if ctx.get(gate.ended)]
            takes = [
                u
                for u, g in bench.gates.items()
                if ctx.get(g.retired.valid) and ctx.get(g.retired.ready)
            ]
            before = dict(tokens)
            for unit in ends:
                _, is_sync, _, signals = started[unit].popleft()
                assert is_sync == (unit not in takes)
                for other in signals:
                    assert before[unit, other] < CONFIGURATION.token_limit
                    tokens[unit, other] += 1
                retired += 1
            for unit in takes:
                running[unit].popleft()
            for unit in begins:
                instruction = queues[unit].popleft()
                started[unit].append(instruction)
                if not instruction[1]:
                    running[unit].append(instruction)
                for other in instruction[2]:
                    assert before[other, unit] > 0
                    tokens[other, unit] -= 1
            await ctx.tick()
            for unit in Unit:
                shown = [int(ctx.get(bench.tokens.counts[unit][bit])) for bit in range(MASK_BITS)]
                assert shown == [tokens[other, unit] for other in peers(unit)]
            if retired == len(program):
                return
        raise AssertionError(f"{retired} of {len(program)} instructions retired")

    simulate(bench, process)
    assert not any(queues.values())


def test_a_full_counter_holds_the_signal_back():
    bench = GateHarness()
    gate = bench.gates[Unit.GEMM]
    bit = peers(Unit.GEMM).index(Unit.STORE)

    async def process(ctx):
        payload = gate.instructions.payload
        ctx.set(payload.is_sync, 1)
        ctx.set(payload.signal, 1 << bit)
        ctx.set(gate.instructions.valid, 1)
        await ctx.tick().repeat(30)
        assert ctx.get(gate.state.waiting_to_signal) == 1
        assert not ctx.get(gate.instructions.ready)
        counts = bench.tokens.counts[Unit.STORE]
        assert ctx.get(counts[peers(Unit.STORE).index(Unit.GEMM)]) == CONFIGURATION.token_limit

    simulate(bench, process)


def test_a_missing_token_is_shown():
    bench = GateHarness()
    gate = bench.gates[Unit.STORE]

    async def process(ctx):
        ctx.set(gate.instructions.payload.wait, 0b101)
        ctx.set(gate.instructions.valid, 1)
        await ctx.tick()
        ctx.set(gate.instructions.valid, 0)
        await ctx.tick().repeat(5)
        assert ctx.get(gate.state.waiting) == 0b101
        assert ctx.get(gate.state.queued) == 1
        assert not ctx.get(gate.started)

    simulate(bench, process)

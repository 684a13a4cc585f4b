"""The estimate: counts of a transfer are exact; times follow the causes that they should."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.hardware import fetch, gemm, in_flight, read_arbiter
from tilewright.isa.configuration import DEFAULT, PRESETS, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Gemm, Halt, Load, Loop, Store, Unit, Vector
from tilewright.isa.random_programs import random_program
from tilewright.sim import estimate as estimate_module
from tilewright.sim.estimate import estimate, transfer
from tilewright.sim.memory_model import MemoryModel
from tilewright.sim.rtl import RtlCore


def count_by_hand(instruction, configuration):
    """Walk every byte: pieces, beats, bursts."""
    memory = instruction.destination if isinstance(instruction, Load) else instruction.source
    row, beat, burst = (
        configuration.row_bytes(memory),
        configuration.bus_bytes,
        configuration.burst_bytes,
    )
    pieces = beats = bursts = 0
    for local, remote in zip(
        instruction.addresses("local"), instruction.addresses("memory"), strict=True
    ):
        places = np.arange(instruction.length)
        rows, lines = (local + places) // row, (remote + places) // beat
        pieces += 1 + int(np.count_nonzero(np.diff(rows) | np.diff(lines)))
        beats += np.unique(lines).size
        bursts += np.unique((remote + places) // burst).size
    return pieces, beats, bursts


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["tiny", "4x4", "8x16", "16x8", "16x16"]),
    source=st.sampled_from([Memory.ACT, Memory.ACC]),
    length=st.integers(1, 200),
    local=st.integers(0, 300),
    remote=st.integers(0, 5000),
    strides=st.tuples(st.integers(0, 40), st.integers(0, 300)),
)
def test_transfers_are_counted_exactly(name, source, length, local, remote, strides):
    store = Store(
        source=source, length=length, local=local, memory=remote, loops=(Loop(4, strides),)
    )
    counted = transfer(store, PRESETS[name])
    expected = count_by_hand(store, PRESETS[name])
    assert (counted.pieces, counted.beats, counted.bursts) == expected
    assert counted.bytes == 4 * length


def test_fills_touch_no_memory():
    load = Load(destination=Memory.ACT, fill=True, length=64, local=8)
    counted = transfer(load, DEFAULT)
    assert (counted.pieces, counted.beats, counted.bursts, counted.bytes) == (5, 0, 0, 0)


GEMM = Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(9, (16, 1, 0)),), row_loops=(Loop(196, (1, 1)),))


def test_a_long_gemm_takes_a_cycle_per_step():
    cycles = estimate([GEMM, Halt()], DEFAULT).cycles
    assert GEMM.steps() < cycles < GEMM.steps() + 300


def test_units_overlap_unless_tokens_forbid():
    vector = Vector(a_from_acc=True, a=1024, dst=0, map_loops=(Loop(1500, (1, 1, 0, 0)),))
    together = estimate([GEMM, vector, Halt()], DEFAULT)
    tokens = (
        replace(GEMM, signal=frozenset({Unit.VECTOR})),
        replace(vector, wait=frozenset({Unit.GEMM})),
    )
    apart = estimate([*tokens, Halt()], DEFAULT)
    assert apart.cycles > together.cycles + 1400
    assert apart.spans[1, 0] > apart.spans[0, 1]
    assert together.spans[1, 0] < together.spans[0, 1]


def test_slower_memory_never_helps():
    load = Load(
        destination=Memory.ACT, length=1024, memory=0, local=0, loops=(Loop(8, (1024, 1024)),)
    )
    program = [load, load, Halt()]
    quick = estimate(program, DEFAULT)
    assert quick.moved_bytes[Unit.LOAD] == 2 * 8192
    assert quick.cycles >= 2 * 8192 // DEFAULT.bus_bytes
    for slow in (
        MemoryModel(latency_cycles=200),
        MemoryModel(beats=1, cycles=2),
        MemoryModel(stall_probability=0.5),
    ):
        assert estimate(program, DEFAULT, slow).cycles > quick.cycles


def test_sizes_that_the_estimate_repeats_are_those_of_the_hardware():
    assert estimate_module.FETCH_BURSTS == read_arbiter.FETCH_BURSTS
    assert estimate_module.FETCH_WORDS == fetch.BUFFERED_WORDS
    assert estimate_module.TRANSFERS_IN_FLIGHT == in_flight.MOST_COMMANDS
    assert estimate_module.GEMMS_IN_FLIGHT == gemm.IN_FLIGHT


@pytest.mark.slow
def test_single_instructions_are_estimated_to_the_cycle():
    """On an idle machine; where units compete for the memory port, the estimate is lower."""
    core = RtlCore(PRESETS["tiny"], asserting=True)
    rows = (Loop(6, (1, 1)),)
    for instruction in (
        Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(5, (0, 1, 0)),), row_loops=rows),
        Vector(a=0, dst=10, map_loops=(Loop(5, (1, 1, 0, 0)),)),
        Vector(a_from_acc=True, to_acc=True, a=0, dst=8, map_loops=(Loop(7, (1, 1, 0, 0)),)),
        Load(destination=Memory.ACT, length=12, memory=64, local=0),
        Load(destination=Memory.ACT, fill=True, length=12, local=0),
        Store(source=Memory.ACT, length=16, memory=64, local=0),
    ):
        for latency in (1, 64):
            core.memory = MemoryModel(latency_cycles=latency)
            program = [instruction, Halt()]
            code = encode_program(program, PRESETS["tiny"])
            run = core.run(code, np.zeros(4096, dtype=np.uint8), program)
            time = estimate(program, PRESETS["tiny"], core.memory)
            np.testing.assert_array_equal(time.spans, run.spans(program), err_msg=str(instruction))
            assert time.cycles == run.cycles
    core.close()


@pytest.mark.parametrize("name", ["tiny", "16x16"])
def test_every_instruction_gets_a_span(name):
    for seed in range(10):
        program, _ = random_program(PRESETS[name], seed)
        time = estimate(program, PRESETS[name])
        assert (time.spans[-1] == -1).all()
        assert (time.spans[:-1, 0] >= 0).all()
        assert (time.spans[:-1, 1] >= time.spans[:-1, 0]).all()
        assert time.cycles >= time.spans.max()

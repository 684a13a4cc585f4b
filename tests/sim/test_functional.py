"""The fast simulator against the definition, on every memory, byte for byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Combine, Gemm, Halt, Load, Loop, Reduce, Store, Vector
from tilewright.isa.random_programs import random_program
from tilewright.isa.semantics import SCRATCHPADS, Machine
from tilewright.sim.functional import FunctionalMachine, reads_results, runs_overlap

TINY, SMALL = PRESETS["tiny"], PRESETS["4x4"]
DATA_BYTES = 4096


def assert_same(configuration, program, dram, scratchpads=None):
    """Run on both machines from the same state and compare every byte."""
    machines = []
    for kind in (Machine, FunctionalMachine):
        machine = kind(configuration, dram.copy())
        for memory, contents in (scratchpads or {}).items():
            machine.memories[memory][:] = contents
        machine.run(program)
        machines.append(machine)
    for memory in Memory:
        expected, got = (machine.memories[memory] for machine in machines)
        np.testing.assert_array_equal(got, expected, err_msg=memory.name)
    return machines[1]


def random_scratchpads(configuration, seed):
    draw = np.random.default_rng(seed)
    return {
        memory: draw.integers(0, 256, configuration.size_bytes(memory), dtype=np.uint8)
        for memory in SCRATCHPADS
    }


@pytest.mark.parametrize("name", ["tiny", "4x4", "8x16", "16x8"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_programs_leave_equal_memories(name, seed):
    program, dram = random_program(PRESETS[name], seed)
    assert_same(PRESETS[name], program, dram)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_gemm_equals_its_definition_from_any_state(seed):
    draw = np.random.default_rng(seed)
    acc_strides = draw.choice([0, 0, 1, 2, 8, 16], 3)
    gemm = Gemm(
        accumulate=bool(draw.integers(2)),
        act=int(draw.integers(100)),
        wgt=int(draw.integers(8)),
        acc=int(draw.integers(60)),
        tile_loops=tuple(
            Loop(int(draw.integers(1, 5)), (int(draw.integers(9)), int(draw.integers(5)), int(s)))
            for s in acc_strides
        ),
        row_loops=(Loop(int(draw.integers(1, 9)), (int(draw.integers(4)), 1)), Loop(3, (7, 16))),
    )
    assert_same(
        SMALL,
        [gemm],
        np.zeros(DATA_BYTES, dtype=np.uint8),
        random_scratchpads(SMALL, seed),
    )


def test_gemm_sums_wrap_like_the_accumulators():
    scratchpads = random_scratchpads(SMALL, 1)
    scratchpads[Memory.ACT][:] = 0x80
    scratchpads[Memory.WGT][:] = 0x80
    scratchpads[Memory.ACC].view(np.int32)[:] = np.iinfo(np.int32).max - 1
    gemm = Gemm(
        accumulate=True, act=0, wgt=0, acc=0,
        tile_loops=(Loop(500, (2, 0, 0)),), row_loops=(Loop(5, (1, 1)),),
    )  # fmt: skip
    machine = assert_same(SMALL, [gemm], np.zeros(DATA_BYTES, np.uint8), scratchpads)
    assert machine.view(Memory.ACC)[0, 0] < 0


@pytest.mark.parametrize("combine", list(Combine))
@pytest.mark.parametrize("reduce", list(Reduce))
def test_vector_equals_its_definition_from_any_state(combine, reduce):
    for seed in range(24):
        draw = np.random.default_rng([seed, combine, reduce])
        vector = Vector(
            a_from_acc=bool(draw.integers(2)),
            to_acc=bool(draw.integers(2)),
            combine=combine,
            reduce=reduce,
            a_multiplier=int(draw.integers(-(1 << 15), 1 << 15)),
            b_multiplier=int(draw.integers(-(1 << 15), 1 << 15)),
            bias=bool(draw.integers(2)),
            scale=bool(draw.integers(2)),
            zero_point=int(draw.integers(-128, 128)),
            low=int(draw.integers(-128, 0)),
            high=int(draw.integers(0, 128)),
            lookup=bool(draw.integers(2)),
            table=int(draw.integers(2)),
            dst=int(draw.integers(120)),
            a=int(draw.integers(120)),
            b=int(draw.integers(120)),
            param=int(draw.integers(60)),
            map_loops=(
                Loop(5, tuple(int(s) for s in draw.integers(0, 8, 4))),
                Loop(7, tuple(int(s) for s in draw.integers(0, 4, 4))),
            ),
            reduce_loops=(Loop(int(draw.integers(1, 4)), (1, 2)),),
        )
        assert_same(
            SMALL,
            [vector],
            np.zeros(DATA_BYTES, dtype=np.uint8),
            random_scratchpads(SMALL, seed),
        )


def test_results_read_by_later_steps_are_computed_in_order():
    running_sum = Vector(combine=Combine.ADD, dst=1, a=0, b=40, map_loops=(Loop(30, (1, 1, 1, 0)),))
    scratchpads = random_scratchpads(SMALL, 7)
    assert_same(SMALL, [running_sum], np.zeros(DATA_BYTES, np.uint8), scratchpads)


def test_overlapping_destinations_keep_the_last_run():
    dram = np.random.default_rng(3).integers(0, 256, DATA_BYTES, dtype=np.uint8)
    program = [
        Load(
            destination=Memory.ACT, length=12, memory=5, local=100,
            loops=(Loop(20, (31, 3)), Loop(9, (12, -7))),
        ),
        Load(
            destination=Memory.ACT, length=9, fill=True, value=0x81, local=120,
            loops=(Loop(3, (0, 4)), Loop(2, (0, -5))),
        ),
        Store(
            source=Memory.ACT, length=11, local=90, memory=3000,
            loops=(Loop(40, (5, -2)), Loop(3, (1, 90))),
        ),
        Halt(),
    ]  # fmt: skip
    assert_same(SMALL, program, dram)


def test_runs_overlap_only_where_they_can():
    assert not runs_overlap(4, [(3, 12), (3, 4)])
    assert not runs_overlap(4, [(3, -4)])
    assert runs_overlap(4, [(3, 3)])
    assert runs_overlap(1, [(2, 0)])
    assert runs_overlap(4, [(3, 8), (3, 4)])


def test_a_step_may_read_what_it_writes_itself():
    written = np.array([3, 4, 5])
    assert not reads_results(written, np.array([[3], [4], [5]]))
    assert not reads_results(written, np.array([[4], [5], [6]]))
    assert reads_results(written, np.array([[2], [3], [4]]))

"""The fast simulators, compiled and NumPy's, against the definition: every memory, every byte."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.flows.verify.programs.random_configurations import (
    EXTRA_OPERATIONS,
    verification_configurations,
)
from tilewright.flows.verify.programs.random_instructions import ProgramDrawing
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, SCRATCHPADS, Memory
from tilewright.isa.instructions import (
    Combine,
    Gemm,
    Halt,
    Load,
    Loop,
    ReduceMode,
    ResultKind,
    Statistic,
    Store,
    Vector,
)
from tilewright.isa.semantics import Machine
from tilewright.sim.functional import FunctionalMachine, reads_results, runs_overlap
from tilewright.sim.native import NATIVE_FLAGS
from tilewright.sim.native_functional import NativeMachine

SMALL, WIDE = PRESETS["4x4"], PRESETS["8x16"]
MORE = SMALL.replace(name="more", extra_operations=EXTRA_OPERATIONS)
DATA_BYTES = 4096


class PortableMachine(NativeMachine):
    """The compiled simulator as it is where the processor has no AVX-512 VNNI."""

    flags = (*NATIVE_FLAGS, "-DTILEWRIGHT_PORTABLE")


def fast_machines(configuration):
    """Kinds to compare; few lanes are portable in any case."""
    kinds = [FunctionalMachine, NativeMachine]
    return kinds + [PortableMachine] * (configuration.lanes_out >= 16)


def assert_same(configuration, program, dram, scratchpads=None):
    """Run on all machines from the same state and compare every byte with the definition's."""

    def after(kind):
        machine = kind(configuration, dram.copy())
        for memory, contents in (scratchpads or {}).items():
            machine.memories[memory][:] = contents
        machine.run(program)
        return machine

    reference = after(Machine)
    for kind in fast_machines(configuration):
        machine = after(kind)
        for memory in Memory:
            np.testing.assert_array_equal(
                machine.memories[memory],
                reference.memories[memory],
                err_msg=f"{kind.__name__}: {memory.name}",
            )
    return reference


def random_scratchpads(configuration, seed):
    draw = np.random.default_rng(seed)
    return {
        memory: draw.integers(0, 256, configuration.size_bytes(memory), dtype=np.uint8)
        for memory in SCRATCHPADS
    }


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_programs_leave_equal_memories(name, seed):
    program, dram = random_program(PRESETS[name], seed)
    assert_same(PRESETS[name], program, dram)


ROWS = {
    name: machine
    for name, machine in verification_configurations().items()
    if machine.row_statistics != "none"
}


@pytest.mark.parametrize("name", ROWS)
def test_random_programs_with_rows_leave_equal_memories(name):
    for seed in range(12):
        assert_same(ROWS[name], *random_program(ROWS[name], seed))


@pytest.mark.parametrize("name", ROWS)
def test_rows_equal_their_definition_from_any_state(name):
    met = set()
    for seed in range(150):
        vector = ProgramDrawing(ROWS[name], seed, DATA_BYTES).vector(60)
        if not vector.has_rows and vector.result is ResultKind.USUAL:
            continue
        met.add((vector.measured, vector.result, vector.rows() > 1, vector.row_outputs() > 1))
        scratchpads = random_scratchpads(ROWS[name], seed)
        scratchpads[Memory.PARAM][:] = random_parameters(scratchpads[Memory.PARAM].size, seed)
        assert_same(ROWS[name], [vector], np.zeros(DATA_BYTES, np.uint8), scratchpads)
    for column, values in enumerate((Statistic, ResultKind, (False, True), (False, True))):
        assert {each[column] for each in met} == set(values)


def random_parameters(size, seed):
    """Pairs of a bias and a scale, most of which neither saturate nor vanish."""
    draw = np.random.default_rng(seed)
    pairs = np.stack(
        [draw.integers(-500, 500, size // 8), draw.integers(0, 1 << 32, size // 8)], axis=-1
    )
    usual = draw.random(size // 8) < 0.8
    scales = np.exp(draw.uniform(-8, 1, size // 8)).astype(np.float32).view(np.uint32)
    pairs[usual, 1] = scales[usual]
    return pairs.astype(np.uint32).view(np.uint8).reshape(-1)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8", "32x32"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_gemm_equals_its_definition_from_any_state(name, depthwise, seed):
    draw = np.random.default_rng(seed)
    acc_strides = draw.choice([0, 0, 1, 2, 8, 16], 3)
    gemm = Gemm(
        accumulate=bool(draw.integers(2)),
        depthwise=depthwise,
        part=int(draw.integers(PRESETS[name].depthwise_parts)),
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
        PRESETS[name],
        [gemm],
        np.zeros(DATA_BYTES, dtype=np.uint8),
        random_scratchpads(PRESETS[name], seed),
    )


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("configuration", [SMALL, WIDE], ids=lambda c: c.name)
def test_gemm_sums_wrap_like_the_accumulators(configuration, depthwise):
    scratchpads = random_scratchpads(configuration, 1)
    scratchpads[Memory.ACT][:] = 0x80
    scratchpads[Memory.WGT][:] = 0x80
    scratchpads[Memory.ACC].view(np.int32)[:] = np.iinfo(np.int32).max - 1
    gemm = Gemm(
        accumulate=True, depthwise=depthwise, act=0, wgt=0, acc=0,
        tile_loops=(Loop(500, (2, 0, 0)),), row_loops=(Loop(5, (1, 1)),),
    )  # fmt: skip
    machine = assert_same(configuration, [gemm], np.zeros(DATA_BYTES, np.uint8), scratchpads)
    assert machine.view(Memory.ACC)[0, 0] < 0


@pytest.mark.parametrize("combine", MORE.operations, ids=lambda operation: operation.name)
@pytest.mark.parametrize("reduce", list(ReduceMode))
def test_vector_equals_its_definition_from_any_state(combine, reduce):
    for seed in range(24):
        draw = np.random.default_rng([seed, MORE.operations.index(combine), reduce])
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
            MORE,
            [vector],
            np.zeros(DATA_BYTES, dtype=np.uint8),
            random_scratchpads(MORE, seed),
        )


def test_an_accumulator_revisited_by_a_row_loop_sums_in_order():
    """A row that comes back overwrites where it is first, and adds where it is not."""
    for accumulate, depthwise in product((False, True), repeat=2):
        gemm = Gemm(
            accumulate=accumulate, depthwise=depthwise, act=3, wgt=1, acc=5,
            tile_loops=(Loop(3, (2, 1, 0)), Loop(2, (0, 3, 4))),
            row_loops=(Loop(4, (5, 0)), Loop(6, (1, 1))),
        )  # fmt: skip
        dram = np.zeros(DATA_BYTES, np.uint8)
        assert_same(WIDE, [gemm], dram, random_scratchpads(WIDE, 5))


def test_requantisation_equals_its_definition_at_every_corner():
    """All pairs of accumulators and scales where rounding, saturation or the format changes."""
    configuration = PRESETS["16x16"]
    near = [0, 1, 2, 3, 5, 127, 128, 255, 256, 257, (1 << 23) + 1, (1 << 24) - 1, 1 << 24]
    near += [(1 << 24) + 1, (1 << 31) - 1]
    accumulators = np.array(near + [-value for value in near] + [-(1 << 31)], dtype=np.int64)
    accumulators = np.resize(accumulators, 32).astype(np.int32)
    patterns = np.array(
        [0, 1, 0x007FFFFF, 0x00800000, 0x33800000, 0x37800000, 0x3A83126F, 0x3F000000, 0x3F7FFFFF,
         0x3F800000, 0x3F800001, 0x3FC00000, 0x43800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000,
         0x7F800001, 0x7FC00000, 0x7FFFFFFF], dtype=np.uint32,
    )  # fmt: skip
    patterns = np.concatenate([patterns, patterns | np.uint32(1 << 31)])
    scratchpads = random_scratchpads(configuration, 9)
    slices = np.repeat(accumulators, 16)
    scratchpads[Memory.ACC][: 4 * slices.size] = slices.view(np.uint8)
    param = scratchpads[Memory.PARAM].view(np.uint32).reshape(-1, 16, 2)
    param[: patterns.size, :, 1] = patterns[:, None]
    program = [
        Vector(
            a_from_acc=True, scale=True, zero_point=zero_point, dst=0, a=0,
            map_loops=(Loop(patterns.size, (32, 0, 0, 1)), Loop(32, (1, 1, 0, 0))),
        )
        for zero_point in (0, -128, 127)
    ]  # fmt: skip
    for vector in program:
        assert_same(configuration, [vector], np.zeros(DATA_BYTES, np.uint8), scratchpads)


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

"""Rules of one instruction: compared with pipelines that are played out step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.isa.configuration import DEFAULT, PRESETS, Memory
from tilewright.isa.footprints import conflicts, footprint
from tilewright.isa.instructions import (
    Combine,
    Gemm,
    Load,
    Loop,
    ReduceMode,
    ResultKind,
    Statistic,
    Vector,
)
from tilewright.isa.legality import gemm_faults, instruction_faults, vector_faults
from tilewright.isa.pipeline import GEMM_REVISIT_STEPS
from tilewright.isa.semantics import Machine

TINY = PRESETS["tiny"]


def revisited_too_early(gemm: Gemm, lanes_in: int) -> bool:
    """Play the steps of a GEMM and look for an ACC row that comes back too early."""
    rows = gemm.rows()
    duration = max(rows, lanes_in, GEMM_REVISIT_STEPS)
    visits: dict[int, int] = {}
    for step, row in enumerate(gemm.addresses("acc").tolist()):
        time = step // rows * duration + step % rows
        if row in visits and time - visits[row] < GEMM_REVISIT_STEPS:
            return True
        visits[row] = time
    return False


@given(
    tiles=st.lists(st.tuples(st.integers(2, 4), st.integers(-4, 4)), max_size=3),
    rows=st.lists(st.tuples(st.integers(2, 4), st.integers(-4, 4)), max_size=2),
)
def test_gemm_rows_rest_as_long_as_the_accumulator_loop_takes(tiles, rows):
    gemm = Gemm(
        act=0,
        wgt=0,
        acc=100,
        tile_loops=tuple(Loop(n, (0, 0, s)) for n, s in tiles),
        row_loops=tuple(Loop(n, (0, s)) for n, s in rows),
    )
    for configuration in (TINY, PRESETS["4x4"], PRESETS["8x8"]):
        early = revisited_too_early(gemm, configuration.lanes_in)
        assert bool(list(gemm_faults(gemm, configuration))) == early


SLICES = TINY.size_bytes(Memory.ACT) // TINY.vector_lanes


def run_ahead(vector: Vector, machine: Machine) -> None:
    """Execute with all reads before the first write, as the deepest pipeline would."""
    before = {memory: data.copy() for memory, data in machine.memories.items()}
    machine.execute(vector)
    after = Machine(machine.configuration, before[Memory.DRAM])
    results = []
    for output, (dst, a, b, param) in enumerate(
        zip(
            *(
                vector.addresses(n).reshape(-1, vector.steps() // outputs(vector))[:, 0]
                for n in ("dst", "a", "b", "param")
            ),
            strict=True,
        )
    ):
        for memory, data in before.items():
            after.memories[memory][:] = data
        one = Vector(
            combine=vector.combine,
            reduce=vector.reduce,
            dst=dst,
            a=a,
            b=b,
            param=param,
            reduce_loops=vector.reduce_loops,
        )
        after.execute(one, output)
        granule = machine.configuration.vector_lanes
        written = slice(dst * granule, (dst + 1) * granule)
        results.append((written, after.memories[Memory.ACT][written].copy()))
    act = before[Memory.ACT]
    for written, value in results:
        act[written] = value
    machine.memories[Memory.ACT][:] = act


def outputs(vector: Vector) -> int:
    total = 1
    for loop in vector.map_loops:
        total *= loop.extent
    return total


bases = st.integers(0, SLICES - 1)
strides = st.integers(-3, 3)


@settings(max_examples=300)
@given(
    dst=bases,
    a=bases,
    b=bases,
    maps=st.lists(st.tuples(st.integers(2, 4), strides, strides, strides), max_size=2),
    reduces=st.lists(st.tuples(st.integers(2, 3), strides, strides), max_size=2),
    combine=st.sampled_from((Combine.A, Combine.ADD, Combine.MAX)),
    reduce=st.sampled_from(ReduceMode),
    seed=st.integers(0, 1000),
)
def test_a_vector_that_is_accepted_may_read_everything_before_it_writes(
    dst, a, b, maps, reduces, combine, reduce, seed
):
    vector = Vector(
        combine=combine,
        reduce=reduce,
        dst=dst,
        a=a,
        b=b,
        map_loops=tuple(Loop(n, (*moves, 0)) for n, *moves in maps),
        reduce_loops=tuple(Loop(n, tuple(moves)) for n, *moves in reduces),
    )
    if list(instruction_faults(vector, TINY, 64)):
        return
    machines = []
    for execute in (Machine.execute, lambda machine, v: run_ahead(v, machine)):
        machine = Machine(TINY, np.zeros(64, dtype=np.uint8))
        fresh = np.random.default_rng(seed).integers(-9, 9, SLICES * 2).astype(np.int8)
        machine.memories[Memory.ACT][:] = fresh.view(np.uint8)
        execute(machine, vector)
        machines.append(machine.memories[Memory.ACT])
    assert np.array_equal(*machines)


@given(
    dst=bases,
    a=bases,
    n=st.integers(2, 6),
    move_dst=strides,
    move_a=strides,
    window=st.integers(1, 3),
)
def test_late_reads_are_refused_and_no_others(dst, a, n, move_dst, move_a, window):
    vector = Vector(
        dst=dst,
        a=a,
        map_loops=(Loop(n, (move_dst, move_a, 0, 0)),),
        reduce_loops=(Loop(window, (1, 0)),),
    )
    late = any(
        a + later * move_a + step == dst + earlier * move_dst
        for earlier in range(n)
        for later in range(earlier + 1, n)
        for step in range(window)
    )
    if all(access.low >= 0 and access.high < 2 * SLICES for access in vector.accesses(TINY)):
        assert bool(list(vector_faults(vector, TINY))) == late


FAULTS = [
    (
        Gemm(act=0, wgt=0, acc=5, row_loops=(Loop(3, (1, 0)),)),
        "ACC row 5 is visited again after 1 step in the row loops; expected at least "
        f"{GEMM_REVISIT_STEPS}; put a loop that moves `acc` inside",
    ),
    (
        Gemm(
            act=0,
            wgt=0,
            acc=5,
            tile_loops=(Loop(3, (0, 1, 15)),),
            row_loops=(Loop(16, (1, 1)),),
        ),
        "ACC row 20 is visited again after 1 step across tile loop 0; expected at least "
        f"{GEMM_REVISIT_STEPS}; put a loop that moves `acc` inside",
    ),
    (
        Gemm(act=8191, wgt=0, acc=0, row_loops=(Loop(2, (1, 1)),)),
        "operand `act` touches bytes 131056 to 131087 of ACT, which has 131072 bytes; correct the "
        "address or the strides",
    ),
    (
        Vector(dst=9, a=0, b=40, combine=Combine.MAX),
        "operands `a` and `b` both read ACT bank 0, which has one read port; move one of them to "
        "another bank",
    ),
    (
        Vector(dst=1, a=0, map_loops=(Loop(5, (1, 1, 0, 0)),)),
        "operand `a` reads slice 1 of ACT at output 1, but output 0 of the same instruction "
        "writes it; reads run ahead of writes; write elsewhere or split the instruction",
    ),
    (
        Vector(dst=0, a=0, map_loops=(Loop(4096, (0, 0, 0, 0)), Loop(4096, (0, 0, 0, 0)))),
        "operand `a` shares rows with `dst` over 16777216 steps, more than the checker examines "
        "(1048576); split the instruction",
    ),
    (
        Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(4096, (0, 1)), Loop(4096, (0, 0)))),
        "operand `acc` touches bytes 0 to 262143 of ACC, which has 131072 bytes; correct the "
        "address or the strides",
    ),
    (
        Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(4096, (0, 0)), Loop(512, (0, 1)))),
        "2097152 row iterations are more than the checker examines (1048576); split the "
        "instruction",
    ),
    (
        Vector(dst=0, a=0, low=-129),
        "field `low`: -129 does not fit 8 bits; expected -128 to 127",
    ),
]


@pytest.mark.parametrize(("instruction", "sentence"), FAULTS)
def test_a_fault_of_one_instruction_is_one_sentence(instruction, sentence):
    assert list(instruction_faults(instruction, DEFAULT, 1 << 16)) == [sentence]


def test_a_depthwise_gemm_needs_taps():
    gemm = Gemm(depthwise=True, act=0, wgt=0, acc=0)
    assert list(instruction_faults(gemm, DEFAULT.replace(depthwise_taps=0), 0)) == [
        "configuration `16x16` has no depthwise mode (`depthwise_taps` = 0); leave out "
        "`depthwise` or raise `depthwise_taps`"
    ]
    assert list(instruction_faults(gemm, DEFAULT.replace(depthwise_taps=1), 0)) == []


PACKED = DEFAULT.replace(name="packed", packed_weights="int4")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 136}, ""),
        ({"length": 272, "memory": 8, "local": 512, "loops": (Loop(2, (-8, 256)),)}, ""),
        ({"length": 128}, "with `unpack`, `length` has to move in steps of 136 bytes"),
        ({"length": 136, "memory": 4}, "`memory` has to move in steps of 8 bytes"),
        ({"length": 136, "loops": (Loop(2, (4, 256)),)}, "`memory` has to move in steps of 8 b"),
        ({"length": 136, "local": 16}, "`local` has to move in steps of 256 bytes"),
        ({"length": 136, "loops": (Loop(2, (0, 16)),)}, "`local` has to move in steps of 256 b"),
        ({"length": 136, "fill": True}, "`unpack` reads weight tiles into WGT and has no `fill`"),
        ({"length": 136, "destination": Memory.ACT}, "`unpack` reads weight tiles into WGT"),
        ({"length": 136 * 257}, "touches bytes 0 to 65791 of WGT, which has 65536 bytes"),
    ],
)  # fmt: skip
def test_what_is_unpacked_is_whole_tiles(fields, sentence):
    fields = {"destination": Memory.WGT, "unpack": True, "local": 0, **fields}
    found = " ".join(instruction_faults(Load(**fields), PACKED, 1 << 16))
    assert sentence in found if sentence else not found


def test_unpacking_needs_the_option():
    load = Load(destination=Memory.WGT, unpack=True, length=136, local=0)
    (found,) = instruction_faults(load, DEFAULT, 1 << 16)
    assert found == (
        "configuration `16x16` cannot unpack weights (`packed_weights` is none); leave out "
        "`unpack` or set `packed_weights` to int4"
    )


TRANSPOSING = PACKED.replace(name="transposing", transposed_weights="int8")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 64, "local": 5, "loops": (Loop(2, (192, 1)),)}, ""),
        ({"length": 4096, "local": 15}, ""),
        ({"length": 4097, "local": 0}, "touches bytes 0 to 65536 of WGT, which has 65536 bytes"),
        ({"length": 4, "fill": True}, "`transpose` reads weight tiles into WGT and has no `fill`;"),
        ({"length": 4, "destination": Memory.ACT}, "`transpose` reads weight tiles into WGT"),
        ({"length": 136, "unpack": True}, "has no `fill` or `transpose`; leave one of them out"),
    ],
)
def test_what_is_transposed_is_columns_of_weights(fields, sentence):
    fields = {"destination": Memory.WGT, "transpose": True, "local": 0, **fields}
    found = " ".join(instruction_faults(Load(**fields), TRANSPOSING, 1 << 16))
    assert sentence in found if sentence else not found


def test_transposing_needs_the_option():
    load = Load(destination=Memory.WGT, transpose=True, length=16, local=0)
    (found,) = instruction_faults(load, PACKED, 1 << 16)
    assert found == (
        "configuration `packed` cannot transpose weights (`transposed_weights` is none); leave out "
        "`transpose` or set `transposed_weights` to int8"
    )


ROWS = DEFAULT.replace(name="rows", row_statistics="all")


def rows(extents, param_strides, **fields):
    """Two or more loops, from row to row and inside, with a stride of `param` each."""
    loops = zip(extents, param_strides, strict=True)
    told = {"result": ResultKind.NONE, "statistic": Statistic.MAXIMUM, "dst": 0, "a": 0, "param": 1}
    return Vector(
        map_loops=tuple(Loop(n, (0, 0, 0, stride)) for n, stride in loops), **{**told, **fields}
    )


SHARED_ROWS = "rows share a row of PARAM (`param`), which is read after the first of them"
LONG = {"statistic": Statistic.VARIANCE}


@pytest.mark.parametrize(
    ("vector", "sentence"),
    [
        (rows((4, 3), (1, 0)), ""),
        (rows((4, 3), (1, 0), bias=True), ""),
        (rows((2, 4, 3), (0, 1, 0)), ""),
        (rows((2, 4, 3), (0, 1, 0), bias=True), SHARED_ROWS),
        (rows((2, 4, 3), (2, 1, 0), scale=True), SHARED_ROWS),
        (rows((2, 4, 3), (4, 1, 0), scale=True), ""),
        (rows((2, 256), (1, 0), **LONG), ""),
        (rows((2, 257), (1, 0), **LONG), "a row of 4112 elements; `statistic=variance` takes"),
        (rows((2, 257), (1, 0), **LONG, bound=4095, bound_step=1), ""),
        (rows((3, 257), (1, 0), **LONG, bound=4095, bound_step=1), "a row of 4097 elements"),
        (rows((2, 257), (1, 0), statistic=Statistic.SUM), ""),
        (rows((4,), (1,), statistic=Statistic.SUM, param=0), "bytes -128 to -1 of PARAM"),
        (rows((4,), (1,), param=0), ""),
        (rows((4,), (1,), param=125), "bytes 16000 to 16511 of PARAM"),
        (rows((4,), (1,), statistic=Statistic.SUM, table=1), "bytes 256 to 767 of LUT"),
        (rows((4,), (1,), table=1), ""),
        (rows((4,), (1,), to_acc=True, result=ResultKind.WIDE, param=127), ""),
    ],
)
def test_rows_fit_their_sums_and_are_not_read_again(vector, sentence):
    found = " ".join(instruction_faults(vector, ROWS, 1 << 16))
    assert sentence in found if sentence else not found


def test_statistics_read_constants_and_write_parameters():
    vector = rows((4, 3), (1, 0), statistic=Statistic.SUM)
    used = footprint(vector.moved({"param": 3}), ROWS)
    read = {(place.memory, place.low, place.high) for place in used.read_regions}
    assert read == {(Memory.ACT, 0, 15), (Memory.PARAM, 256, 383), (Memory.LUT, 0, 511)}
    (written,) = used.written_regions
    assert (written.memory, written.low, written.high) == (Memory.PARAM, 384, 895)
    load = Load(destination=Memory.PARAM, length=128, local=0)
    assert conflicts(load, vector, ROWS)
    assert not conflicts(load, Vector(dst=0, a=0, bias=True, param=7), ROWS)


LEGAL = [
    Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(9, (1, 1, 0)),)),
    Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(2, (5, 0)), Loop(GEMM_REVISIT_STEPS, (1, 1)))),
    Vector(dst=0, a=0, map_loops=(Loop(9, (1, 1, 0, 0)),)),
    Vector(dst=0, a=0, map_loops=(Loop(9, (1, 2, 0, 0)),), reduce_loops=(Loop(2, (1, 0)),)),
    Vector(dst=0, a=1, map_loops=(Loop(9, (1, 1, 0, 0)),)),
    Vector(dst=0, a=0, a_from_acc=True, to_acc=True, b=0, combine=Combine.ADD),
]


@pytest.mark.parametrize("instruction", LEGAL)
def test_what_the_pipelines_can_do_is_accepted(instruction):
    assert list(instruction_faults(instruction, DEFAULT, 0)) == []

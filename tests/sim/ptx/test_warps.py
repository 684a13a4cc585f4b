"""Instructions across lanes, barriers with counts, atomics, and the address spaces."""

import numpy as np
import pytest

from tilewright.sim.ptx import FaultKind, PtxFault, run

from .kernels import elementwise, kernel

U32 = np.dtype(np.uint32)
LANES = np.arange(64, dtype=np.uint32)
ORDERS = ("together", "ascending", "descending", 3)


def in_warps(code: str, values: np.ndarray = LANES) -> np.ndarray:
    """Run `code` on two warps; %r1 holds the value of each lane, %r0 takes the result."""
    body = f"""mov.u32 %r20, %tid.x; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
mad.wide.u32 %d1, %r20, 4, %d1; mad.wide.u32 %d2, %r20, 4, %d2; ld.global.u32 %r1, [%d1];
{code} st.global.u32 [%d2], %r0; exit;"""
    out = np.zeros(64, np.uint32)
    run(kernel(body, ".u64 a, .u64 b"), 1, 64, [values.astype(np.uint32), out])
    return out


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;", lambda lane: lane ^ 5),
        ("shfl.sync.up.b32 %r0, %r1, 3, 0, -1;", lambda lane: lane - 3 if lane >= 3 else lane),
        ("shfl.sync.down.b32 %r0, %r1, 9, 31, -1;", lambda lane: lane + 9 if lane < 23 else lane),
        ("shfl.sync.idx.b32 %r0, %r1, 7, 31, -1;", lambda lane: 7),
        # Segments of 8 lanes: the mask 0x18 stands in bits 8 to 12.
        ("shfl.sync.idx.b32 %r0, %r1, 2, 6175, -1;", lambda lane: (lane & 24) + 2),
        (
            "shfl.sync.down.b32 %r0, %r1, 4, 6175, -1;",
            lambda lane: lane + 4 if lane % 8 < 4 else lane,
        ),
    ],
)
def test_shuffles_move_values_within_a_warp(code, source):
    expected = [lane - lane % 32 + source(lane % 32) for lane in range(64)]
    assert in_warps(code).tolist() == expected


def test_a_shuffle_tells_whether_its_source_was_inside():
    code = "shfl.sync.up.b32 %r2|%p1, %r1, 3, 0, -1; selp.b32 %r0, 1, 0, %p1;"
    assert in_warps(code).tolist() == [int(lane % 32 >= 3) for lane in range(64)]


def test_a_shuffle_of_some_lanes_in_a_branch():
    code = (
        "mov.u32 %r0, 99; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; @!%p1 bra L;"
        "shfl.sync.bfly.b32 %r0, %r1, 2, 31, 0x55555555; L:"
    )
    assert in_warps(code).tolist() == [lane ^ 2 if lane % 2 == 0 else 99 for lane in range(64)]


def test_votes_count_the_lanes_of_a_warp():
    ask = "setp.lt.u32 %p1, %r1, 35;"
    ballot = in_warps(f"{ask} vote.sync.ballot.b32 %r0, %p1, -1;")
    assert ballot.tolist() == [0xFFFFFFFF] * 32 + [7] * 32
    every = in_warps(f"{ask} vote.sync.all.pred %p2, %p1, -1; selp.b32 %r0, 1, 0, %p2;")
    assert every.tolist() == [1] * 32 + [0] * 32
    some = in_warps(f"{ask} vote.sync.any.pred %p2, !%p1, -1; selp.b32 %r0, 1, 0, %p2;")
    assert some.tolist() == [0] * 32 + [1] * 32


def test_reductions_and_matches_of_a_warp():
    values = np.random.default_rng(0).integers(0, 5, 64)
    total = in_warps("redux.sync.add.s32 %r0, %r1, -1;", values)
    assert total.tolist() == [values[:32].sum()] * 32 + [values[32:].sum()] * 32
    matches = in_warps("match.any.sync.b32 %r0, %r1, -1;", values)
    for lane in range(64):
        warp = values[lane - lane % 32 :][:32]
        assert matches[lane] == sum(1 << i for i in range(32) if warp[i] == values[lane])


def test_lanes_that_part_meet_again():
    code = """mov.u32 %r0, 0; mov.u32 %r3, 0;
LOOP: setp.ge.u32 %p1, %r3, %r1; @%p1 bra DONE;
add.u32 %r3, %r3, 1; add.u32 %r0, %r0, %r3; bra LOOP;
DONE: vote.sync.ballot.b32 %r4, %p1, -1; add.u32 %r0, %r0, %r4;"""
    expected = [(lane * (lane + 1) // 2 + 0xFFFFFFFF) & 0xFFFFFFFF for lane in range(64)]
    assert in_warps(code).tolist() == expected


def test_an_indexed_branch_takes_the_branch_of_its_table():
    code = """and.b32 %r3, %r1, 3; T: .branchtargets A, B, C, A;
brx.idx %r3, T; A: mov.u32 %r0, 10; bra E; B: mov.u32 %r0, 20; bra E; C: mov.u32 %r0, 30; E:"""
    assert in_warps(code).tolist() == [(10, 20, 30, 10)[lane % 4] for lane in range(64)]


@pytest.mark.parametrize("order", ORDERS)
def test_named_barriers_hand_data_from_producers_to_consumers(order):
    body = """.shared .align 16 .b8 s[128];
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; mov.u32 %r4, s;
add.u32 %r4, %r4, %r3; ld.param.u64 %d1, [a]; mad.wide.u32 %d2, %r2, 4, %d1;
setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUMER;
st.shared.u32 [%r4], %r2; bar.arrive 3, 64; exit;
CONSUMER: bar.sync 3, 64; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d2], %r5; exit;"""
    out = np.zeros(32, np.uint32)
    run(kernel(body, ".u64 a"), 1, 64, [out], order=order)
    np.testing.assert_array_equal(out, np.arange(32))


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_reduces_predicates(order):
    body = """mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 70; bar.red.popc.u32 %r2, 0, %p1;
ld.param.u64 %d1, [a]; mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2; exit;"""
    out = np.zeros(96, np.uint32)
    run(kernel(body, ".u64 a"), 1, 96, [out], order=order)
    np.testing.assert_array_equal(out, np.full(96, 70))


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_of_all_threads_add_up_and_hand_out_places(order):
    body = """.shared .align 4 .b32 n; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
@%p1 st.shared.u32 [n], 0; bar.sync 0; atom.shared.add.u32 %r2, [n], 1;
ld.param.u64 %d1, [a]; mad.wide.u32 %d2, %r2, 4, %d1; st.global.u32 [%d2], %r2;
red.global.max.u32 [%d1+400], %r1; exit;"""
    out = np.zeros(101, np.uint32)
    run(kernel(body, ".u64 a"), 1, 100, [out], order=order)
    np.testing.assert_array_equal(out, [*range(100), 99])


def test_compare_and_swap_of_one_lane_wins():
    body = """mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 1; ld.param.u64 %d1, [a];
atom.global.cas.b32 %r2, [%d1], 0, %r1; mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2;"""
    out = np.zeros(33, np.uint32)
    run(kernel(body, ".u64 a"), 1, 32, [out])
    np.testing.assert_array_equal(out, [1, 0, *[1] * 31])


def test_local_parameter_constant_and_generic_addresses():
    outside = ".const .align 4 .b32 table[4] = {5, 6, 7, 8};\n"
    body = """.local .align 16 .b8 stack[32]; .shared .align 8 .b8 s[256];
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; shl.b32 %r3, %r2, 2;
mov.u64 %d1, table; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2; ld.const.u32 %r4, [%d1];
mov.b64 %d3, block; cvta.param.u64 %d3, %d3; ld.param.u32 %r5, [block+4];
mov.u64 %d4, stack; cvta.local.u64 %d5, %d4; st.u32 [%d5+8], %r1; ld.local.u32 %r6, [%d4+8];
mov.u32 %r7, s; shl.b32 %r8, %r1, 2; add.u32 %r7, %r7, %r8; cvt.u64.u32 %d6, %r7;
cvta.shared.u64 %d7, %d6; st.u32 [%d7], %r6; ld.shared.u32 %r9, [%r7];
isspacep.shared %p1, %d7; selp.b32 %r10, 1000, 0, %p1;
add.u32 %r11, %r4, %r5; add.u32 %r11, %r11, %r9; add.u32 %r11, %r11, %r10;
ld.param.u64 %d8, [a]; mad.wide.u32 %d8, %r1, 4, %d8; st.global.u32 [%d8], %r11; exit;"""
    out = np.zeros(64, np.uint32)
    block = np.array([1, 20000], np.uint32).tobytes()
    one = kernel(body, ".u64 a, .align 4 .b8 block[8]", outside=outside)
    run(one, 1, 64, [out, block])
    np.testing.assert_array_equal(out, 21005 + LANES % 4 + LANES)


def test_inline_assembly_has_registers_and_labels_of_its_own():
    code = """{ .reg .b32 %r1; mov.u32 %r1, 7; mov.u32 %r0, %r1; bra L; mov.u32 %r0, 1; L: }
{ .reg .b32 t; mov.u32 t, %r1; add.u32 %r0, %r0, t; bra L; mov.u32 %r0, 1; L: }"""
    found = elementwise(code, [np.array([100, 200], U32)], U32)
    np.testing.assert_array_equal(found, [107, 207])


def test_cp_async_fills_with_zeros_and_keeps_groups_apart():
    body = """.shared .align 16 .b8 s[1024];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
ld.param.u64 %d1, [a]; cvt.u64.u32 %d2, %r2; add.u64 %d1, %d1, %d2; and.b32 %r4, %r1, 15;
cp.async.cg.shared.global [%r3], [%d1], 16, %r4; cp.async.commit_group;
cp.async.ca.shared.global [%r3+512], [%d1], 8; cp.async.commit_group;
cp.async.wait_group 1; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3];
ld.param.u64 %d3, [b]; add.u64 %d3, %d3, %d2; st.global.v4.u32 [%d3], {%r5, %r6, %r7, %r8};
cp.async.wait_group 0; ld.shared.v2.u32 {%r5, %r6}, [%r3+512];
st.global.v2.u32 [%d3+512], {%r5, %r6}; exit;"""
    data = np.random.default_rng(0).integers(1, 256, (32, 16), np.uint8)
    out = np.zeros((2, 32, 16), np.uint8)
    run(kernel(body, ".u64 a, .u64 b"), 1, 32, [data, out])
    kept = np.where(np.arange(16) < np.arange(32)[:, None] % 16, data, 0)
    np.testing.assert_array_equal(out[0], kept)
    np.testing.assert_array_equal(out[1, :, :8], data[:, :8])


def test_cp_async_can_ignore_its_source():
    body = """.shared .align 16 .b8 s[512];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
ld.param.u64 %d1, [a]; cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2; setp.ge.u32 %p1, %r1, 20;
cp.async.ca.shared.global [%r3], [%d3], 4, %p1; cp.async.wait_all; ld.shared.u32 %r4, [%r3];
ld.param.u64 %d4, [b]; add.u64 %d4, %d4, %d2; st.global.u32 [%d4], %r4; exit;"""
    data, out = np.arange(1, 21, dtype=np.uint32), np.zeros(32, np.uint32)
    run(kernel(body, ".u64 a, .u64 b"), 1, 32, [data, out])
    np.testing.assert_array_equal(out, [*data, *[0] * 12])


LAST_BLOCK = """.shared .align 4 .b32 last; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; ld.param.u64 %d1, [part];
mad.wide.u32 %d2, %r4, 4, %d1; st.global.u32 [%d2], %r4; FENCE bar.sync 0;
setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT; ld.param.u64 %d3, [count];
atom.global.add.u32 %r5, [%d3], 1; st.shared.u32 [last], %r5;
WAIT: bar.sync 0; ld.shared.u32 %r5, [last]; setp.ne.u32 %p2, %r5, 4; @%p2 exit;
mad.wide.u32 %d4, %r1, 4, %d1; mov.u32 %r6, 0; mov.u32 %r7, 0;
LOOP: ld.global.u32 %r8, [%d4]; add.u32 %r6, %r6, %r8; add.u64 %d4, %d4, 256;
add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 5; @%p3 bra LOOP;
ld.param.u64 %d5, [out]; mad.wide.u32 %d5, %r1, 4, %d5; st.global.u32 [%d5], %r6; exit;"""


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_block_adds_up_what_the_others_wrote_before_a_fence(order):
    parameters = ".u64 part, .u64 count, .u64 out"
    out = np.zeros(64, np.uint32)
    arguments = [np.zeros(320, np.uint32), np.zeros(1, np.uint32), out]
    one = kernel(LAST_BLOCK.replace("FENCE", "membar.gl;"), parameters)
    run(one, 5, 64, arguments, order=order)
    np.testing.assert_array_equal(out, np.arange(320).reshape(5, 64).sum(axis=0))
    arguments[1][:] = 0
    with pytest.raises(PtxFault) as caught:
        run(kernel(LAST_BLOCK.replace("FENCE", ""), parameters), 5, 64, arguments, order=order)
    assert caught.value.fault == FaultKind.GLOBAL_RACE

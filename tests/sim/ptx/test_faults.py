"""Faults planted in kernels: each is reported by its name, with its line, block and thread."""

import numpy as np
import pytest

from tilewright.sim.ptx import FaultKind, PtxFault, parse_ptx, run

from .kernels import HEADER, elementwise, kernel

ORDERS = ("together", "ascending", "descending", 7)
SHARED = ".shared .align 16 .b8 s[1024];"
TILE = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; ld.param.u64 %d1, [a];"


def fault_of(body: str, order, threads: int = 64, size: int = 256, blocks: int = 1) -> PtxFault:
    """Run a kernel with the array `a` of int32; return the fault that it reports."""
    array = np.arange(size, dtype=np.int32)
    before = array.copy()
    one = kernel(SHARED + body, ".u64 a")
    with pytest.raises(PtxFault) as caught:
        run(one, blocks, threads, [array], order=order, max_instructions=2000)
    np.testing.assert_array_equal(array, before)  # a launch with a fault leaves no results
    return caught.value


MIRROR = "xor.b32 %r3, %r2, 252; mov.u32 %r4, s; add.u32 %r5, %r4, %r2; add.u32 %r6, %r4, %r3;"
PLANTED = {
    "store past the end of a buffer": (
        TILE + "mad.wide.u32 %d2, %r1, 16, %d1; st.global.u32 [%d2+16], %r1;",
        FaultKind.OUT_OF_BOUNDS,
    ),
    "load before the start of a buffer": (
        TILE + "ld.global.u32 %r3, [%d1+-4];",
        FaultKind.OUT_OF_BOUNDS,
    ),
    "load from a null pointer": (
        "mov.b64 %d2, 0; ld.global.u32 %r3, [%d2];",
        FaultKind.OUT_OF_BOUNDS,
    ),
    "store past the end of shared memory": ("st.shared.u32 [s+1024], 1;", FaultKind.OUT_OF_BOUNDS),
    "misaligned vector": (TILE + "ld.global.v2.u32 {%r3, %r4}, [%d1+4];", FaultKind.MISALIGNED),
    "misaligned shared store": ("st.shared.u32 [s+2], 1;", FaultKind.MISALIGNED),
    "shared memory read before it is written": (
        "ld.shared.u32 %r3, [s];",
        FaultKind.UNINITIALISED_SHARED,
    ),
    "missing barrier between store and load": (
        TILE + MIRROR + "st.shared.u32 [%r5], %r1; ld.shared.u32 %r7, [%r6];",
        FaultKind.SHARED_RACE,
    ),
    "missing barrier between load and store": (
        TILE
        + MIRROR
        + "st.shared.u32 [%r5], %r1; bar.sync 0; ld.shared.u32 %r7, [%r6];"
        + "st.shared.u32 [%r5], %r7;",
        FaultKind.SHARED_RACE,
    ),
    "lanes of a warp exchange data without bar.warp.sync": (
        TILE + MIRROR.replace("252", "4") + "st.shared.u32 [%r5], %r1; ld.shared.u32 %r7, [%r6];",
        FaultKind.SHARED_RACE,
    ),
    "two threads store different values at one place": (
        TILE + "st.shared.u32 [s], %r1;",
        FaultKind.SHARED_RACE,
    ),
    "warps exchange data in global memory without a barrier": (
        TILE
        + "cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2;"
        + "xor.b64 %d2, %d2, 252; add.u64 %d4, %d1, %d2;"
        + "st.global.u32 [%d3], 5; ld.global.u32 %r4, [%d4];",
        FaultKind.GLOBAL_RACE,
    ),
    "barrier in one branch of a warp": (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @%p1 bra L; bar.sync 0; exit;"
        "L: bar.sync 0;",
        FaultKind.DIVERGENT_BARRIER,
    ),
    "guarded barrier": (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0;",
        FaultKind.DIVERGENT_BARRIER,
    ),
    "warps wait at different barriers": (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 1; exit;"
        "L: bar.sync 2;",
        FaultKind.DEADLOCK,
    ),
    "a barrier waits for more threads than there are": ("bar.sync 1, 96;", FaultKind.DEADLOCK),
    "a barrier for 33 threads": ("bar.sync 1, 33;", FaultKind.BARRIER_COUNT),
    "shuffle in one branch of a warp": (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @%p1 bra L;"
        "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; L: exit;",
        FaultKind.DIVERGENT_WARP,
    ),
    "uninitialised register": (TILE + "add.u32 %r3, %r1, %r9;", FaultKind.UNINITIALISED_REGISTER),
    "register written in one branch only": (
        TILE + "setp.lt.u32 %p1, %r1, 40; @%p1 mov.u32 %r3, 1; add.u32 %r4, %r3, 1;",
        FaultKind.UNINITIALISED_REGISTER,
    ),
    "cp.async read without a wait": (
        TILE
        + MIRROR
        + "cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2; cp.async.ca.shared.global [%r5], [%d3], 4;"
        + "cp.async.commit_group; ld.shared.u32 %r7, [%r5];",
        FaultKind.PENDING_COPY,
    ),
    "cp.async waited for, but one group too few": (
        TILE
        + MIRROR
        + "cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2; cp.async.ca.shared.global [%r5], [%d3], 4;"
        + "cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; ld.shared.u32 %r7, [%r5];",
        FaultKind.PENDING_COPY,
    ),
    "cp.async of another warp read without a barrier": (
        TILE
        + MIRROR
        + "cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2; cp.async.ca.shared.global [%r5], [%d3], 4;"
        + "cp.async.wait_all; ld.shared.u32 %r7, [%r6];",
        FaultKind.SHARED_RACE,
    ),
    "endless loop": ("L: bra L;", FaultKind.ENDLESS),
    "trap": ("trap;", FaultKind.TRAP),
}
REPORTED_AT_OTHER_PLACES = {
    # One warp after the other, the second reads what the first one wrote, or has not yet written.
    "missing barrier between store and load": FaultKind.UNINITIALISED_SHARED,
    "cp.async of another warp read without a barrier": FaultKind.UNINITIALISED_SHARED,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_reported_by_name(name, order):
    body, fault = PLANTED[name]
    found = fault_of(body + " exit;", order)
    allowed = {fault}
    if order != "together" and name in REPORTED_AT_OTHER_PLACES:
        allowed.add(REPORTED_AT_OTHER_PLACES[name])
    assert found.fault in allowed


def test_blocks_that_write_one_place_race():
    body = "ld.param.u64 %d1, [a]; mov.u32 %r1, %ctaid.x; st.global.u32 [%d1], %r1; exit;"
    found = fault_of(body, "together", threads=1, blocks=3)
    assert found.fault == FaultKind.GLOBAL_RACE


def test_a_store_to_a_read_only_array_is_refused():
    array = np.zeros(4, np.int32)
    array.flags.writeable = False
    with pytest.raises(PtxFault) as caught:
        run(kernel("ld.param.u64 %d1, [a]; st.global.u32 [%d1], 1;", ".u64 a"), 1, 1, [array])
    assert caught.value.fault == FaultKind.READ_ONLY


def test_a_fault_names_line_block_and_thread():
    text = HEADER + (
        ".visible .entry k(.param .u64 a)\n{\n.reg .b32 %r<9>; .reg .b64 %d<9>;\n"
        "// the address\nld.param.u64 %d1, [a];\nmov.u32 %r1, %tid.x;\n"
        "mad.wide.u32 %d2, %r1, 4, %d1;\nld.global.u32 %r3, [%d2];\n}\n"
    )
    with pytest.raises(PtxFault) as caught:
        run(parse_ptx(text)["k"], (1, 2), (8, 8), [np.zeros(7, np.int32)])
    assert str(caught.value) == (
        "line 11: block (0, 0, 0), thread (7, 0, 0): access out of bounds: "
        "4 bytes at offset 28 of argument 0, of 28 bytes"
    )


def test_a_launch_that_does_not_fit_the_kernel_is_refused():
    one = kernel("exit;", ".u64 a, .u32 n", ".reqntid 64")
    for block, arguments, detail in (
        (32, [np.zeros(1)], "a block of 32 threads; `k` requires 64"),
        (64, [np.zeros(1)], "1 arguments; `k` has 2 parameters"),
        (64, [np.zeros(1), np.zeros(1)], "argument 1 is an array, not a u32"),
    ):
        with pytest.raises(PtxFault, match=detail):
            run(one, 1, block, arguments)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [t, {%r5}];", 8),
        ("mov.u32 %r2, 1;\nmov.u64 %d1, 1;\nadd.u32 %r1, %d1, %r2;", 10),
    ],
)
def test_instructions_that_are_unknown_or_ill_typed_are_refused_with_their_line(text, line):
    with pytest.raises(PtxFault) as caught:
        run(kernel(text), 1, 1, [])
    assert caught.value.fault in (FaultKind.UNSUPPORTED, FaultKind.SYNTAX)
    assert caught.value.line == line


def test_text_that_is_no_ptx_is_refused_with_its_line():
    for text, detail in (
        ("bra NOWHERE;", "line 8: syntax error: label `NOWHERE` is not defined"),
        ("add.u32 %r1, %r2, a b;", "line 8: syntax error: cannot read operand `a b`"),
        ("@%r1 exit;", "line 8: syntax error: guard `%r1` is not a predicate"),
        (".surface s;", "line 8: unsupported instruction: directive `.surface`"),
    ):
        with pytest.raises(PtxFault) as caught:
            kernel(text)
        assert str(caught.value) == detail


def test_same_values_at_one_place_are_no_race():
    body = "ld.param.u64 %d1, [a]; st.global.u32 [%d1], 3; exit;"
    array = np.zeros(1, np.int32)
    run(kernel(body, ".u64 a"), 4, 64, [array])
    assert array[0] == 3


def test_division_by_zero_gives_all_ones():
    a = np.array([5, 7], np.uint32)
    np.testing.assert_array_equal(
        elementwise("div.u32 %r0, %r1, 0;", [a], np.dtype(np.uint32)), [2**32 - 1] * 2
    )

"""Pipelines of a producer and a consumer: right values in every order, and each planted fault."""

import numpy as np
import pytest

from tilewright.sim.ptx import FaultKind, PtxFault, TensorArgument, parse_ptx, run
from tilewright.tensor_map import TensorMap

from ...compiler.gpu.assembler import assemble
from .kernels import HEADER, kernel

ORDERS = ("together", "ascending", "descending", 7)
TILES = 5

WAIT_FULL = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r6], %r5; @!%p1 bra W;"
WAIT_EMPTY = "V: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r7], %r9; @!%p1 bra V;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r7];"
LOAD = "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r8];"
COPY = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    " [%r8], [%d1, {0, %r12}], [%r6];"
)
INIT_FULL = "mbarrier.init.shared::cta.b64 [full], 1; mbarrier.init.shared::cta.b64 [full+8], 1;"
PIPELINE = f"""{HEADER}
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<9>;
.shared .align 1024 .b8 stages[1024]; .shared .align 8 .b8 full[16]; .shared .align 8 .b8 empty[16];
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ne.u32 %p2, %r1, 0; @%p2 bra READY;
{INIT_FULL}
mbarrier.init.shared::cta.b64 [empty], 32; mbarrier.init.shared::cta.b64 [empty+8], 32;
fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
mov.u32 %r3, 0; mov.u32 %r30, stages; mov.u32 %r31, full; mov.u32 %r32, empty;
setp.lt.u32 %p3, %r1, 32;
@%p3 bra PRODUCER;
CONSUMER:
and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; and.b32 %r5, %r5, 1;
mad.lo.u32 %r6, %r4, 8, %r31; mad.lo.u32 %r7, %r4, 8, %r32;
mad.lo.u32 %r8, %r4, 512, %r30; mad.lo.u32 %r8, %r2, 16, %r8;
{WAIT_FULL}
{LOAD}
{ARRIVE}
ld.param.u64 %d2, [out]; shl.b32 %r10, %r3, 9; mad.lo.u32 %r10, %r2, 16, %r10;
cvt.u64.u32 %d3, %r10; add.u64 %d2, %d2, %d3;
st.global.v4.u32 [%d2], {{%r20, %r21, %r22, %r23}};
add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, {TILES}; @%p4 bra CONSUMER;
exit;
PRODUCER:
elect.sync _|%p5, -1; @!%p5 exit;
mov.b64 %d1, map; cvta.param.u64 %d1, %d1; prefetch.tensormap [%d1];
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d1, {{0, 0}}];
NEXT:
and.b32 %r4, %r3, 1; shr.u32 %r5, %r3, 1; and.b32 %r9, %r5, 1; xor.b32 %r9, %r9, 1;
mad.lo.u32 %r6, %r4, 8, %r31; mad.lo.u32 %r7, %r4, 8, %r32; mad.lo.u32 %r8, %r4, 512, %r30;
{WAIT_EMPTY}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;
shl.b32 %r12, %r3, 3;
{COPY}
add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, {TILES}; @%p4 bra NEXT;
exit;
}}
"""


def pipelined(text: str, order: str | int) -> None:
    """Copy an array of 16 columns in tiles of 8 rows, and compare it."""
    source = np.random.default_rng(0).integers(0, 1 << 30, (8 * TILES, 16), np.int32)
    result = np.zeros_like(source)
    tensor = TensorMap("int32", (16, 8 * TILES), (64,), (16, 8))
    run(parse_ptx(text)["k"], 1, 64, [TensorArgument(tensor, source), result], order=order)
    np.testing.assert_array_equal(result, source)


def test_the_assembler_takes_the_pipeline(tmp_path):
    text = PIPELINE.replace(HEADER, ".version 8.6\n.target sm_90a\n.address_size 64\n")
    assert assemble(text, "sm_90a", tmp_path).opcodes()["UTMALDG.2D"] == 1


@pytest.mark.parametrize("order", ORDERS)
def test_a_pipeline_copies_in_every_order(order):
    pipelined(PIPELINE, order)


READS_EARLY = {FaultKind.PENDING_COPY, FaultKind.UNINITIALISED_SHARED}
OVERRUNS = {FaultKind.SHARED_RACE, FaultKind.PENDING_COPY, FaultKind.MBARRIER_COUNT}
PLANTED = {
    "the consumer does not wait": (WAIT_FULL, "", READS_EARLY),
    "the consumer tries to wait once": (" @!%p1 bra W;", "", READS_EARLY),
    "the consumer waits for the other barrier": (
        "@!%p1 bra W;",
        "@!%p1 bra W; xor.b32 %r8, %r8, 512;",
        READS_EARLY,
    ),
    "too few bytes are expected": ("_, [%r6], 512", "_, [%r6], 496", {FaultKind.MBARRIER_BYTES}),
    "too many bytes are expected": ("_, [%r6], 512", "_, [%r6], 528", {FaultKind.DEADLOCK}),
    "an absurd number of bytes": (
        "_, [%r6], 512",
        "_, [%r6], -1048576",
        {FaultKind.MBARRIER_BYTES},
    ),
    "no bytes are expected": (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512",
        "mbarrier.arrive.shared::cta.b64 _, [%r6]",
        {*READS_EARLY, FaultKind.MBARRIER_BYTES},
    ),
    "a barrier is not initialised": (INIT_FULL, "", {FaultKind.MBARRIER_STATE}),
    "nothing orders the initialisation": ("bar.sync 0;", "", {FaultKind.MBARRIER_STATE}),
    "a barrier is initialised twice": (
        INIT_FULL,
        INIT_FULL + INIT_FULL,
        {FaultKind.MBARRIER_STATE},
    ),
    "a barrier for no arrivals": ("[full], 1;", "[full], 0;", {FaultKind.MBARRIER_COUNT}),
    "a barrier is overwritten": (
        "bar.sync 0;",
        "@!%p2 st.shared.u64 [full], 1; bar.sync 0;",
        {FaultKind.MBARRIER_STATE},
    ),
    "a barrier is used after its end": (
        "bar.sync 0;",
        "@!%p2 mbarrier.inval.shared::cta.b64 [full]; bar.sync 0;",
        {FaultKind.MBARRIER_STATE},
    ),
    "the consumer does not release": (ARRIVE, "", {FaultKind.DEADLOCK}),
    "the consumer releases before it reads": (
        LOAD + "\n" + ARRIVE,
        ARRIVE + LOAD,
        {FaultKind.SHARED_RACE, FaultKind.PENDING_COPY},
    ),
    "the release orders nothing": (
        ARRIVE,
        ARRIVE.replace("arrive", "arrive.relaxed.cta"),
        {FaultKind.SHARED_RACE, FaultKind.PENDING_COPY},
    ),
    "the wait orders nothing": (
        "try_wait.parity",
        "try_wait.parity.relaxed.cta",
        {FaultKind.PENDING_COPY},
    ),
    "the producer does not wait": (WAIT_EMPTY, "", OVERRUNS),
    "the consumer arrives twice": (ARRIVE, ARRIVE + ARRIVE, {FaultKind.MBARRIER_PHASE}),
    "the producer expects the wrong phase first": (
        "xor.b32 %r9, %r9, 1;",
        "",
        {FaultKind.DEADLOCK},
    ),
    "nobody copies": (COPY, "", {FaultKind.DEADLOCK}),
    "the last copy is not waited for": (
        f"%r3, {TILES}; @%p4 bra NEXT",
        f"%r3, {TILES + 1}; @%p4 bra NEXT",
        {FaultKind.PENDING_COPY},
    ),
    "a box at a misaligned address": ("[%r8], [%d1", "[%r8+16], [%d1", {FaultKind.MISALIGNED}),
    "a box outside shared memory": ("[%r8], [%d1", "[%r8+1024], [%d1", {FaultKind.OUT_OF_BOUNDS}),
    "a coordinate too few": ("tensor.2d.sh", "tensor.3d.sh", {FaultKind.UNSUPPORTED}),
    "no tensor map": ("[%d1, {0, %", "[%d1+64, {0, %", {FaultKind.TENSOR_MAP}),
    "a misaligned tensor map": ("[%d1, {0, %", "[%d1+32, {0, %", {FaultKind.MISALIGNED}),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_reported_by_name(name, order):
    right, wrong, faults = PLANTED[name]
    assert PIPELINE.count(right) == 1
    with pytest.raises(PtxFault) as caught:
        pipelined(PIPELINE.replace(right, wrong), order)
    assert caught.value.fault in faults


def fault_of(body: str, threads: int = 64, order: str | int = "together") -> PtxFault:
    one = kernel(".shared .align 8 .b8 b[16]; .shared .align 128 .b8 s[256];" + body + "exit;")
    with pytest.raises(PtxFault) as caught:
        run(one, 1, threads, [], order=order)
    return caught.value


START = (
    "mov.u32 %r1, %tid.x; setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared.b64 [b], 1;bar.sync 0;"
)


@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_that_comes_two_phases_late_is_named(order):
    arrive = "@%p2 mbarrier.arrive.shared.b64 _, [b];"
    wait = "W: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W;"
    found = fault_of(START + arrive + arrive + "bar.sync 0;" + wait, order=order)
    assert found.fault == FaultKind.MBARRIER_PHASE
    assert "waits for phase 0 of the mbarrier at shared address 0x0, now in 2" in found.detail


def test_a_state_is_good_for_one_phase_only():
    body = "@%p2 mbarrier.arrive.shared.b64 %d1, [b]; @%p2 mbarrier.arrive.shared.b64 _, [b];"
    wait = "@%p2 mbarrier.test_wait.shared.b64 %p1, [b], %d1;"
    assert fault_of(START + body + wait).fault == FaultKind.MBARRIER_PHASE


def test_a_deadlock_names_the_mbarrier_and_what_it_lacks():
    wait = "W: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W;"
    found = fault_of(START + "@%p2 mbarrier.expect_tx.relaxed.cta.shared.b64 [b], 32;" + wait)
    assert str(found) == (
        "line 8: block (0, 0, 0), thread (0, 0, 0): deadlock: the mbarrier at shared address 0x0 "
        "lacks 1 arrivals of 1 and 32 bytes, of which copies bring 0, in phase 0"
    )


def test_no_other_block_is_in_a_cluster():
    found = fault_of("mapa.shared::cluster.u32 %r2, 16, 1;")
    assert found.fault == FaultKind.OUT_OF_BOUNDS


def test_clusters_of_several_blocks_are_refused():
    with pytest.raises(PtxFault, match="unsupported instruction: clusters of 2 blocks"):
        run(kernel("exit;", rules=".reqnctapercluster 2, 1, 1"), 2, 32, [])


def test_more_arrivals_than_a_phase_lacks_are_refused():
    found = fault_of(START + "mbarrier.arrive.shared.b64 _, [b];")
    assert found.fault == FaultKind.MBARRIER_COUNT


def test_warps_cannot_have_more_registers_than_a_multiprocessor():
    counts = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra L;"
    counts += "setmaxnreg.inc.sync.aligned.u32 240; exit; L: setmaxnreg.dec.sync.aligned.u32 {};"
    run(kernel(counts.format(32) + "exit;"), 1, 384, [])
    assert fault_of(counts.format(36), 384).fault == FaultKind.REGISTER_COUNT
    found = fault_of(counts.format(40), 384)
    assert found.fault == FaultKind.REGISTER_COUNT
    assert "66560 in a block, of 65536" in found.detail


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("setmaxnreg.inc.sync.aligned.u32 160;", "`setmaxnreg`"),
        (
            "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
            " {%r10, %r11, %r12, %r13}, %d1, %d1, %p4, 1, 1, 0, 0;"
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
            "`wgmma`",
        ),
    ],
)
def test_all_warps_of_a_warpgroup_act_as_one(code, what, order):
    body = """
    .shared .align 1024 .b8 s[8192];
    mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, s; mad.lo.u32 %r3, %r1, 16, %r3;
    L: st.shared.v4.u32 [%r3], {%r2, %r2, %r2, %r2}; add.u32 %r3, %r3, 2048;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra L;
    fence.proxy.async; bar.sync 0; mov.b64 %d1, 0x4000004000010000; setp.ne.u32 %p4, %r1, %r1;
    """
    run(kernel(body + code + "exit;"), 1, 128, [], order=order)
    skip = "setp.gt.u32 %p2, %r1, 95; @%p2 exit;"
    with pytest.raises(PtxFault) as caught:
        run(kernel(body + skip + code + "exit;"), 1, 128, [], order=order)
    assert caught.value.fault == FaultKind.DIVERGENT_WARP
    assert f"{what} in a part of a warpgroup" in caught.value.detail


@pytest.mark.parametrize("order", ORDERS)
def test_states_counts_and_tests_without_a_loop(order):
    """Warp 0 gathers all others' arrivals by a state; a failed test does not stop a warp."""
    body = """
    .shared .align 8 .b8 b[8];
    mov.u32 %r1, %tid.x; setp.eq.u32 %p2, %r1, 0; ld.param.u64 %d1, [a];
    @%p2 mbarrier.init.shared.b64 [b], 8; bar.sync 0;
    @!%p2 bra OTHERS;
    mbarrier.arrive.shared.b64 %d2, [b], 2;
    mbarrier.test_wait.shared.b64 %p1, [b], %d2; selp.u32 %r3, 1, 0, %p1;
    mbarrier.test_wait.shared.b64 %p1, [b], %d2; @%p1 add.u32 %r3, %r3, 1;
    mbarrier.complete_tx.relaxed.cta.shared.b64 [b], 16;
    mbarrier.arrive.expect_tx.shared.b64 _, [b], 16;
    W: mbarrier.try_wait.shared.b64 %p1, [b], %d2, 1000; @!%p1 bra W;
    ld.shared.u32 %r4, [c]; st.global.v2.u32 [%d1], {%r3, %r4};
    mbarrier.inval.shared.b64 [b]; st.shared.u64 [b], 7;
    exit;
    OTHERS:
    setp.ne.u32 %p3, %r1, 96; @%p3 bra ARRIVE;
    st.shared.u32 [c], 41;
    mbarrier.arrive.shared.b64 _, [b];
    ARRIVE: and.b32 %r2, %r1, 31; setp.ne.u32 %p4, %r2, 1; @%p4 exit;
    mov.u64 %d3, b; cvta.shared.u64 %d3, %d3; mbarrier.arrive.release.cta.b64 _, [%d3]; exit;
    """
    array = np.zeros(2, np.int32)
    one = kernel(".shared .align 4 .b8 c[4];" + body, ".u64 a")
    run(one, 1, 128, [array], order=order)
    assert array.tolist() == [0, 41]

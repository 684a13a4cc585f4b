"""Bulk copies: boxes of tensors against a definition element by element, and planted faults."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.sim.ptx import FaultKind, PtxFault, PtxKernel, TensorArgument, run
from tilewright.tensor_map import TensorMap

from .kernels import kernel

ORDERS = ("together", "ascending", "descending", 7)
SHARED = ".shared .align 1024 .b8 s[4096]; .shared .align 8 .b8 b[8];"
START = (
    "mov.u32 %r1, %tid.x; setp.eq.u32 %p2, %r1, 0; shl.b32 %r2, %r1, 4; mov.u32 %r3, s;"
    "add.u32 %r3, %r3, %r2; mov.u32 %r30, b; cvt.u64.u32 %d5, %r2; mov.u32 %r31, s;"
)
INIT = "@%p2 mbarrier.init.shared.b64 [b], 1; bar.sync 0;"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r30], 0; @!%p1 bra W;"
TO_OUT = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; add.u64 %d4, %d4, %d5;"
TO_OUT += "st.global.v4.u32 [%d4], {%r4, %r5, %r6, %r7};"
FROM_IN = "add.u64 %d4, %d4, %d5; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d4];"
FROM_IN += "st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};"
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
COMMIT = "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
MAP = ".align 64 .b8 map[128],.u64 a"


def load(rank: int, place: tuple[int, ...], size: int, pointer: bool = False) -> PtxKernel:
    coordinates = ", ".join(map(str, place))
    map_address = "ld.param.u64 %d1, [map];" if pointer else "mov.b64 %d1, map;"
    copy = (
        f"@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], {size}; @%p2 cp.async.bulk."
        f"tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        f" [%r31], [%d1, {{{coordinates}}}], [%r30], %d9;"
    )
    body = START + map_address + "ld.param.u64 %d4, [a]; mov.u64 %d9, 0;" + INIT + copy + WAIT
    parameters = ".u64 map,.u64 a" if pointer else MAP
    return kernel(SHARED + body + TO_OUT + "exit;", parameters)


def store(rank: int, place: tuple[int, ...], fence: str = FENCE, commit: str = COMMIT) -> PtxKernel:
    coordinates = ", ".join(map(str, place))
    copy = (
        f"@%p2 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
        f" [%d1, {{{coordinates}}}], [%r31];"
    )
    body = START + "mov.b64 %d1, map; ld.param.u64 %d4, [a];" + FROM_IN + fence + copy + commit
    return kernel(SHARED + body + "exit;", MAP)


def box_of(tensor: TensorMap, array: np.ndarray, place: tuple[int, ...]):
    """Each element of a box: its number, its index in the array, or None outside of it."""
    for number, inner in enumerate(np.ndindex(tensor.box_extents[::-1])):
        steps = (*tensor.element_strides[:0:-1], 1)
        index = tuple(p + i * step for p, i, step in zip(place[::-1], inner, steps, strict=True))
        inside = all(0 <= i < extent for i, extent in zip(index, array.shape, strict=True))
        yield number, index if inside else None


def swizzled(tensor: TensorMap, number: int) -> int:
    """Where an element of a box lies: 16-byte pieces of a row are exchanged by the row's number."""
    at = number * tensor.element_bytes
    if not tensor.swizzle_bytes:
        return at
    row = at // 128
    pieces = tensor.swizzle_bytes // 16
    piece = at // 16 % pieces ^ row % pieces
    return at - at // 16 % pieces * 16 + piece * 16


CASES = {
    "a vector": (np.float32, (100,), (8,), (96,), {}),
    "a matrix": (np.float16, (20, 40), (32, 8), (0, 8), {}),
    "swizzle of 128 bytes": (np.float16, (20, 64), (64, 16), (0, 3), {"swizzle_bytes": 128}),
    "swizzle of 64 bytes": (np.int8, (40, 80), (64, 32), (16, 5), {"swizzle_bytes": 64}),
    "swizzle of 32 bytes": (np.int32, (40, 20), (8, 32), (8, 4), {"swizzle_bytes": 32}),
    "beyond both ends": (np.int8, (20, 48), (32, 24), (-5, -3), {}),
    "outside altogether": (np.int32, (20, 4), (4, 8), (4, 0), {}),
    "odd columns": (np.int8, (9, 32), (48, 9), (7, 0), {}),
    "three dimensions": (np.float32, (5, 6, 8), (4, 3, 2), (2, 4, 3), {}),
    "five dimensions": (np.int16, (2, 3, 2, 3, 8), (8, 2, 2, 2, 2), (0, 1, 0, 2, 0), {}),
    "every second row": (np.int32, (20, 8), (8, 8), (0, 3), {"element_strides": (1, 2)}),
    "NaN outside": (ml_dtypes.bfloat16, (4, 8), (16, 8), (0, -2), {"fills_with_nan": True}),
}


def described(case: str) -> tuple[TensorMap, np.ndarray, tuple[int, ...]]:
    dtype, shape, box, place, more = CASES[case]
    array = np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)
    tensor = TensorMap(array.dtype.name, shape[::-1], array.strides[-2::-1], box, **more)
    return tensor, array, place


@pytest.mark.parametrize("pointer", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_boxes_are_loaded_as_defined(case, pointer):
    tensor, array, place = described(case)
    array.flags.writeable = False
    expected = np.zeros(tensor.box_bytes, np.uint8).view(array.dtype)
    fill = np.nan if tensor.fills_with_nan else 0
    for number, index in box_of(tensor, array, place):
        at = swizzled(tensor, number) // array.itemsize
        expected[at] = fill if index is None else array[index]
    found = np.zeros_like(expected)
    size = tensor.box_bytes
    one = load(array.ndim, place, size, pointer)
    run(one, 1, size // 16, [TensorArgument(tensor, array), found])
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("order", ["together", "descending"])
@pytest.mark.parametrize("case", CASES)
def test_boxes_are_stored_as_defined(case, order):
    tensor, array, place = described(case)
    content = np.random.default_rng(1).integers(-99, 99, tensor.box_bytes // array.itemsize)
    content = content.astype(array.dtype)
    expected = array.copy()
    for number, index in box_of(tensor, array, place):
        if index is not None:
            expected[index] = content[swizzled(tensor, number) // array.itemsize]
    one = store(array.ndim, place)
    run(one, 1, tensor.box_bytes // 16, [TensorArgument(tensor, array), content], order=order)
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("order", ORDERS)
def test_ranges_are_copied_both_ways(order):
    copy_in = (
        "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 512; ld.param.u64 %d1, [a];"
        "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%r31], [%d1+256], 512, [%r30];"
    )
    change = "ld.shared.u32 %r4, [%r3]; add.u32 %r4, %r4, 1; st.shared.u32 [%r3], %r4;"
    copy_out = "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r31], 256;"
    body = START + INIT + copy_in + WAIT + change + FENCE + copy_out
    one = kernel(SHARED + body + COMMIT + "exit;", ".u64 a")
    array = np.arange(192, dtype=np.int32)
    expected = array.copy()
    expected[:64] = array[64:128]
    expected[:64:4] += 1
    run(one, 1, 32, [array], order=order)
    np.testing.assert_array_equal(array, expected)


def stored(fence: str = FENCE, commit: str = COMMIT, order: str | int = "together") -> None:
    array = np.zeros((16, 32), np.int32)
    tensor = TensorMap("int32", (32, 16), (128,), (32, 8))
    content = np.arange(256, dtype=np.int32)
    one = store(2, (0, 8), fence, commit)
    run(one, 1, 64, [TensorArgument(tensor, array), content], order=order)
    np.testing.assert_array_equal(array[8:], content.reshape(8, 32))


FENCES = {
    "the fence of the thread that copies, after the barrier": "bar.sync 0; fence.proxy.async;",
    "a barrier of a cluster": (
        "fence.proxy.async; barrier.cluster.arrive.release.aligned;"
        "barrier.cluster.wait.acquire.aligned;"
    ),
    "an mbarrier": (
        "@%p2 mbarrier.init.shared.b64 [b], 64; bar.sync 0; fence.proxy.async.shared::cta;"
        "mapa.shared::cluster.u32 %r10, %r30, 0;"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];" + WAIT
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FENCES)
def test_a_fence_anywhere_on_the_way_is_enough(name, order):
    stored(FENCES[name], order=order)


OVERWRITE = "@%p2 st.shared.u32 [s+64], 1;"
PLANTED = {
    "no fence": ("bar.sync 0;", COMMIT, FaultKind.MISSING_FENCE),
    "a fence of one thread alone, before the barrier": (
        "@%p2 fence.proxy.async.shared::cta; bar.sync 0;",
        COMMIT,
        FaultKind.MISSING_FENCE,
    ),
    "a fence for global memory alone": (
        "fence.proxy.async.global; bar.sync 0;",
        COMMIT,
        FaultKind.MISSING_FENCE,
    ),
    "a fence after the barrier, in another thread": (
        "bar.sync 0; setp.eq.u32 %p3, %r1, 33; @%p3 fence.proxy.async;",
        COMMIT,
        FaultKind.MISSING_FENCE,
    ),
    "no barrier": ("fence.proxy.async.shared::cta;", COMMIT, FaultKind.SHARED_RACE),
    "no wait before the end": (FENCE, "cp.async.bulk.commit_group;", FaultKind.PENDING_COPY),
    "no commit": (FENCE, "cp.async.bulk.wait_group.read 0;", FaultKind.PENDING_COPY),
    "a wait for one group too few": (
        FENCE,
        COMMIT.replace("read 0", "read 1"),
        FaultKind.PENDING_COPY,
    ),
    "overwritten while it is read": (FENCE, OVERWRITE + COMMIT, FaultKind.PENDING_COPY),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_of_stores_are_reported_by_name(name, order):
    fence, commit, fault = PLANTED[name]
    with pytest.raises(PtxFault) as caught:
        stored(fence, commit, order)
    allowed = {fault}
    if fault == FaultKind.SHARED_RACE and order != "together":
        allowed.add(FaultKind.UNINITIALISED_SHARED)
    assert caught.value.fault in allowed


def fault_of(body: str, *arguments, parameters: str = ".u64 a") -> PtxFault:
    with pytest.raises(PtxFault) as caught:
        run(kernel(SHARED + START + body + "exit;", parameters), 1, 32, list(arguments))
    return caught.value


EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 512; ld.param.u64 %d1, [a];"
COPY_IN = (
    "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%r31], [%d1], 512, [%r30];"
)
COPY_OUT = (
    "ld.param.u64 %d1, [a]; @%p2 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r31], 512;"
)
FILL = "st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};"


def test_results_of_a_bulk_copy_are_there_after_a_full_wait_only():
    def body(wait: str) -> str:
        read = "@%p2 ld.global.u32 %r4, [%d1+16]; @%p2 st.global.u32 [%d1+512], %r4;"
        return FILL + FENCE + COPY_OUT + COMMIT.replace("wait_group.read", wait) + read

    array = np.zeros(256, np.int32)
    found = fault_of(body("wait_group.read"), array)
    assert found.fault == FaultKind.PENDING_COPY
    run(kernel(SHARED + START + body("wait_group") + "exit;", ".u64 a"), 1, 32, [array])
    assert array[4] == array[128] == 1


def test_a_barrier_or_a_fence_stands_between_initialisation_and_copy():
    init = "@%p2 mbarrier.init.shared.b64 [b], 1;"
    found = fault_of(init + EXPECT + COPY_IN, np.zeros(256, np.int32))
    assert found.fault == FaultKind.MBARRIER_STATE
    for fence in ("fence.mbarrier_init.release.cluster;", "fence.proxy.async;", "bar.sync 0;"):
        body = init + fence + EXPECT + COPY_IN + "bar.sync 0;" + WAIT
        run(kernel(SHARED + START + body + "exit;", ".u64 a"), 1, 32, [np.zeros(256, np.int32)])


def test_a_copy_over_what_a_thread_wrote_needs_a_fence():
    array = np.zeros(256, np.int32)
    found = fault_of(INIT + FILL + "bar.sync 0;" + EXPECT + COPY_IN + WAIT, array)
    assert found.fault == FaultKind.MISSING_FENCE
    body = INIT + FILL + FENCE + EXPECT + COPY_IN + WAIT
    run(kernel(SHARED + START + body + "exit;", ".u64 a"), 1, 32, [array])


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("[%d1], 512", "[%d1+8], 512", FaultKind.MISALIGNED),
        ("[%d1], 512", "[%d1], 500", FaultKind.MISALIGNED),
        ("[%r31]", "[%r31+8]", FaultKind.MISALIGNED),
        ("[%d1], 512", "[%d1+768], 512", FaultKind.OUT_OF_BOUNDS),
    ],
)
def test_ranges_are_aligned_and_inside(right, wrong, fault):
    assert right in COPY_IN
    copy = COPY_IN.replace(right, wrong)
    assert fault_of(INIT + EXPECT + copy + WAIT, np.zeros(256, np.int32)).fault == fault


def test_maps_that_do_not_fit_their_arrays_are_refused():
    array = np.zeros((16, 8), np.int32)

    def found(tensor: TensorMap, offset_bytes: int = 0, *, stores: bool = False) -> PtxFault:
        argument = TensorArgument(tensor, array, offset_bytes)
        one = store(2, (0, 8)) if stores else load(2, (0, 8), tensor.box_bytes)
        with pytest.raises(PtxFault) as caught:
            run(one, 1, tensor.box_bytes // 16, [argument, np.zeros(64, np.int32)])
        return caught.value

    right = TensorMap("int32", (8, 16), (32,), (8, 8))
    assert found(right, 8).fault == FaultKind.TENSOR_MAP
    assert found(right, 32).fault == FaultKind.OUT_OF_BOUNDS
    narrow = TensorMap("int32", (8, 16), (32,), (8, 8), swizzle_bytes=64)
    assert found(narrow).fault == FaultKind.UNSUPPORTED
    flat = TensorMap("int32", (128,), (), (64,))
    assert found(flat).fault == FaultKind.TENSOR_MAP
    array.flags.writeable = False
    assert found(right, stores=True).fault == FaultKind.READ_ONLY

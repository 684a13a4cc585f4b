"""Kernels that Triton compiled give right results in every order: a second reading of PTX."""

import re
from pathlib import Path

import numpy as np
import pytest

from tilewright.sim.ptx import FaultKind, PtxFault, PtxKernel, TensorArgument, parse_ptx, run
from tilewright.tensor_map import TensorMap

FOLDER = Path(__file__).parent / "triton_kernels"
ORDERS = ("together", "ascending", "descending", 5)
TYPES = {"fp16": np.float16, "fp32": np.float32, "i8": np.int8}


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.ptx").read_text(encoding="utf-8")


def first_kernel(text: str) -> PtxKernel:
    return next(iter(parse_ptx(text).values()))


def product_of(text: str, kind: str, order: str | int) -> tuple[np.ndarray, np.ndarray]:
    """A product with tails in every dimension; what the kernel found, and what is right."""
    random = np.random.default_rng(0)
    m, n, k = 72, 100, 80
    dtype = TYPES[kind]
    if kind == "i8":
        a, b = (random.integers(-128, 128, shape, dtype) for shape in ((m, k), (k, 112)))
    else:
        a, b = (random.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, 112)))
    c = np.zeros((m, 112), np.int32 if kind == "i8" else np.float32)
    sizes = [m, n, k, k, 112, 112]
    run(first_kernel(text), (2, 2), 128, [a, b, c, *sizes], 65536, order=order)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    exact[:, n:] = 0
    return c, exact


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "kind", "tolerance"),
    [
        ("matmul_fp16_sm80", "fp16", 1e-5),
        ("matmul_i8_sm80", "i8", 0),
        ("matmul_fp32_sm80", "fp32", 5e-2),
        ("matmul_fp16_sm90", "fp16", 1e-5),
        ("matmul_i8_sm90", "i8", 0),
    ],
)
def test_matrix_products_of_triton_are_right(name, kind, tolerance, order):
    found, exact = product_of(text_of(name), kind, order)
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)


def tma_product_of(text: str, kind: str, order: str | int) -> tuple[np.ndarray, np.ndarray]:
    """A product of boxes that TMA copies, again with tails; B is transposed."""
    random = np.random.default_rng(0)
    m, n, k = 72, 60, 208
    depth = 128 if kind == "i8" else 64
    if kind == "i8":
        a, b = (random.integers(-128, 128, shape, np.int8) for shape in ((m, k), (n, k)))
    else:
        a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = np.zeros((m, n), np.int32 if kind == "i8" else np.float32)
    arguments = []
    # Triton splits a box that is wider than its swizzle, as that of C.
    for array, box in ((a, (depth, 64)), (b, (depth, 64)), (c, (32, 64))):
        strides = (array.strides[0],)
        tensor = TensorMap(array.dtype.name, array.shape[::-1], strides, box, swizzle_bytes=128)
        stride = array.strides[0] // array.itemsize
        arguments += [TensorArgument(tensor, array), *array.shape, stride, 1]
    kernel = first_kernel(text)
    run(kernel, (2, 1), kernel.required_threads or 0, [*arguments, k], 82176, order=order)
    return c, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("kind", "tolerance"), [("fp16", 2e-5), ("i8", 0)])
def test_products_of_triton_by_tma_are_right(kind, tolerance, order):
    found, exact = tma_product_of(text_of(f"matmul_{kind}_tma_sm90"), kind, order)
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)


PLANTED = {
    "the consumer does not wait": (
        r"(?<=\[%r17\], %r18;)\s*@!complete bra.uni waitLoop;",
        "",
        {FaultKind.UNINITIALISED_SHARED, FaultKind.PENDING_COPY},
    ),
    "a warp specialised for loads does not wait": (
        r"mbarrier.try_wait\S+ complete, \[%r14[01]\], %r142;\s*@!complete bra.uni waitLoop;",
        "",
        {FaultKind.PENDING_COPY, FaultKind.SHARED_RACE, FaultKind.MBARRIER_COUNT},
    ),
    "a consumer does not release": (
        r"@%p6 mbarrier.arrive\S+ _, \[%r19\], 128;",
        "",
        {FaultKind.DEADLOCK},
    ),
    "a consumer releases before its products are done": (
        r"(wgmma.wait_group.sync.aligned 0;)(\s*// end inline asm\s*add.s32 \s*%r19, %r21, 82048;"
        r"\s*bar.sync \s*3, 128;\s*// begin inline asm\s*@%p6 \S+ _, \[%r19\], 128;)",
        r"\2\1",
        {FaultKind.SHARED_RACE},
    ),
    "fewer bytes": ("16384;", "8192;", {FaultKind.MBARRIER_BYTES, FaultKind.UNINITIALISED_SHARED}),
    "more bytes": ("16384;", "32768;", {FaultKind.DEADLOCK}),
    "no fence": ("fence.proxy.async.shared::cta;", "", {FaultKind.MISSING_FENCE}),
    "no wait for the store": (
        r"cp.async.bulk.wait_group\s+0;",
        "",
        {FaultKind.PENDING_COPY},
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_faults_planted_in_a_product_by_tma_are_reported(name):
    pattern, wrong, faults = PLANTED[name]
    text, count = re.subn(pattern, wrong, text_of("matmul_fp16_tma_sm90"))
    assert count
    with pytest.raises(PtxFault) as caught:
        tma_product_of(text, "fp16", "descending")
    assert caught.value.fault in faults


@pytest.mark.parametrize("order", ORDERS)
def test_wgmma_reads_what_threads_wrote_after_a_proxy_fence_only(order):
    text = text_of("matmul_fp16_sm90")
    assert text.count("fence.proxy.async.shared::cta;") == 1
    with pytest.raises(PtxFault) as caught:
        product_of(text.replace("fence.proxy.async.shared::cta;", ""), "fp16", order)
    assert caught.value.fault == FaultKind.MISSING_FENCE


@pytest.mark.parametrize("order", ORDERS)
def test_softmax_of_triton_is_right(order):
    x = np.random.default_rng(1).standard_normal((5, 200)).astype(np.float32)
    y = np.zeros_like(x)
    run(first_kernel(text_of("softmax_sm80")), 5, 128, [x, y, 200], 1024, order=order)
    exponential = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, exponential / exponential.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_of_triton_count_every_element(order):
    x = np.random.default_rng(1).integers(0, 16, 1000, np.int32)
    counts = np.zeros(16, np.int32)
    run(first_kernel(text_of("histogram_sm80")), 4, 128, [x, counts, 1000], 4096, order=order)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=16))


BARRIER = "bar.sync \t0;"


@pytest.mark.parametrize("order", ["together", "descending"])
@pytest.mark.parametrize("number", range(6))
def test_a_barrier_taken_from_a_kernel_of_triton_is_missed(number, order):
    parts = text_of("matmul_fp16_sm80").split(BARRIER)
    assert len(parts) == 7
    parts[number : number + 2] = ["".join(parts[number : number + 2])]
    with pytest.raises(PtxFault) as caught:
        product_of(BARRIER.join(parts), "fp16", order)
    kinds = FaultKind.SHARED_RACE, FaultKind.UNINITIALISED_SHARED, FaultKind.PENDING_COPY
    assert caught.value.fault in kinds


@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_taken_from_a_kernel_of_triton_is_missed(order):
    text = text_of("matmul_fp16_sm80")
    wait = "cp.async.wait_group \t1;"
    assert text.count(wait) == 1
    with pytest.raises(PtxFault) as caught:
        product_of(text.replace(wait, ""), "fp16", order)
    assert caught.value.fault == FaultKind.PENDING_COPY


@pytest.mark.parametrize("order", ORDERS)
def test_the_sums_of_wgmma_cannot_be_used_before_its_wait(order):
    text = text_of("matmul_fp16_sm90")
    wait = "wgmma.wait_group.sync.aligned 0;"
    assert text.count(wait) == 1
    with pytest.raises(PtxFault) as caught:
        product_of(text.replace(wait, ""), "fp16", order)
    assert caught.value.fault == FaultKind.PENDING_PRODUCT


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("ldmatrix.sync.aligned.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4")],
)
def test_a_wrong_fragment_differs_from_the_definition(right, wrong):
    text = text_of("matmul_fp16_sm80")
    assert right in text
    found, exact = product_of(text.replace(right, wrong), "fp16", "together")
    assert np.abs(found - exact).max() > 1

"""Compile the Triton kernels of this folder to PTX, without a GPU.

    pip install triton==3.9.0 && python tests/sim/ptx/triton_kernels/make.py

Triton (MIT licence) is not installed for the tests: its PTX is kept beside this script, as a
second compiler's reading of fragments, `ldmatrix`, `cp.async`, `wgmma`, TMA and barriers.
"""

# pyright: reportInvalidTypeForm=false, reportMissingImports=false

import os
from pathlib import Path

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    ACCUMULATOR: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, DEPTH)
    a_ptrs = a + m[:, None] * stride_a + k[None, :]
    b_ptrs = b + k[:, None] * stride_b + n[None, :]
    sums = tl.zeros((TILE, TILE), dtype=ACCUMULATOR)
    for i in range(0, tl.cdiv(K, DEPTH)):
        inside = k < K - i * DEPTH
        x = tl.load(a_ptrs, mask=(m < M)[:, None] & inside[None, :], other=0)
        y = tl.load(b_ptrs, mask=inside[:, None] & (n < N)[None, :], other=0)
        sums = tl.dot(x, y, sums, out_dtype=ACCUMULATOR)
        a_ptrs += DEPTH
        b_ptrs += DEPTH * stride_b
    c_ptrs = c + m[:, None] * stride_c + n[None, :]
    tl.store(c_ptrs, sums, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def matmul_tma(
    a,
    b,
    c,
    K,
    ACCUMULATOR: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    SPECIALISED: tl.constexpr,
):
    m = tl.program_id(0) * TILE
    n = tl.program_id(1) * TILE
    sums = tl.zeros((TILE, TILE), dtype=ACCUMULATOR)
    for k in tl.range(0, K, DEPTH, warp_specialize=SPECIALISED):
        x = a.load([m, k])
        y = b.load([n, k])
        sums = tl.dot(x, y.T, sums, out_dtype=ACCUMULATOR)
    c.store([m, n], sums)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf"))
    exponential = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * columns + i, exponential / tl.sum(exponential, axis=0), mask=i < columns)


@triton.jit
def histogram(x, counts, count, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count, other=0)
    tl.atomic_add(counts + value, 1, mask=i < count)


def compiled(
    function, types: dict[str, str], constants: dict, capability: int, aligned: str
) -> str:
    """PTX of a kernel for four warps; the arguments in `aligned` are multiples of 16."""
    names = list(types) + list(constants)
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned.split()}
    signature = types | dict.fromkeys(constants, "constexpr")
    source = ASTSource(function, signature, constants, attributes)
    options = {"num_warps": 4, "num_stages": 3}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm[
        "ptx"
    ]


def main() -> None:
    folder = Path(__file__).parent
    integers = dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_c"), "i32")
    sums = {"fp16": "fp32", "i8": "i32", "fp32": "fp32"}
    for kind, capability in (("fp16", 80), ("i8", 80), ("fp32", 80), ("fp16", 90), ("i8", 90)):
        types = {"a": f"*{kind}", "b": f"*{kind}", "c": f"*{sums[kind]}", **integers}
        accumulator = tl.int32 if kind == "i8" else tl.float32
        constants = {"ACCUMULATOR": accumulator, "TILE": 64, "DEPTH": 32}
        text = compiled(matmul, types, constants, capability, "a b c K stride_a stride_b stride_c")
        (folder / f"matmul_{kind}_sm{capability}.ptx").write_text(text, encoding="utf-8")
    for kind, depth, specialised in (("fp16", 64, True), ("i8", 128, False)):
        factor = f"tensordesc<{kind}[64,{depth}]>"
        types = {"a": factor, "b": factor, "c": f"tensordesc<{sums[kind]}[64,64]>", "K": "i32"}
        accumulator = tl.int32 if kind == "i8" else tl.float32
        constants = {"ACCUMULATOR": accumulator, "TILE": 64, "DEPTH": depth}
        constants["SPECIALISED"] = specialised
        text = compiled(matmul_tma, types, constants, 90, "")
        (folder / f"matmul_{kind}_tma_sm90.ptx").write_text(text, encoding="utf-8")
    types = {"x": "*fp32", "y": "*fp32", "columns": "i32"}
    text = compiled(softmax, types, {"BLOCK": 256}, 80, "x y")
    (folder / "softmax_sm80.ptx").write_text(text, encoding="utf-8")
    types = {"x": "*i32", "counts": "*i32", "count": "i32"}
    text = compiled(histogram, types, {"BLOCK": 256, "BINS": 16}, 80, "x counts")
    (folder / "histogram_sm80.ptx").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

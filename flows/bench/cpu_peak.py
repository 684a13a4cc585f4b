"""Peak operations per second of a core: the reference for the kernel benchmark.

The peak is measured with a loop of independent multiply-add instructions on registers. A kernel can
exceed it only by doing fewer multiplications.
"""

import ctypes
import time
from collections.abc import Mapping

from ...compiler.cpu import CpuTarget
from ...compiler.cpu.codegen.machine_code import LoadedCode, assemble
from ...compiler.cpu.x86 import AMX

CHAINS = 12
"""Independent sums: enough for two instructions per cycle, and few enough for registers."""

ITERATIONS = 50_000
RUNS = 20

_FMA = "llvm.fma.v{lanes}f32"
_AVX512 = (_FMA.format(lanes=16), "<16 x float>", "<16 x float>", 32)
_AVX2 = (_FMA.format(lanes=8), "<8 x float>", "<8 x float>", 16)
_INSTRUCTIONS = {
    "amx": {"float32": _AVX512, "int8": ("llvm.x86.tdpbusd", "", "", 2 * 16 * 16 * 64)},
    "avx512vnni": {
        "float32": _AVX512,
        "int8": ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", 128),
    },
    "avxvnni": {
        "float32": _AVX2,
        "int8": ("llvm.x86.avx512.vpdpbusd.256", "<8 x i32>", "<32 x i8>", 64),
    },
    "avx2": {"float32": _AVX2},
}
"""The loop of each level and type: intrinsic, types of sums and factors, operations.

Operands in tiles have no types.
"""


def peak_rates(target: CpuTarget) -> Mapping[str, float]:
    """Operations per second of one thread, by element type; only for known levels."""
    return {
        kind: _rate(target, *instruction)
        for kind, instruction in _INSTRUCTIONS.get(target.level, {}).items()
    }


def _rate(target: CpuTarget, name: str, sums: str, factors: str, operations: int) -> float:
    code = _code(target, name, sums, factors) if sums else _tile_code(target, name)
    library = LoadedCode(assemble(code, target, "peak"), "peak")
    run = library.function("peak", ctypes.c_void_p, ctypes.c_int64)
    data = (ctypes.c_char * 64)()
    least = float("inf")
    for _ in range(RUNS):
        before = time.thread_time()
        run(ctypes.addressof(data), ITERATIONS)
        least = min(least, time.thread_time() - before)
    return CHAINS * ITERATIONS * operations / least


def _code(target: CpuTarget, name: str, sums: str, factors: str) -> str:
    """`void peak(data, iterations)`; it stores the sums, so none is optimised away."""
    accumulates = "vpdpbusd" in name
    order = (sums, factors, factors) if accumulates else (factors, factors, sums)
    lines = [
        f'target triple = "{target.triple}"',
        f"declare {sums} @{name}({', '.join(order)})",
        "define void @peak(ptr %data, i64 %iterations) {",
        "entry:",
        f"  %x = load volatile {factors}, ptr %data, align 1",
        f"  %y = load volatile {factors}, ptr %data, align 1",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    chains = range(CHAINS)
    lines += [f"  %a{n} = phi {sums} [ zeroinitializer, %entry ], [ %b{n}, %loop ]" for n in chains]
    for n in chains:
        parts = [f"{factors} %x", f"{factors} %y"]
        parts.insert(0 if accumulates else 2, f"{sums} %a{n}")
        lines.append(f"  %b{n} = call {sums} @{name}({', '.join(parts)})")
    lines += [
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %iterations",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    lines += [f"  store volatile {sums} %b{n}, ptr %data, align 1" for n in chains]
    return "\n".join([*lines, "  ret void", "}"])


def _tile_code(target: CpuTarget, name: str) -> str:
    """The same with sums in tiles; the last two hold the factors."""
    *sums, a, b = range(AMX.tiles)
    shapes = ", ".join(f"i8 {byte}" for byte in AMX.shapes([AMX.max_rows] * AMX.tiles))
    products = [
        f"  call void @{name}(i8 {sums[n % len(sums)]}, i8 {a}, i8 {b})" for n in range(CHAINS)
    ]
    lines = [
        f'target triple = "{target.triple}"',
        f"@shapes = internal constant [64 x i8] [{shapes}]",
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilerelease()",
        f"declare void @{name}(i8, i8, i8)",
        "define void @peak(ptr %data, i64 %iterations) {",
        "entry:",
        "  call void @llvm.x86.ldtilecfg(ptr @shapes)",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *products,
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %iterations",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  call void @llvm.x86.tilerelease()",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)

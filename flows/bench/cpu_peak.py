"""Peak operations per second of a core: the reference for the kernel benchmark.

The peak is measured with a loop of independent multiply-add instructions on registers. A kernel can
exceed it only by doing fewer multiplications.
"""

import ctypes
import math
import time
from collections.abc import Mapping, Sequence

from llvmlite import ir

from ...compiler.cpu import CpuTarget
from ...compiler.cpu.codegen.emitter import FLOAT, I8, I32, I64, POINTER, LlvmType, LlvmValue
from ...compiler.cpu.codegen.machine_code import LoadedCode, assemble
from ...compiler.cpu.execution.routine import VOID, Routine
from ...compiler.cpu.instructions import MachineInstruction

CHAINS = 12
"""Independent sums: enough for two instructions per cycle, and few enough for registers."""

ITERATIONS = 50_000
RUNS = 20


def peak_rates(target: CpuTarget) -> Mapping[str, float]:
    """Operations per second of one thread, by element type.

    There is none for a type whose products and sums take several instructions.
    """
    found, level = {}, target.properties
    if level.fused:
        kind = ir.VectorType(FLOAT, level.lanes)
        code = _vector_code(f"llvm.fma.v{level.lanes}f32", kind, kind, sums_first=False)
        found["float32"] = 2 * level.lanes * _rate(target, code)
    best = max(level.instructions, key=lambda one: one.unit is not None)
    if best.element == "int8" and best.adds:
        operations = 2 * math.prod(size for _, size in best.lanes)
        found["int8"] = operations * _rate(target, _integer_code(best, level.lanes))
    return found


def _rate(target: CpuTarget, code: str) -> float:
    """Instructions per second."""
    library = LoadedCode(assemble(code, target, "peak"), "peak")
    run = library.function("peak", ctypes.c_void_p, ctypes.c_int64)
    data = (ctypes.c_char * 64)()
    least = float("inf")
    for _ in range(RUNS):
        before = time.thread_time()
        run(ctypes.addressof(data), ITERATIONS)
        least = min(least, time.thread_time() - before)
    return CHAINS * ITERATIONS / least


def _integer_code(one: MachineInstruction, lanes: int) -> str:
    if one.unit is not None:
        return _tile_code(one)
    sums, factors = ir.VectorType(I32, lanes), ir.VectorType(I8, lanes * one.taps)
    return _vector_code(one.intrinsic, sums, factors, sums_first=True)


def _declared(r: Routine, name: str, result: LlvmType, arguments: Sequence[LlvmType]) -> LlvmValue:
    return ir.Function(r.module, ir.FunctionType(result, arguments), name)


def _vector_code(name: str, sums: LlvmType, factors: LlvmType, *, sums_first: bool) -> str:
    """`void peak(data, iterations)`; it stores the sums, so none is optimised away."""
    r = Routine(ir.Module("peak"), "peak", [POINTER, I64])
    data, iterations = r.arguments
    order = (sums, factors, factors) if sums_first else (factors, factors, sums)
    multiply_add = _declared(r, name, sums, order)
    x, y = (r.load(data, align=1, typ=factors) for _ in range(2))
    chains = [r.variable(ir.Constant(sums, None)) for _ in range(CHAINS)]
    with r.moving(iterations):
        for chain in chains:
            before = r.load(chain, typ=sums)
            operands = (before, x, y) if sums_first else (x, y, before)
            r.store(r.call(multiply_add, operands), chain)
    total = ir.Constant(sums, None)
    for chain in chains:
        after = r.load(chain, typ=sums)
        total = r.fadd(total, after) if sums.element == FLOAT else r.add(total, after)
    r.store(total, data, align=1)
    r.ret_void()
    return str(r.module)


def _tile_code(one: MachineInstruction) -> str:
    """The same with sums in tiles; the last two hold the factors."""
    unit = one.unit
    assert unit is not None
    r = Routine(ir.Module("peak"), "peak", [POINTER, I64])
    shapes = bytearray(unit.shapes([unit.max_rows] * unit.tiles))
    held: LlvmValue = ir.GlobalVariable(r.module, ir.ArrayType(I8, len(shapes)), "shapes")
    held.initializer, held.linkage = ir.Constant(held.value_type, shapes), "internal"
    multiply_add = _declared(r, one.intrinsic, VOID, [I8] * 3)
    *sums, a, b = range(unit.tiles)
    r.call(_declared(r, unit.configure, VOID, [POINTER]), [r.bitcast(held, POINTER)])
    with r.moving(r.arguments[1]):
        for chain in range(CHAINS):
            r.call(multiply_add, [I8(sums[chain % len(sums)]), I8(a), I8(b)])
    r.call(_declared(r, unit.release, VOID, []), [])
    r.ret_void()
    return str(r.module)

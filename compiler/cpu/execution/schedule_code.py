"""The code of schedules: `walk` calls kernels in order, `copy` moves boxes.

Both have the signature of kernels, so a schedule can be a step of another one.
"""

from contextlib import ExitStack

from llvmlite import ir

from ..codegen.emitter import I64, POINTER, LlvmValue
from .routine import VOID, Routine

STEP_WORDS = 5
"""Words of a step: code, addresses of arrays, the pool's function and state, and its end in ticks
of the processor's time stamp counter."""

HEADER_WORDS = 2
"""Words of a schedule ahead of its steps: their number, and the time when they began, in ticks."""

DIMENSIONS = 4
"""Extents of a box, outside its runs of consecutive bytes."""

BOX_WORDS = 4 + 3 * DIMENSIONS
"""Words of a box: its array, its first byte there and in the output, bytes of a run, then extents,
and the distances of elements in bytes, in the source and in the output."""

RUNS = (1, 2, 4, 8, 16, 32)
"""Bytes of runs that are one load and one store; others are left to `memcpy`."""


def schedule_code() -> str:
    """Return a module with `walk` and `copy`, `void (arrays, workspace, run, pool)` both.

    The arrays of `walk` are a schedule: `HEADER_WORDS`, then `STEP_WORDS` for each step. Those of
    `copy` are the addresses of a number of boxes, followed by `BOX_WORDS` for each, of the output,
    and of the sources.
    """
    module = ir.Module("schedule")
    _walk(module)
    _copy(module)
    return str(module)


_KERNEL = ir.FunctionType(VOID, [POINTER] * 4)


def _walk(module: ir.Module) -> None:
    """Call the steps of a schedule, and note when each one ended."""
    clock: LlvmValue = ir.Function(module, ir.FunctionType(I64, []), "llvm.readcyclecounter")
    r = Routine(module, "walk", [POINTER] * 4)
    schedule, workspace, *_ = r.arguments
    r.store(r.call(clock, []), r.at(schedule, 8))
    step = r.variable(r.at(schedule, 8 * HEADER_WORDS))
    size = r.mul(r.word(schedule, 0), I64(8 * STEP_WORDS))
    last = r.ptrtoint(r.at(r.at(schedule, 8 * HEADER_WORDS), size), I64)
    with r.loop() as leave:
        now = r.load(step, typ=POINTER)
        leave(r.icmp_unsigned("==", r.ptrtoint(now, I64), last))
        code, arrays, run, pool = (r.word(now, number, POINTER) for number in range(4))
        r.call_at(code, [arrays, workspace, run, pool], _KERNEL)
        r.store(r.call(clock, []), r.at(now, 8 * 4))
        r.store(r.at(now, 8 * STEP_WORDS), step)
    r.ret_void()


def _row(module: ir.Module, size: int, memcpy: LlvmValue) -> LlvmValue:
    """Return a function that copies `count` runs of `size` bytes, or of any number for 0."""
    r = Routine(module, f"row.{size}", [POINTER, POINTER, *[I64] * 4], internal=True)
    source, target, count, stride, step, run = r.arguments
    with r.moving(count, (source, stride), (target, step)) as (given, taken):
        if size:
            kind = ir.IntType(8 * size) if size <= 16 else ir.VectorType(I64, size // 8)
            r.store(r.load(given, typ=kind, align=1), taken, align=1)
        else:
            r.call(memcpy, [taken, given, run])
    r.ret_void()
    return r.function


def _copy(module: ir.Module) -> None:
    """Copy boxes."""
    memcpy: LlvmValue = ir.Function(
        module, ir.FunctionType(POINTER, [POINTER, POINTER, I64]), "memcpy"
    )
    rows = {size: _row(module, size, memcpy) for size in (0, *RUNS)}
    r = Routine(module, "copy", [POINTER] * 4)
    arrays, *_ = r.arguments
    boxes, out = (r.word(arrays, number, POINTER) for number in range(2))
    with r.moving(r.word(boxes, 0), (r.at(boxes, 8), I64(8 * BOX_WORDS))) as (box,):
        array, source_at, target_at, run, *rest = (r.word(box, i) for i in range(BOX_WORDS))
        extents, strides, steps = (
            rest[part * DIMENSIONS : (part + 1) * DIMENSIONS] for part in range(3)
        )
        row: LlvmValue = rows[0]
        for size in RUNS:
            row = r.select(r.icmp_unsigned("==", run, I64(size)), rows[size], row)
        source = r.at(r.load(r.at(arrays, r.mul(array, I64(8))), typ=POINTER), source_at)
        target = r.at(out, target_at)
        with ExitStack() as stack:
            for extent, stride, step in zip(extents[:-1], strides, steps, strict=False):
                loop = r.moving(extent, (source, stride), (target, step))
                source, target = stack.enter_context(loop)
            kind = rows[0].function_type
            r.call_at(row, [source, target, extents[-1], strides[-1], steps[-1], run], kind)
    r.ret_void()

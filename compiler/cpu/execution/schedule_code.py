"""The code of schedules: `walk` calls kernels in order, `copy` moves boxes.

Both have the signature of kernels, so a schedule can be a step of another one.
"""

from contextlib import ExitStack

from llvmlite import ir

from ..codegen.emitter import I64, POINTER, LlvmValue, transposed
from .routine import VOID, Routine

STEP_WORDS = 5
"""Words of a step: code, addresses of arrays, the pool's function and state, and its end in ticks
of the processor's time stamp counter."""

HEADER_WORDS = 2
"""Words of a schedule ahead of its steps: their number, and the time when they began, in ticks."""

DIMENSIONS = 4
"""Extents of a box, outside its runs of consecutive bytes."""

BOX_WORDS = 5 + 3 * DIMENSIONS
"""Words of a box: the function that copies its innermost extent, its array, its first byte there
and in the output, the length of a run, then extents, and the distances of elements in bytes, in
the source and in the output."""

MEMCPY, VECTOR, VECTORS, SQUARES = "memcpy", "vector.{}", "vectors.{}", "squares.{}"
"""Functions that copy a box's innermost extent, by element or vector size.

The length of a run is in bytes, but in elements for squares.
"""

VECTOR_BYTES = (32, 16, 8, 4, 2, 1)
"""Sizes of vectors of which runs are copied."""

MAX_VECTORS = 16
"""Maximum number of vectors of a run; longer runs are left to `memcpy`."""

SQUARE_BYTES = 16
"""Bytes of a row of a square, whose rows become columns in registers."""

SQUARE_SIZES = (1, 2, 4)
"""Bytes of elements that are moved in squares where neighbours come from different axes."""


def schedule_code() -> ir.Module:
    """Return a module with `walk` and `copy`, `int64 (arrays, workspace, run, pool)` both.

    As every kernel, they return their status, which is 0 except where an index is out of range.
    `walk` then stops, and returns the number of the step, from 1.

    The arrays of `walk` are a schedule: `HEADER_WORDS`, then `STEP_WORDS` for each step. Those of
    `copy` are the addresses of a number of boxes, followed by `BOX_WORDS` for each, of the output,
    and of the sources.
    """
    module = ir.Module("schedule")
    _walk(module)
    _copy(module)
    return module


_KERNEL = ir.FunctionType(I64, [POINTER] * 4)


def _walk(module: ir.Module) -> None:
    """Call the steps of a schedule until one fails, and note when each one ended."""
    clock: LlvmValue = ir.Function(module, ir.FunctionType(I64, []), "llvm.readcyclecounter")
    r = Routine(module, "walk", [POINTER] * 4, I64)
    schedule, workspace, *_ = r.arguments
    r.store(r.call(clock, []), r.at(schedule, 8))
    step = r.variable(r.at(schedule, 8 * HEADER_WORDS))
    size = r.mul(r.word(schedule, 0), I64(8 * STEP_WORDS))
    last = r.ptrtoint(r.at(r.at(schedule, 8 * HEADER_WORDS), size), I64)
    with r.loop() as leave:
        now = r.load(step, typ=POINTER)
        leave(r.icmp_unsigned("==", r.ptrtoint(now, I64), last))
        code, arrays, run, pool = (r.word(now, number, POINTER) for number in range(4))
        status = r.call_at(code, [arrays, workspace, run, pool], _KERNEL)
        with r.if_then(r.icmp_unsigned("!=", status, I64(0)), likely=False):
            done = r.sub(r.ptrtoint(now, I64), r.ptrtoint(schedule, I64))
            # The header is smaller than a step.
            r.ret(r.add(r.udiv(done, I64(8 * STEP_WORDS)), I64(1)))
        r.store(r.call(clock, []), r.at(now, 8 * 4))
        r.store(r.at(now, 8 * STEP_WORDS), step)
    r.ret(I64(0))


_INNERMOST = [POINTER, POINTER, *[I64] * 4]
"""Source, output, extent, distances in the source and in the output, and the length of a run."""


def _memcpy(module: ir.Module) -> None:
    """Copy long runs."""
    memcpy: LlvmValue = ir.Function(
        module, ir.FunctionType(POINTER, [POINTER, POINTER, I64]), "memcpy"
    )
    r = Routine(module, f"copy.{MEMCPY}", _INNERMOST)
    source, target, count, stride, step, run = r.arguments
    with r.moving(count, (source, stride), (target, step)) as (given, taken):
        r.call(memcpy, [taken, given, run])
    r.ret_void()


def _vectors(module: ir.Module, size: int, many: bool) -> None:
    """Copy runs of one vector of `size` bytes, or runs of many, of which the last two overlap."""
    r = Routine(module, f"copy.{(VECTORS if many else VECTOR).format(size)}", _INNERMOST)
    source, target, count, stride, step, run = r.arguments
    kind = ir.IntType(8 * size) if size <= 16 else ir.VectorType(I64, size // 8)
    with ExitStack() as stack:
        given, taken = stack.enter_context(r.moving(count, (source, stride), (target, step)))
        if many:
            start = stack.enter_context(r.blocks(run, size))
            given, taken = r.at(given, start), r.at(taken, start)
        r.store(r.load(given, typ=kind, align=1), taken, align=1)
    r.ret_void()


def _squares(module: ir.Module, size: int) -> None:
    """Copy runs of elements to as many columns: `step` apart, with the extent's elements each."""
    lanes = SQUARE_BYTES // size
    kind = ir.VectorType(ir.IntType(8 * size), lanes)
    r = Routine(module, f"copy.{SQUARES.format(size)}", _INNERMOST)
    source, target, count, stride, step, run = r.arguments
    with r.blocks(run, lanes) as column, r.blocks(count, lanes) as row:
        given = r.at(r.at(source, r.mul(row, stride)), r.mul(column, I64(size)))
        taken = r.at(r.at(target, r.mul(column, step)), r.mul(row, I64(size)))
        places = (r.at(given, r.mul(stride, I64(lane))) for lane in range(lanes))
        rows = [r.load(place, typ=kind, align=1) for place in places]
        for lane, vector in enumerate(transposed(r, rows)):
            r.store(vector, r.at(taken, r.mul(step, I64(lane))), align=1)
    r.ret_void()


def _copy(module: ir.Module) -> None:
    """Copy boxes."""
    _memcpy(module)
    for size in VECTOR_BYTES:
        _vectors(module, size, many=False)
        _vectors(module, size, many=True)
    for size in SQUARE_SIZES:
        _squares(module, size)
    r = Routine(module, "copy", [POINTER] * 4, I64)
    arrays, *_ = r.arguments
    boxes, out = (r.word(arrays, number, POINTER) for number in range(2))
    with r.moving(r.word(boxes, 0), (r.at(boxes, 8), I64(8 * BOX_WORDS))) as (box,):
        innermost = r.word(box, 0, POINTER)
        array, source_at, target_at, run, *rest = (r.word(box, i) for i in range(1, BOX_WORDS))
        extents, strides, steps = (
            rest[part * DIMENSIONS : (part + 1) * DIMENSIONS] for part in range(3)
        )
        source = r.at(r.load(r.at(arrays, r.mul(array, I64(8))), typ=POINTER), source_at)
        target = r.at(out, target_at)
        with ExitStack() as stack:
            for extent, stride, step in zip(extents[:-1], strides, steps, strict=False):
                loop = r.moving(extent, (source, stride), (target, step))
                source, target = stack.enter_context(loop)
            last = [extents[-1], strides[-1], steps[-1], run]
            r.call_at(innermost, [source, target, *last], ir.FunctionType(VOID, _INNERMOST))
    r.ret(I64(0))

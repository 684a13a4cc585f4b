"""The code of schedules in LLVM assembly: `walk` calls kernels in order, `copy` moves boxes.

Both have the signature of kernels, so a schedule can be a step of another one.
"""

from collections.abc import Iterator
from string import Template

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

RUNS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128", 32: "<8 x i32>"}
"""Types of short runs, by their bytes; longer and other runs are left to `memcpy`."""


def schedule_code() -> str:
    """Return a module with `walk` and `copy`, `void (arrays, workspace, run, pool)` both.

    The arrays of `walk` are a schedule: `HEADER_WORDS`, then `STEP_WORDS` for each step. Those of
    `copy` are the addresses of a number of boxes, followed by `BOX_WORDS` for each, of the output,
    and of the sources.
    """
    rows = "".join(_row(str(size), kind) for size, kind in RUNS.items())
    words = "\n".join(
        f"  %w{i}.at = getelementptr i64, ptr %box, i64 {i}\n  %w{i} = load i64, ptr %w{i}.at"
        for i in range(BOX_WORDS)
    )
    cases = " ".join(f"i64 {size}, label %case.{size}" for size in RUNS)
    labels = "".join(f"case.{size}:\n  br label %chosen\n" for size in RUNS)
    choices = ", ".join(f"[ @row.{size}, %case.{size} ]" for size in RUNS)
    return Template(_CODE).substitute(
        rows=rows + _row("any", ""),
        words=words,
        cases=cases,
        labels=labels,
        choices=choices,
        loops="\n".join(_loops()),
        box_words=BOX_WORDS,
        header_words=HEADER_WORDS,
    )


def _row(name: str, kind: str) -> str:
    """Return a function that copies `count` runs of a type, or of any number of bytes."""
    copied = (
        f"%value = load {kind}, ptr %from, align 1\n  store {kind} %value, ptr %to, align 1"
        if kind
        else "%end = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)"
    )
    return Template(_ROW).substitute(name=name, copied=copied)


def _loops() -> Iterator[str]:
    """Yield the loops over all dimensions but the last, around a call for the last one."""
    outer = range(DIMENSIONS - 1)
    before, source, target = "chosen", "%source", "%target"
    for depth in outer:
        yield f"  br label %loop.{depth}\nloop.{depth}:"
        yield f"  %i.{depth} = phi i64 [ 0, %{before} ], [ %next.{depth}, %end.{depth} ]"
        for name, given, word in (("from", source, 4 + DIMENSIONS), ("to", target, 8 + DIMENSIONS)):
            yield f"  %{name}.off.{depth} = mul i64 %i.{depth}, %w{word + depth}"
            yield f"  %{name}.{depth} = getelementptr i8, ptr {given}, i64 %{name}.off.{depth}"
        before, source, target = f"loop.{depth}", f"%from.{depth}", f"%to.{depth}"
    last = DIMENSIONS - 1
    counts = f"i64 %w{4 + last}, i64 %w{8 + last}, i64 %w{12 + last}"
    yield f"  call void %row(ptr {source}, ptr {target}, {counts}, i64 %w3)"
    for depth in reversed(outer):
        yield f"  br label %end.{depth}\nend.{depth}:"
        yield f"  %next.{depth} = add i64 %i.{depth}, 1"
        yield f"  %more.{depth} = icmp ult i64 %next.{depth}, %w{4 + depth}"
        after = f"after.{depth}"
        yield f"  br i1 %more.{depth}, label %loop.{depth}, label %{after}\n{after}:"


_ROW = r"""
define internal void @row.$name(ptr %source, ptr %target, i64 %count, i64 %stride, i64 %step,
                                i64 %bytes) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = phi ptr [ %source, %entry ], [ %from.next, %loop ]
  %to = phi ptr [ %target, %entry ], [ %to.next, %loop ]
  $copied
  %from.next = getelementptr i8, ptr %from, i64 %stride
  %to.next = getelementptr i8, ptr %to, i64 %step
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

_CODE = r"""
%step = type { ptr, ptr, ptr, ptr, i64 }
declare ptr @memcpy(ptr, ptr, i64)
declare i64 @llvm.readcyclecounter()

; Call the steps of a schedule, and note when each one ended.
define void @walk(ptr %schedule, ptr %workspace, ptr %ignored.run, ptr %ignored.pool) {
entry:
  %count = load i64, ptr %schedule
  %began.at = getelementptr i64, ptr %schedule, i64 1
  %first = getelementptr i64, ptr %schedule, i64 $header_words
  %last = getelementptr %step, ptr %first, i64 %count
  %began = call i64 @llvm.readcyclecounter()
  store i64 %began, ptr %began.at
  %none = icmp eq i64 %count, 0
  br i1 %none, label %out, label %loop
loop:
  %at = phi ptr [ %first, %entry ], [ %next, %loop ]
  %arrays.at = getelementptr %step, ptr %at, i64 0, i32 1
  %run.at = getelementptr %step, ptr %at, i64 0, i32 2
  %pool.at = getelementptr %step, ptr %at, i64 0, i32 3
  %ended.at = getelementptr %step, ptr %at, i64 0, i32 4
  %code = load ptr, ptr %at
  %arrays = load ptr, ptr %arrays.at
  %run = load ptr, ptr %run.at
  %pool = load ptr, ptr %pool.at
  call void %code(ptr %arrays, ptr %workspace, ptr %run, ptr %pool)
  %ended = call i64 @llvm.readcyclecounter()
  store i64 %ended, ptr %ended.at
  %next = getelementptr %step, ptr %at, i64 1
  %over = icmp eq ptr %next, %last
  br i1 %over, label %out, label %loop
out:
  ret void
}
$rows
; Copy boxes.
define void @copy(ptr %arrays, ptr %workspace, ptr %ignored.run, ptr %ignored.pool) {
entry:
  %boxes = load ptr, ptr %arrays
  %count = load i64, ptr %boxes
  %out.at = getelementptr ptr, ptr %arrays, i64 1
  %out = load ptr, ptr %out.at
  br label %each
each:
  %n = phi i64 [ 0, %entry ], [ %following, %after.0 ]
  %place = mul i64 %n, $box_words
  %shifted = add i64 %place, 1
  %box = getelementptr i64, ptr %boxes, i64 %shifted
$words
  %array.at = getelementptr ptr, ptr %arrays, i64 %w0
  %array = load ptr, ptr %array.at
  %source = getelementptr i8, ptr %array, i64 %w1
  %target = getelementptr i8, ptr %out, i64 %w2
  switch i64 %w3, label %case.any [ $cases ]
$labels
case.any:
  br label %chosen
chosen:
  %row = phi ptr $choices, [ @row.any, %case.any ]
$loops
  %following = add i64 %n, 1
  %again = icmp ult i64 %following, %count
  br i1 %again, label %each, label %done
done:
  ret void
}
"""

"""Threads that share the iterations of a parallel loop.

A worker spins for a moment after a loop, then sleeps on a futex, so that a loop that soon follows
starts within a microsecond and an idle pool costs nothing; so does the caller while others end.
Iterations are handed out in blocks by an atomic counter. Who comes late finds the loop closed and
does nothing, so that the caller waits for those at work alone. A pool that is in use already is not
waited for: the caller runs its loop itself. All of it is LLVM code, since a kernel calls it from
machine code.
"""

import atexit
import ctypes
import os
import threading
from functools import cache

import numpy as np

from ...errors import CompileError
from .machine_code import Library, assemble
from .target import host

SPINS = 8000
"""Looks at the generation before a worker sleeps: some 100 microseconds."""

PATIENCE = 2000
"""Looks at who is at work before the caller sleeps."""

BLOCKS = 8
"""Blocks of iterations per thread."""

_STATE_BYTES = 512

_FIELDS = {
    "generation": 0,
    "stop": 4,
    "sleepers": 64,
    "busy": 68,
    "open": 128,
    "active": 192,
    "waiting": 196,
    "next": 256,
    "body": 320,
    "context": 328,
    "extent": 336,
    "grain": 344,
    "blocks": 352,
}
"""Bytes of the state; what threads write at the same time has cache lines of its own."""

_CODE = r"""
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define internal void @futex(ptr %word, i64 %operation, i64 %value) {
  call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 %operation, i64 %value,
                               ptr null, ptr null, i64 0)
  ret void
}

; Take blocks of iterations until there are none.
define internal void @work(ptr %state) {
entry:
  %body.at = getelementptr i8, ptr %state, i64 $body
  %context.at = getelementptr i8, ptr %state, i64 $context
  %extent.at = getelementptr i8, ptr %state, i64 $extent
  %grain.at = getelementptr i8, ptr %state, i64 $grain
  %next.at = getelementptr i8, ptr %state, i64 $next
  %body = load ptr, ptr %body.at
  %context = load ptr, ptr %context.at
  %extent = load i64, ptr %extent.at
  %grain = load i64, ptr %grain.at
  br label %take
take:
  %begin = atomicrmw add ptr %next.at, i64 %grain seq_cst
  %more = icmp ult i64 %begin, %extent
  br i1 %more, label %block, label %done
block:
  %full = add i64 %begin, %grain
  %end = call i64 @llvm.umin.i64(i64 %full, i64 %extent)
  call void %body(ptr %context, i64 %begin, i64 %end)
  br label %take
done:
  ret void
}

; What a kernel calls.
define void @run(ptr %state, ptr %body, ptr %context, i64 %extent) {
entry:
  %busy.at = getelementptr i8, ptr %state, i64 $busy
  %was = atomicrmw xchg ptr %busy.at, i32 1 seq_cst
  %taken = icmp ne i32 %was, 0
  %single = icmp ult i64 %extent, 2
  br i1 %taken, label %alone, label %free
alone:
  call void %body(ptr %context, i64 0, i64 %extent)
  ret void
free:
  br i1 %single, label %short, label %start
short:
  call void %body(ptr %context, i64 0, i64 %extent)
  store atomic i32 0, ptr %busy.at seq_cst, align 4
  ret void
start:
  %body.at = getelementptr i8, ptr %state, i64 $body
  %context.at = getelementptr i8, ptr %state, i64 $context
  %extent.at = getelementptr i8, ptr %state, i64 $extent
  %grain.at = getelementptr i8, ptr %state, i64 $grain
  %blocks.at = getelementptr i8, ptr %state, i64 $blocks
  %next.at = getelementptr i8, ptr %state, i64 $next
  %open.at = getelementptr i8, ptr %state, i64 $open
  %active.at = getelementptr i8, ptr %state, i64 $active
  %sleepers.at = getelementptr i8, ptr %state, i64 $sleepers
  %waiting.at = getelementptr i8, ptr %state, i64 $waiting
  %blocks = load i64, ptr %blocks.at
  %share = udiv i64 %extent, %blocks
  %grain = call i64 @llvm.umax.i64(i64 %share, i64 1)
  store ptr %body, ptr %body.at
  store ptr %context, ptr %context.at
  store i64 %extent, ptr %extent.at
  store i64 %grain, ptr %grain.at
  store atomic i64 0, ptr %next.at seq_cst, align 8
  store atomic i32 1, ptr %open.at seq_cst, align 4
  %old = atomicrmw add ptr %state, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %share.out
wake:
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all
  call void @futex(ptr %state, i64 129, i64 2147483647)
  br label %share.out
share.out:
  call void @work(ptr %state)
  store atomic i32 0, ptr %open.at seq_cst, align 4
  br label %wait
wait:
  %spins = phi i32 [ 0, %share.out ], [ %spins.next, %again ], [ %spins.next, %back ]
  %active = load atomic i32, ptr %active.at seq_cst, align 4
  %finished = icmp eq i32 %active, 0
  br i1 %finished, label %over, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %spins.next = add i32 %spins, 1
  %long = icmp ugt i32 %spins, $patience
  br i1 %long, label %rest, label %again
again:
  br label %wait
rest:
  store atomic i32 1, ptr %waiting.at seq_cst, align 4
  %still = load atomic i32, ptr %active.at seq_cst, align 4
  %gone = icmp eq i32 %still, 0
  br i1 %gone, label %back, label %doze
doze:
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG, while as many are at work
  %still.wide = zext i32 %still to i64
  call void @futex(ptr %active.at, i64 128, i64 %still.wide)
  br label %back
back:
  store atomic i32 0, ptr %waiting.at seq_cst, align 4
  br label %wait
over:
  store atomic i32 0, ptr %busy.at seq_cst, align 4
  ret void
}

; What a worker runs until the pool is closed.
define void @worker(ptr %state) {
entry:
  %stop.at = getelementptr i8, ptr %state, i64 $stop
  %open.at = getelementptr i8, ptr %state, i64 $open
  %active.at = getelementptr i8, ptr %state, i64 $active
  %sleepers.at = getelementptr i8, ptr %state, i64 $sleepers
  %waiting.at = getelementptr i8, ptr %state, i64 $waiting
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %leave ], [ %now, %tell ]
  br label %spin
spin:
  %spins = phi i32 [ 0, %idle ], [ %spins.next, %patient ], [ $spins, %woken ]
  %now = load atomic i32, ptr %state seq_cst, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %called, label %nothing
nothing:
  call void @llvm.x86.sse2.pause()
  %spins.next = add i32 %spins, 1
  %tired = icmp ugt i32 %spins, $spins_less_one
  br i1 %tired, label %sleep, label %patient
patient:
  br label %spin
sleep:
  %before = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG, while nothing is called
  %seen.wide = zext i32 %seen to i64
  call void @futex(ptr %state, i64 128, i64 %seen.wide)
  %after = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  br label %woken
woken:
  br label %spin
called:
  %stop = load atomic i32, ptr %stop.at seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %look
look:
  %entered = atomicrmw add ptr %active.at, i32 1 seq_cst
  %open = load atomic i32, ptr %open.at seq_cst, align 4
  %closed = icmp eq i32 %open, 0
  br i1 %closed, label %leave, label %join
join:
  call void @work(ptr %state)
  br label %leave
leave:
  %left = atomicrmw sub ptr %active.at, i32 1 seq_cst
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %waited = icmp ne i32 %waiting, 0
  br i1 %waited, label %tell, label %idle
tell:
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all
  call void @futex(ptr %active.at, i64 129, i64 2147483647)
  br label %idle
out:
  ret void
}

; Let all workers end.
define void @close(ptr %state) {
  %stop.at = getelementptr i8, ptr %state, i64 $stop
  store atomic i32 1, ptr %stop.at seq_cst, align 4
  %old = atomicrmw add ptr %state, i32 1 seq_cst
  call void @futex(ptr %state, i64 129, i64 2147483647)
  ret void
}
"""


class Pool:
    """Workers beside the calling thread.

    Parameters
    ----------
    threads
        How many work in all, at least two.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.process = threads, os.getpid()
        self._memory = np.zeros(_STATE_BYTES + 64, np.uint8)
        start = -self._memory.ctypes.data % 64
        self._fields = self._memory[start : start + _STATE_BYTES]
        self.state = self._fields.ctypes.data
        blocks = _FIELDS["blocks"]
        self._fields[blocks : blocks + 8].view(np.int64)[0] = BLOCKS * threads
        library = _library()
        self.run = library.address("run")
        worker = library.function("worker", ctypes.c_void_p)
        self._close = library.function("close", ctypes.c_void_p)
        self._workers = [
            threading.Thread(target=worker, args=(self.state,), daemon=True)
            for _ in range(threads - 1)
        ]
        for thread in self._workers:
            thread.start()

    def close(self) -> None:
        """End the workers; parallel loops must not be running."""
        if self.process == os.getpid():
            self._close(self.state)
            for thread in self._workers:
                thread.join()


def pool_of(threads: int) -> Pool | None:
    """The process' pool of so many threads, None for one.

    Raises
    ------
    CompileError
        When the number is none.
    """
    if threads < 1:
        raise CompileError(f"a kernel runs on at least one thread, not {threads}")
    return None if threads == 1 else _pool(threads, os.getpid())


@cache
def _pool(threads: int, process: int) -> Pool:
    """One per process: a forked child has none of its parent's workers."""
    assert process == os.getpid()
    pool = Pool(threads)
    atexit.register(pool.close)
    return pool


@cache
def _library() -> Library:
    text = _CODE.replace("$spins_less_one", str(SPINS - 1)).replace("$spins", str(SPINS))
    text = text.replace("$patience", str(PATIENCE))
    for name, offset in sorted(_FIELDS.items(), key=lambda item: -len(item[0])):
        text = text.replace(f"${name}", str(offset))
    target = host()
    return Library(assemble(text, target, "thread pool"), target)

"""The thread pool's code in LLVM assembly; kernels call it.

All threads share one state, `FIELDS`. The function `await` waits for a word of it to change: it
spins for a while, then sleeps on a futex. Sleepers are counted, so that nobody makes a system call
for threads that are awake.
"""

from string import Template

SPINS = 8000
"""Polls of the generation before a worker sleeps: about 100 microseconds."""

PATIENCE = 2000
"""Polls of the active workers before the caller sleeps."""

FIELDS = {
    "generation": 0,
    "stop": 4,
    "sleepers": 64,
    "busy": 68,
    "open": 128,
    "active": 192,
    "waiting": 196,
    "body": 256,
    "context": 264,
    "grain": 272,
    "blocks": 280,
    "threads": 288,
    "shares": 320,
}
"""Byte offsets in the state; fields that threads write concurrently have their own cache lines."""

SHARE_BYTES = 64
"""Bytes of a thread's share of a loop: its next iteration, and its end."""


def pool_code() -> str:
    """A module of `run(state, body, context, extent)`, `worker(state, thread)`, `close(state)`."""
    fields = "\n".join(
        f"  %{name} = getelementptr i8, ptr %state, i64 {at}" for name, at in FIELDS.items()
    )
    return Template(_CODE).substitute(
        fields=fields, spins=SPINS, patience=PATIENCE, share_bytes=SHARE_BYTES
    )


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

; What a word is when it is no longer what it was.
define internal i32 @await(ptr %word, i32 %was, i32 %patience, ptr %sleepers) {
entry:
  br label %look
look:
  %looks = phi i32 [ 0, %entry ], [ %more, %pause ], [ %patience, %sleep ]
  %now = load atomic i32, ptr %word seq_cst, align 4
  %changed = icmp ne i32 %now, %was
  br i1 %changed, label %out, label %same
same:
  %patient = icmp ult i32 %looks, %patience
  br i1 %patient, label %pause, label %sleep
pause:
  call void @llvm.x86.sse2.pause()
  %more = add i32 %looks, 1
  br label %look
sleep:
  %counted = atomicrmw add ptr %sleepers, i32 1 seq_cst
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG, while it is what it was
  %was.wide = zext i32 %was to i64
  call void @futex(ptr %word, i64 128, i64 %was.wide)
  %forgotten = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
out:
  ret i32 %now
}

; Wake all who sleep until a word changes, after it has.
define internal void @wake(ptr %word, ptr %sleepers) {
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %call, label %out
call:
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  call void @futex(ptr %word, i64 129, i64 2147483647)
  br label %out
out:
  ret void
}

; Take blocks of iterations until there are none: from a thread's own share, then from others.
define internal void @work(ptr %state, i64 %thread) {
entry:
$fields
  %the.body = load ptr, ptr %body
  %the.context = load ptr, ptr %context
  %the.grain = load i64, ptr %grain
  %count = load i64, ptr %threads
  br label %share
share:
  %whose = phi i64 [ %thread, %entry ], [ %following, %finished ]
  %looked = phi i64 [ 1, %entry ], [ %more.looked, %finished ]
  %offset = mul i64 %whose, $share_bytes
  %next = getelementptr i8, ptr %shares, i64 %offset
  %end.at = getelementptr i8, ptr %next, i64 8
  %the.end = load i64, ptr %end.at
  br label %take
take:
  %begin = atomicrmw add ptr %next, i64 %the.grain seq_cst
  %more = icmp ult i64 %begin, %the.end
  br i1 %more, label %block, label %finished
block:
  %full = add i64 %begin, %the.grain
  %end = call i64 @llvm.umin.i64(i64 %full, i64 %the.end)
  call void %the.body(ptr %the.context, i64 %begin, i64 %end)
  br label %take
finished:
  %after = add i64 %whose, 1
  %beyond = icmp eq i64 %after, %count
  %following = select i1 %beyond, i64 0, i64 %after
  %more.looked = add i64 %looked, 1
  %left = icmp ult i64 %looked, %count
  br i1 %left, label %share, label %done
done:
  ret void
}

; What a kernel calls.
define void @run(ptr %state, ptr %given.body, ptr %given.context, i64 %given.extent) {
entry:
$fields
  %was = atomicrmw xchg ptr %busy, i32 1 seq_cst
  %taken = icmp ne i32 %was, 0
  br i1 %taken, label %alone, label %free
alone:
  call void %given.body(ptr %given.context, i64 0, i64 %given.extent)
  ret void
free:
  %single = icmp ult i64 %given.extent, 2
  br i1 %single, label %short, label %start
short:
  call void %given.body(ptr %given.context, i64 0, i64 %given.extent)
  br label %over
start:
  %parts = load i64, ptr %blocks
  %share = udiv i64 %given.extent, %parts
  %part = call i64 @llvm.umax.i64(i64 %share, i64 1)
  store ptr %given.body, ptr %body
  store ptr %given.context, ptr %context
  store i64 %part, ptr %grain
  %count = load i64, ptr %threads
  br label %divide
divide:
  %thread = phi i64 [ 0, %start ], [ %following, %divide ]
  %begin = phi i64 [ 0, %start ], [ %end, %divide ]
  %following = add i64 %thread, 1
  %scaled = mul i64 %given.extent, %following
  %end = udiv i64 %scaled, %count
  %offset = mul i64 %thread, $share_bytes
  %next.at = getelementptr i8, ptr %shares, i64 %offset
  %end.at = getelementptr i8, ptr %next.at, i64 8
  store i64 %end, ptr %end.at
  store atomic i64 %begin, ptr %next.at seq_cst, align 8
  %more = icmp ult i64 %following, %count
  br i1 %more, label %divide, label %ready
ready:
  store atomic i32 1, ptr %open seq_cst, align 4
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  call void @wake(ptr %generation, ptr %sleepers)
  call void @work(ptr %state, i64 0)
  store atomic i32 0, ptr %open seq_cst, align 4
  %first = load atomic i32, ptr %active seq_cst, align 4
  br label %wait
wait:
  %working = phi i32 [ %first, %ready ], [ %fewer, %again ]
  %finished = icmp eq i32 %working, 0
  br i1 %finished, label %over, label %again
again:
  %fewer = call i32 @await(ptr %active, i32 %working, i32 $patience, ptr %waiting)
  br label %wait
over:
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
}

; What a worker runs until the pool is closed; the caller of `run` is thread 0.
define void @worker(ptr %state, i64 %thread) {
entry:
$fields
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %leave ]
  %now = call i32 @await(ptr %generation, i32 %seen, i32 $spins, ptr %sleepers)
  %stopping = load atomic i32, ptr %stop seq_cst, align 4
  %stopped = icmp ne i32 %stopping, 0
  br i1 %stopped, label %out, label %look
look:
  %entered = atomicrmw add ptr %active, i32 1 seq_cst
  %is.open = load atomic i32, ptr %open seq_cst, align 4
  %closed = icmp eq i32 %is.open, 0
  br i1 %closed, label %leave, label %join
join:
  call void @work(ptr %state, i64 %thread)
  br label %leave
leave:
  %left = atomicrmw sub ptr %active, i32 1 seq_cst
  call void @wake(ptr %active, ptr %waiting)
  br label %idle
out:
  ret void
}

; Let all workers end.
define void @close(ptr %state) {
$fields
  store atomic i32 1, ptr %stop seq_cst, align 4
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  call void @wake(ptr %generation, ptr %sleepers)
  ret void
}
"""

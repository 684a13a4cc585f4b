"""The thread pool's code; kernels call it.

All threads share one state, `FIELDS`. The function `await` waits for a word of it to change: it
spins for a while, then sleeps on a futex. Sleepers are counted, so that nobody makes a system call
for threads that are awake.
"""

from llvmlite import ir

from ..codegen.emitter import I32, I64, POINTER, LlvmType, LlvmValue
from ..instructions import Architecture, Intrinsic
from .routine import VOID, Routine

SPINS = 8000
"""Polls of the generation before a worker sleeps: about 100 microseconds."""

PATIENCE = 2000
"""Polls of the active workers before the caller sleeps."""

MIN_LATE, MAX_LATE = 1 << 17, 1 << 27
"""Cycles for which the caller waits in vain at least, and as which it counts at most: 50
microseconds and 50 milliseconds."""

REST = 8
"""Times as long that the caller then works alone, so that waits take a ninth of the time at most.
A worker that the system has stopped in the middle of a block, as beside threads of others that
spin, would otherwise stop the caller again and again."""

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
    "alone_until": 296,
    "shares": 320,
}
"""Byte offsets in the state; fields that threads write concurrently have their own cache lines."""

SHARE_BYTES = 64
"""Bytes of a thread's share of a loop: its next iteration, and its end."""


_WAIT, _WAKE, _ALL = 128, 129, (1 << 31) - 1
"""Linux's private operations on futexes, and the maximum number of threads."""

_BODY: LlvmType = ir.FunctionType(VOID, [POINTER, I64, I64])
"""Type of a loop's body: context, first iteration, end."""


def pool_code(architecture: Architecture) -> str:
    """A module of `run(state, body, context, extent)`, `worker(state, thread)`, `close(state)`."""
    module = ir.Module("pool")
    futex = _futex(module, architecture.futex)
    wait, wake = _await(module, futex, architecture.pause), _wake(module, futex)
    work = _work(module)
    _run(module, wait, wake, work)
    _worker(module, wait, wake, work)
    closing = Routine(module, "close", [POINTER])
    (state,) = closing.arguments
    closing.write(I32(1), _field(closing, state, "stop"))
    _start(closing, state, wake)
    closing.ret_void()
    return str(module)


def _field(r: Routine, state: LlvmValue, name: str) -> LlvmValue:
    return r.at(state, FIELDS[name])


def _futex(module: ir.Module, number: int) -> LlvmValue:
    """`futex(word, operation, value)`."""
    system = ir.Function(module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
    r = Routine(module, "futex", [POINTER, I64, I64], internal=True)
    null = ir.Constant(POINTER, None)
    r.call(system, [I64(number), *r.arguments, null, null, I64(0)])
    r.ret_void()
    return r.function


def _await(module: ir.Module, futex: LlvmValue, pause: Intrinsic) -> LlvmValue:
    """`await(word, was, patience, sleepers)`: the value of a word once it differs from `was`."""
    operands = [ir.IntType(bits)(number) for bits, number in pause.operands]
    kinds = [operand.type for operand in operands]
    spin = ir.Function(module, ir.FunctionType(VOID, kinds), pause.name)
    r = Routine(module, "await", [POINTER, I32, I32, POINTER], I32, internal=True)
    word, was, patience, sleepers = r.arguments
    looks = r.variable(I32(0))
    with r.loop():
        now = r.read(word, I32)
        with r.if_then(r.icmp_unsigned("!=", now, was)):
            r.ret(now)
        looked = r.load(looks, typ=I32)
        with r.if_else(r.icmp_unsigned("<", looked, patience)) as (patient, asleep):
            with patient:
                r.call(spin, operands)
                r.store(r.add(looked, I32(1)), looks)
            with asleep:
                r.change("add", sleepers, I32(1))
                r.call(futex, [word, I64(_WAIT), r.zext(was, I64)])
                r.change("sub", sleepers, I32(1))
    return r.function


def _wake(module: ir.Module, futex: LlvmValue) -> LlvmValue:
    """`wake(word, sleepers)`: wake all who sleep until a word changes, after it has."""
    r = Routine(module, "wake", [POINTER, POINTER], internal=True)
    word, sleepers = r.arguments
    with r.if_then(r.icmp_unsigned("!=", r.read(sleepers, I32), I32(0))):
        r.call(futex, [word, I64(_WAKE), I64(_ALL)])
    r.ret_void()
    return r.function


def _start(r: Routine, state: LlvmValue, wake: LlvmValue) -> None:
    """Begin a new generation, for which workers wait."""
    generation = _field(r, state, "generation")
    r.change("add", generation, I32(1))
    r.call(wake, [generation, _field(r, state, "sleepers")])


def _share(r: Routine, state: LlvmValue, thread: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """Where the next iteration of a thread's share is, and its end."""
    share = r.at(_field(r, state, "shares"), r.mul(thread, I64(SHARE_BYTES)))
    return share, r.at(share, 8)


def _work(module: ir.Module) -> LlvmValue:
    """`work(state, thread)`: take blocks of iterations from a thread's own share, then others."""
    r = Routine(module, "work", [POINTER, I64], internal=True)
    state, thread = r.arguments
    body, context = (r.load(_field(r, state, name), typ=POINTER) for name in ("body", "context"))
    grain, count = (r.load(_field(r, state, name), typ=I64) for name in ("grain", "threads"))
    whose, looked = r.variable(thread), r.variable(I64(1))
    with r.loop() as leave:
        owner = r.load(whose, typ=I64)
        following, end_at = _share(r, state, owner)
        last = r.load(end_at, typ=I64)
        with r.loop() as leave_share:
            begin = r.change("add", following, grain)
            leave_share(r.icmp_unsigned(">=", begin, last))
            end = r.add(begin, grain)
            end = r.select(r.icmp_unsigned("<", end, last), end, last)
            r.call_at(body, [context, begin, end], _BODY)
        after = r.add(owner, I64(1))
        r.store(r.select(r.icmp_unsigned("==", after, count), I64(0), after), whose)
        seen = r.load(looked, typ=I64)
        leave(r.icmp_unsigned(">=", seen, count))
        r.store(r.add(seen, I64(1)), looked)
    r.ret_void()
    return r.function


def _run(module: ir.Module, wait: LlvmValue, wake: LlvmValue, work: LlvmValue) -> None:
    """`run(state, body, context, extent)`: what a kernel calls; alone while the pool is busy."""
    clock = ir.Function(module, ir.FunctionType(I64, []), "llvm.readcyclecounter")
    r = Routine(module, "run", [POINTER, POINTER, POINTER, I64])
    state, body, context, extent = r.arguments
    busy, until = _field(r, state, "busy"), _field(r, state, "alone_until")
    with r.if_then(r.icmp_unsigned("!=", r.change("xchg", busy, I32(1)), I32(0))):
        r.call_at(body, [context, I64(0), extent], _BODY)
        r.ret_void()
    began = r.call(clock, [])
    rests = r.icmp_unsigned("<", began, r.load(until, typ=I64))
    with r.if_else(r.or_(rests, r.icmp_unsigned("<", extent, I64(2)))) as (short, shared):
        with short:
            r.call_at(body, [context, I64(0), extent], _BODY)
        with shared:
            grain = r.udiv(extent, r.load(_field(r, state, "blocks"), typ=I64))
            grain = r.select(r.icmp_unsigned(">", grain, I64(1)), grain, I64(1))
            for name, value in (("body", body), ("context", context), ("grain", grain)):
                r.store(value, _field(r, state, name))
            _divide(r, state, extent)
            r.write(I32(1), _field(r, state, "open"))
            _start(r, state, wake)
            r.call(work, [state, I64(0)])
            r.write(I32(0), _field(r, state, "open"))
            worked = r.call(clock, [])
            active = _field(r, state, "active")
            working = r.variable(r.read(active, I32))
            with r.loop() as leave:
                now = r.load(working, typ=I32)
                leave(r.icmp_unsigned("==", now, I32(0)))
                waiting = _field(r, state, "waiting")
                r.store(r.call(wait, [active, now, I32(PATIENCE), waiting]), working)
            ended = r.call(clock, [])
            late, mine = r.sub(ended, worked), r.sub(worked, began)
            fair = r.add(r.add(mine, r.lshr(mine, I64(2))), I64(MIN_LATE))
            with r.if_then(r.icmp_unsigned(">", late, fair)):
                late = r.select(r.icmp_unsigned("<", late, I64(MAX_LATE)), late, I64(MAX_LATE))
                r.store(r.add(ended, r.mul(late, I64(REST))), until)
    r.write(I32(0), busy)
    r.ret_void()


def _divide(r: Routine, state: LlvmValue, extent: LlvmValue) -> None:
    """Give every thread its share of a loop."""
    count = r.load(_field(r, state, "threads"), typ=I64)
    place, first = r.variable(I64(0)), r.variable(I64(0))
    with r.loop() as leave:
        thread, begin = r.load(place, typ=I64), r.load(first, typ=I64)
        following = r.add(thread, I64(1))
        end = r.udiv(r.mul(extent, following), count)
        next_at, end_at = _share(r, state, thread)
        r.store(end, end_at)
        r.write(begin, next_at)
        r.store(end, first)
        r.store(following, place)
        leave(r.icmp_unsigned(">=", following, count))


def _worker(module: ir.Module, wait: LlvmValue, wake: LlvmValue, work: LlvmValue) -> None:
    """`worker(state, thread)`: runs until the pool is closed; the caller of `run` is thread 0."""
    r = Routine(module, "worker", [POINTER, I64])
    state, thread = r.arguments
    generation, sleepers = _field(r, state, "generation"), _field(r, state, "sleepers")
    seen = r.variable(I32(0))
    with r.loop() as leave:
        before = r.load(seen, typ=I32)
        r.store(r.call(wait, [generation, before, I32(SPINS), sleepers]), seen)
        leave(r.icmp_unsigned("!=", r.read(_field(r, state, "stop"), I32), I32(0)))
        active = _field(r, state, "active")
        r.change("add", active, I32(1))
        with r.if_then(r.icmp_unsigned("!=", r.read(_field(r, state, "open"), I32), I32(0))):
            r.call(work, [state, thread])
        r.change("sub", active, I32(1))
        r.call(wake, [active, _field(r, state, "waiting")])
    r.ret_void()

"""Pools of threads, in processes of their own: what waits for ever would hang these tests."""

import subprocess
import sys

import pytest

BEGIN = """
import ctypes, multiprocessing, threading, time
import numpy as np
from tilewright.compiler.cpu import RowSoftmax, compile_kernel
from tilewright.compiler.cpu.execution.pool_code import FIELDS

kernel = compile_kernel(RowSoftmax(400, 300), threads=3)
x = np.random.default_rng(0).standard_normal((400, 300)).astype(np.float32)
expected = compile_kernel(RowSoftmax(400, 300))(x)

def field(name):
    return ctypes.c_int32.from_address(kernel.pool.state + FIELDS[name])

def right():
    assert np.array_equal(kernel(x), expected)
"""

SLEEPING = """
for pause in (0, 0.05, 0.1, 0, 0.05):
    time.sleep(pause)
    right()
time.sleep(0.1)
assert field("sleepers").value == 2
assert field("active").value == field("waiting").value == field("busy").value == 0
"""

FORKED = """
def child(answers):
    before = field("generation").value
    right()
    time.sleep(0.1)
    answers.put((threading.active_count(), before, field("sleepers").value))

right()
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
field("active").value = 1  # as where a worker comes late at that moment
process = context.Process(target=child, args=(answers,), daemon=True)
process.start()
field("active").value = 0
process.join(20)
assert process.exitcode == 0, process.exitcode
assert answers.get() == (3, 0, 2)
right()
"""

MADE_AT_ONCE = """
import gc, threading, time
from tilewright.compiler.cpu.execution.pool import pool_of

both, pools = threading.Barrier(4), []

def make(threads):
    both.wait()
    pools.append(pool_of(threads))

makers = [threading.Thread(target=make, args=(threads,)) for threads in (2, 3, 2, 3)]
for maker in makers:
    maker.start()
for maker in makers:
    maker.join()
gc.collect()
time.sleep(0.3)
assert len(set(map(id, pools))) == 2
"""


def test_pools_may_be_made_at_once() -> None:
    """Workers whose machine code was freed would take the process with them."""
    command = [sys.executable, "-c", MADE_AT_ONCE]
    subprocess.run(command, check=True, timeout=60)


SHARES = """
for rows in (1, 2, 3, 7, 40):
    few = RowSoftmax(rows, 30000)
    x = np.random.default_rng(0).standard_normal((rows, 30000)).astype(np.float32)
    shared, alone = compile_kernel(few, threads=5), compile_kernel(few)
    for pause in (0, 0, 0, 0.05, 0):
        time.sleep(pause)
        assert np.array_equal(shared(x), alone(x))
"""


def test_iterations_are_shared_by_any_number_of_threads() -> None:
    """Some threads have no share, and some sleep while others do theirs."""
    subprocess.run([sys.executable, "-c", BEGIN + SHARES], check=True, timeout=60)


@pytest.mark.parametrize("script", [SLEEPING, FORKED], ids=["sleeping", "forked"])
def test_a_pool_outlives(script: str) -> None:
    """Workers that slept are woken; a forked child has workers of its own."""
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + script]
    subprocess.run(command, check=True, timeout=60)


LATE = """
import ctypes, threading, time
from tilewright.compiler.cpu.execution.pool import pool_of

pool, caller, late = pool_of(2), threading.get_ident(), 0.0
signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
found = []

@signature
def body(context, begin, end):
    found.append(threading.get_ident())
    time.sleep(0.002 if threading.get_ident() == caller else late)

def shared():
    found.clear()
    run = pool._library.function("run", ctypes.c_void_p, signature, ctypes.c_void_p, ctypes.c_int64)
    run(pool.state, body, None, 16)
    return {*found} != {caller}

def some(count=200):
    return any(shared() for _ in range(count))

assert some()
late = 0.2  # as a worker that is stopped in the middle of a block
assert some()
late = 0.0
assert not any(shared() for _ in range(3))
time.sleep(0.6)
assert some()
"""


def test_the_caller_works_alone_after_a_late_worker() -> None:
    """It would otherwise wait at every loop; later, threads share loops again."""
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=60)

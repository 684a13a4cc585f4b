"""Thread pools that share the iterations of a parallel loop.

After a loop, a worker spins for a moment and then sleeps on a futex. A loop that follows soon
starts within a microsecond, and an idle pool costs nothing. The caller waits in the same way.
An atomic counter hands out blocks of iterations. A late worker finds the loop closed and does
nothing, so that the caller waits only for workers that have started. If the pool is busy, the
caller runs its loop alone. A forked child has no workers: its pools start anew.
"""

import atexit
import ctypes
import os
import threading
from functools import cache

import numpy as np

from ....errors import CompileError
from ..codegen.machine_code import ObjectCode, assemble
from ..target import host
from .pool_code import FIELDS, STATE_BYTES, pool_code

BLOCKS = 8
"""Blocks of iterations per thread."""


class Pool:
    """The calling thread and its workers.

    Parameters
    ----------
    threads
        Threads in all, at least two.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = np.zeros(STATE_BYTES + 64, np.uint8)
        start = -self._memory.ctypes.data % 64
        self._fields = self._memory[start : start + STATE_BYTES]
        self.state = self._fields.ctypes.data
        self._library = _library()  # code lives as long as it does
        self.run = self._library.address("run")
        self._worker = self._library.function("worker", ctypes.c_void_p)
        self._close = self._library.function("close", ctypes.c_void_p)
        self.start()

    def start(self) -> None:
        """Reset the state and start the workers; none may be running."""
        blocks = FIELDS["blocks"]
        self._fields[:] = 0
        self._fields[blocks : blocks + 8].view(np.int64)[0] = BLOCKS * self.threads
        self._workers = [
            threading.Thread(target=self._worker, args=(self.state,), daemon=True)
            for _ in range(self.threads - 1)
        ]
        for thread in self._workers:
            thread.start()

    def close(self) -> None:
        """Stop the workers; no parallel loop may be running."""
        self._close(self.state)
        for thread in self._workers:
            thread.join()


def pool_of(threads: int) -> Pool | None:
    """The process-wide pool of a number of threads; None for one thread.

    Raises
    ------
    CompileError
        When the number is less than one.
    """
    if threads < 1:
        raise CompileError(f"a kernel runs on at least one thread, not {threads}")
    if threads == 1:
        return None
    with _making.lock:
        return _pool(threads)


class _Making:
    """A lock around the creation of pools; a forked child gets a new one."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.Lock()


_making = _Making()


@cache
def _pool(threads: int) -> Pool:
    pool = Pool(threads)
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.start)
    return pool


@cache
def _library() -> ObjectCode:
    target = host()
    return ObjectCode(assemble(pool_code(), target, "thread pool"), target)

"""Thread pools that share the iterations of a parallel loop.

After a loop, a worker spins for a moment and then sleeps on a futex. A loop that follows soon
starts within a microsecond, and an idle pool costs nothing. The caller waits in the same way. Each
thread takes blocks of iterations from its own share of the loop, which is always the same part of
it, and then from the shares of others. So the arrays of a network mostly stay in the caches of the
threads that wrote them. A late worker finds the loop closed and does nothing, so that the caller
waits only for workers that have started. If one of these takes much longer than the caller, because
the system runs something else in its place, the caller works alone for a while. If the pool is
busy, the caller runs its loop alone. A forked child has no workers: its pools start anew.
"""

import atexit
import ctypes
import os
import threading
from functools import cache

import numpy as np

from ....errors import CompileError
from ..codegen.machine_code import LoadedCode, assemble
from ..target import host
from .pool_code import FIELDS, SHARE_BYTES, pool_code

BLOCKS = 8
"""Blocks of iterations per thread."""


class ThreadPool:
    """The calling thread and its workers.

    Parameters
    ----------
    threads
        Threads in all, at least two.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        size = FIELDS["shares"] + threads * SHARE_BYTES
        self._memory = np.zeros(size + 64, np.uint8)
        start = -self._memory.ctypes.data % 64
        self._fields = self._memory[start : start + size]
        self.state = self._fields.ctypes.data
        self._library = _library()  # code lives as long as it does
        self.run = self._library.address("run")
        self._worker = self._library.function("worker", ctypes.c_void_p, ctypes.c_int64)
        self._close = self._library.function("close", ctypes.c_void_p)
        self.start()

    def start(self) -> None:
        """Reset the state and start the workers; none may be running."""
        self._fields[:] = 0
        for name, value in (("blocks", BLOCKS * self.threads), ("threads", self.threads)):
            self._fields[FIELDS[name] : FIELDS[name] + 8].view(np.int64)[0] = value
        self._workers = [
            threading.Thread(target=self._worker, args=(self.state, thread), daemon=True)
            for thread in range(1, self.threads)
        ]
        for thread in self._workers:
            thread.start()

    def close(self) -> None:
        """Stop the workers; no parallel loop may be running."""
        self._close(self.state)
        for thread in self._workers:
            thread.join()


def pool_of(threads: int) -> ThreadPool | None:
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
def _pool(threads: int) -> ThreadPool:
    pool = ThreadPool(threads)
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.start)
    return pool


@cache
def _library() -> LoadedCode:
    target = host()
    code = assemble(pool_code(target.properties.architecture), target, "thread pool")
    return LoadedCode(code, "run", "worker", "close")

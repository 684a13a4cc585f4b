"""Threads that share the iterations of a parallel loop.

A worker spins for a moment after a loop, then sleeps on a futex, so that a loop that soon follows
starts within a microsecond and an idle pool costs nothing; so does the caller while others end.
Iterations are handed out in blocks by an atomic counter. Who comes late finds the loop closed and
does nothing, so that the caller waits for those at work alone. A pool that is in use already is not
waited for: the caller runs its loop itself. A forked child has none of its parent's workers: its
pools start anew.
"""

import atexit
import ctypes
import os
import threading
from functools import cache

import numpy as np

from ....errors import CompileError
from ..codegen.machine_code import Library, assemble
from ..target import host
from .pool_code import FIELDS, STATE_BYTES, pool_code

BLOCKS = 8
"""Blocks of iterations per thread."""


class Pool:
    """Workers beside the calling thread.

    Parameters
    ----------
    threads
        How many work in all, at least two.
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
        """Begin with a new state, and workers of this process; none may be running."""
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
        """End the workers; parallel loops must not be running."""
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
    if threads == 1:
        return None
    with _making.lock:
        return _pool(threads)


class _Making:
    """One thread makes pools at a time; a forked child does not wait for its parent's."""

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
def _library() -> Library:
    target = host()
    return Library(assemble(pool_code(), target, "thread pool"), target)

"""Processes that try damaged files, one after the other; each may die or hang without harm."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection

LIMIT_S = 60.0
LIMIT_BYTES = 4 << 30

Trial = Callable[[bytes, int], tuple[str, str]]
"""Tries a file with a seed: `equal`, `refused` or a kind of failure, and its message."""

OpenTrial = Callable[[], AbstractContextManager[Trial]]
"""Makes a trial in the process that will use it; the process can import it by name."""


def _work(pipe: Connection, open_trial: OpenTrial, limit_bytes: int) -> None:
    """Try files that come through a pipe until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    with open_trial() as trial:
        try:
            while True:
                seed, data = pipe.recv()
                pipe.send(trial(data, seed))
        except EOFError:
            return


class DamageWorker:
    """A separate process that may die or hang without harm.

    Parameters
    ----------
    open_trial
        What the process does with files.
    limit_s, limit_bytes
        Time limit per file, and memory limit of the process.
    """

    def __init__(
        self,
        open_trial: OpenTrial,
        limit_s: float = LIMIT_S,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.open_trial, self.limit_s, self.limit_bytes = open_trial, limit_s, limit_bytes
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        given = theirs, self.open_trial, self.limit_bytes
        self.process = context.Process(target=_work, args=given, daemon=True)
        self.process.start()
        theirs.close()
        self.deadline = float("inf")

    def send(self, seed: int, data: bytes) -> None:
        """Give a file to the process, which must be idle."""
        self.deadline = time.monotonic() + self.limit_s
        self.pipe.send((seed, data))

    def answer(self, wait_s: float = 0.05) -> tuple[str, str] | None:
        """Result of the file; None while the process works on it."""
        try:
            if self.pipe.poll(wait_s):
                return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self.pipe.close()
            self._start()
            return "crashed", f"the process ended with code {code}"
        if time.monotonic() > self.deadline:
            self.stop()
            self._start()
            return "hung", f"no result after {self.limit_s:.0f} s"
        return None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

"""A time limit for evaluators, which should never hang but are large programs.

A hanging evaluator in the main thread is interrupted. No thread can interrupt another one, so a
worker of Dask leaves it behind, and must be replaced.
"""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

TIME_LIMIT_S = 1800.0
"""Seconds that an evaluator may take for a machine: more than any known network needs."""

_Result = TypeVar("_Result")


def lateness(evaluator: str, limit_s: float) -> str:
    """Return the text of the failure of an evaluator that was not done in time."""
    return f"`{evaluator}`: not done after {limit_s:,g} s; raise `--time-limit`, and add `--retry`"


class TimeLimitError(Exception):
    """A function was not done in time.

    Parameters
    ----------
    left_behind
        Whether it still runs, in a thread of this process.
    """

    def __init__(self, left_behind: bool) -> None:
        super().__init__()
        self.left_behind = left_behind


class _Alarm(BaseException):
    """Raised in the function that hangs, which should not catch it."""


def call_within(limit_s: float, function: Callable[[], _Result]) -> _Result:
    """Call a function, and return its result.

    Raises
    ------
    TimeLimitError
        If it is not done after `limit_s` seconds.
    """
    if threading.current_thread() is threading.main_thread():
        return _interrupted(limit_s, function)
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as problem:
            future.set_exception(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not future.done():
        raise TimeLimitError(left_behind=True)
    return future.result()


def _interrupted(limit_s: float, function: Callable[[], _Result]) -> _Result:
    def ring(*_: object) -> None:
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            return function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Alarm:
        raise TimeLimitError(left_behind=False) from None
    finally:
        signal.signal(signal.SIGALRM, before)

"""Signals that end a command let it stop its tools and remove its temporary files.

A native module that is being imported may abort the process if an exception comes up in it, so a
signal waits until that is over.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Of these, the last two would end Python at once."""

RETRY_S = 0.05
"""Seconds after which a signal that waits is sent again."""


@contextmanager
def signals_interrupt(ended_by: list[signal.Signals]) -> Iterator[None]:
    """Raise `KeyboardInterrupt` at each signal of `ENDING` that is neither ignored nor handled.

    Parameters
    ----------
    ended_by
        The signals are added to it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_in_native_import(frame):
            threading.Timer(RETRY_S, os.kill, (os.getpid(), number)).start()
            return
        ended_by.append(signal.Signals(number))
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in ENDING if hasattr(signal, name)):
            if (handler := signal.getsignal(number)) in (
                signal.SIG_DFL,
                signal.default_int_handler,
            ):
                before[number] = handler
                signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_native_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False

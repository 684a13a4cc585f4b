"""Signals that end a command let it stop its tools and remove its temporary files.

A native module that is being imported may abort the process if an exception comes up in it, and a
tool that is being started would be lost and run on. Python drops an exception in `__del__` and in a
function that native code calls, and the command would go on. So a signal waits until that is over.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Of these, the last two would end Python at once."""

UNBROKEN = "_start_and_register", "__del__", "meet", "_release", "_drop"
"""Functions that no signal interrupts: the one of `sim/processes.py` that starts a tool, and those
in which Python drops exceptions, finalizers and the callbacks of `sim/timing/weaving.py` and
`runtime/gpu/dlpack.py`.
"""

RETRY_S = 0.05
"""Seconds after which a signal that waits is sent again."""


class _Ended(KeyboardInterrupt):
    """A signal ended the command.

    A plain `KeyboardInterrupt` that leaves an `exec` makes Python kill itself by SIGINT at its end,
    even if it was caught (`_Py_UnhandledKeyboardInterrupt` in CPython).
    """


@contextmanager
def signals_interrupt(ended_by: list[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """Raise `KeyboardInterrupt` at each signal of `ENDING` that is neither ignored nor handled.

    Parameters
    ----------
    ended_by
        The signals are added to it.
    stop
        Called once the block was interrupted; no further signal breaks it off.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _must_not_be_broken_off(frame):
            threading.Timer(RETRY_S, os.kill, (os.getpid(), number)).start()
            return
        ended_by.append(signal.Signals(number))
        raise _Ended

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
    except KeyboardInterrupt:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        stop()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _must_not_be_broken_off(frame: FrameType | None) -> bool:
    while frame is not None:
        imports = isinstance(frame.f_locals.get("self"), ExtensionFileLoader)
        if imports or frame.f_code.co_name in UNBROKEN:
            return True
        frame = frame.f_back
    return False

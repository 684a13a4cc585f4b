"""Pausing the cyclic garbage collector during long work on many objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector where many objects are made, few of them in cycles.

    It would visit them again and again: elaboration of hardware would take twice the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

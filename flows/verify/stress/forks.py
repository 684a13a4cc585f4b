"""Processes that are forked after use, and during use: sessions work in the child as before."""

import threading
from functools import partial

from ....runtime.devices import open_device
from ....runtime.session import Session
from . import network
from .processes import StressError, outcomes

CHILDREN = 3


def fork_after_use(children: int = CHILDREN) -> None:
    """Fork after a run, and while another thread runs; children use the old and a new session.

    Raises
    ------
    StressError
        When a result differs or a child hangs.
    """
    with open_device("sim", network.MACHINE) as sim:
        make = partial(Session, network.module(), sim, threads=network.THREADS)
        used = make()
        expected = "".join(network.digest(used, seed) for seed in range(2))

        def run(session: Session) -> str:
            return "".join(network.digest(session, seed) for seed in range(2))

        def child() -> str:
            return run(used) + run(make())

        for busy in (False, True):
            stop = threading.Event()
            thread = threading.Thread(target=_keep_busy, args=(used, stop))
            if busy:
                thread.start()
            try:
                found = outcomes(child, [()] * children)
            finally:
                stop.set()
                if busy:
                    thread.join()
            found.append(run(used) + run(make()))
            for text in found:
                if text != 2 * expected:
                    when = "while another thread runs" if busy else "after use"
                    raise StressError(f"fork {when}: expected {2 * expected}, got {text}")


def _keep_busy(session: Session, stop: threading.Event) -> None:
    while not stop.is_set():
        network.digest(session, 0)

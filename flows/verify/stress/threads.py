"""Threads that share a module, a device and a session, each with its own samples."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from unittest.mock import patch

from ....compiler.module import Module
from ....runtime.device import Device
from ....runtime.devices import open_device
from ....runtime.session import Session
from . import network
from .processes import StressError

THREADS = 4


def share_module(threads: int = THREADS, samples: int = 8) -> None:
    """Run samples in threads, in one session for all and in sessions of their own.

    The threads compile the kernels of a module without machine code at the same time.

    Raises
    ------
    StressError
        When a result differs.
    """
    module = network.module()
    folder = TemporaryDirectory()
    with open_device("sim", network.MACHINE) as sim, ExitStack() as stack:
        shared = _session(module, sim)
        expected = _digests(shared, samples)
        bare = replace(module, code={})  # an empty cache, so that they compile its kernels
        stack.enter_context(patch.dict(os.environ, TILEWRIGHT_CACHE=stack.enter_context(folder)))
        calls = [
            lambda: _digests(shared, samples),
            lambda: _digests(_session(module, sim), samples),
            lambda: _digests(_session(bare, sim), samples),
        ]
        with ThreadPoolExecutor(threads * len(calls)) as pool:
            for future in [pool.submit(call) for call in calls * threads]:
                if future.result() != expected:
                    raise StressError("threads that share a module: a result differs")


def _session(module: Module, device: Device) -> Session:
    return Session(module, device, threads=network.THREADS)


def _digests(session: Session, samples: int) -> list[str]:
    return [network.digest(session, seed) for seed in range(samples)]

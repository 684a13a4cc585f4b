"""Run samples on a device, and compare what it gives, layer by layer and byte by byte."""

import contextlib
import time
from dataclasses import dataclass

import numpy as np

from ..compiler.module import Module
from ..runtime import Comparison, Session, open_device
from ..runtime.devices import Device, Result
from ..runtime.profile import Profile
from ..runtime.session import Run
from .arguments import progress_bar
from .samples import Samples


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a device gave for a number of samples.

    Parameters
    ----------
    outputs
        The network's first output, [samples, ...].
    profile
        Of the first sample.
    results
        What the device said of each segment, for the first sample.
    comparison
        None where none was asked for.
    seconds
        The device's time, comparisons included.
    """

    module: Module
    device: Device
    samples: Samples
    outputs: np.ndarray
    profile: Profile
    results: tuple[Result, ...]
    comparison: Comparison | None
    seconds: float


def run_samples(
    module: Module, device: Device, samples: Samples, *, compare: bool = False, beside: int = 0
) -> Outcome:
    """Run every sample.

    Parameters
    ----------
    compare
        Compare every layer and output with the integer reference.
    beside
        For the first so many samples, compare whole data windows with those of `sim`.

    Raises
    ------
    InputError
        When the samples do not fit the network.
    DeviceError
        When the device fails.
    """
    session = Session(module, device, keep_all=compare)
    comparison = Comparison(module) if compare else None
    runs: list[Run] = []
    outputs: list[np.ndarray] = []
    began = time.perf_counter()
    with contextlib.ExitStack() as held:
        advance = held.enter_context(progress_bar())
        other = None
        if comparison is not None and beside:
            sim = held.enter_context(open_device("sim", module.configuration))
            other = Session(module, sim)
        for index, inputs in enumerate(samples):
            advance(f"running on {device.name}", index, samples.count)
            run = session.run(inputs)
            outputs.append(next(iter(run.outputs.values())))
            runs = runs or [run]
            if comparison is not None:
                if other is not None and index < beside:
                    comparison.add_windows(run, other.run(inputs))
                comparison.add(inputs, run)
    seconds = time.perf_counter() - began
    stacked = np.stack(outputs)
    first = runs[0]
    return Outcome(
        module, device, samples, stacked, first.profile, first.results, comparison, seconds
    )

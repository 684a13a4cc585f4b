"""Run samples on a device, and compare what it gives, layer by layer and byte by byte."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...compiler.module import Module
from ...runtime import Comparison, Session, open_device
from ...runtime.device import Device, Result
from ...runtime.profile import Profile, profile_of
from ...runtime.session import Run
from ..cli.arguments import progress_bar
from .samples import Samples

WARM_RUNS, WARM_S = 5, 0.25
"""A host's first run takes several times as long as others: few samples are run again until there
are so many runs, or so many seconds have passed. Their times alone are kept."""

WARM_DEVICES = ("cpu", "sim")
"""On which a run is short."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a device gave for a number of samples.

    Parameters
    ----------
    outputs
        The network's first output, [samples, ...].
    profile
        Of the first sample; what host steps take is the median of all runs.
    results
        What the device said of each segment, for the first sample.
    comparison
        None where none was asked for.
    seconds
        The device's time, comparisons included.
    host_runs
        Runs of which host times are the median.
    """

    module: Module
    device: Device
    samples: Samples
    outputs: np.ndarray
    profile: Profile
    results: tuple[Result, ...]
    comparison: Comparison | None
    seconds: float
    host_runs: int = 1


def run_samples(
    module: Module,
    device: Device,
    samples: Samples,
    *,
    compare: bool = False,
    compare_with: int = 0,
) -> Outcome:
    """Run every sample.

    Parameters
    ----------
    compare
        Compare every layer and output with the integer reference.
    compare_with
        Number of samples, the first ones, whose whole data windows are compared with `sim`.

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
    host: list[Mapping[str, float]] = []
    outputs: list[np.ndarray] = []
    began = time.perf_counter()
    with contextlib.ExitStack() as held:
        advance = held.enter_context(progress_bar())
        other = None
        if comparison is not None and compare_with:
            sim = held.enter_context(open_device("sim", module.configuration))
            other = Session(module, sim)
        for index, inputs in enumerate(samples):
            advance(f"running on {device.name}", index, samples.count)
            run = session.run(inputs)
            outputs.append(next(iter(run.outputs.values())))
            runs = runs or [run]
            host.append(run.host.seconds)
            if comparison is not None:
                if other is not None and index < compare_with:
                    comparison.add_windows(run, other.run(inputs))
                comparison.add(inputs, run)
    seconds = time.perf_counter() - began
    stacked, first = np.stack(outputs), runs[0]
    if first.host.seconds and device.name in WARM_DEVICES:
        host += warm_runs(session, samples, WARM_RUNS - len(host))
    profile = profile_of(module, first.results, first.names, first.host.typical(host))
    return Outcome(
        module, device, samples, stacked, profile, first.results, comparison, seconds, len(host)
    )


def warm_runs(session: Session, samples: Samples, count: int) -> list[Mapping[str, float]]:
    """Seconds of the host's steps in up to `count` further runs of the first sample."""
    found: list[Mapping[str, float]] = []
    began = time.perf_counter()
    inputs = next(iter(samples))
    while len(found) < count and time.perf_counter() - began < WARM_S:
        found.append(session.run(inputs).host.seconds)
    return found

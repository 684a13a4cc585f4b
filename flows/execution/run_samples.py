"""Run samples on a device, and compare the results, layer by layer and byte by byte."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...compiler.module import Module
from ...runtime import Comparison, Session, open_device
from ...runtime.device import Device, Result
from ...runtime.profile import Profile, profile_of
from ...runtime.session import NO_STATES, Run
from ..cli.arguments import progress_bar
from .samples import Samples

WARM_RUNS, WARM_S = 5, 0.25
"""Greatest number and total seconds of further runs. A host's first run takes several times as long
as the others, so a few samples are run again, and only the times of these runs count."""

WARM_DEVICES = ("cpu", "sim")
"""Devices on which a run is short enough to be repeated."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The results of some samples on a device.

    Parameters
    ----------
    outputs : ndarray
        The network's first output, [samples, ...].
    profile : Profile
        Profile of the first sample; times of host steps are medians of all runs.
    results : tuple
        The device's result of each segment, for the first sample.
    comparison : Comparison or None
        The comparison with the reference; None if it was not requested.
    seconds : float
        The device's time, comparisons included.
    host_runs : int
        Number of runs over which host times are medians.
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
    states: Mapping[str, str] = NO_STATES,
) -> RunOutcome:
    """Run every sample, one after another.

    Parameters
    ----------
    compare : bool
        Compare every layer and output with the integer reference.
    compare_with : int
        Number of samples, the first ones, whose whole data windows are compared with `sim`.
    states : mapping
        Input -> the output that it takes from the previous sample.

    Raises
    ------
    InputError
        When the samples do not fit the network.
    DeviceError
        When the device fails.
    """
    session = Session(module, device, keep_all=compare, states=states)
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
                    comparison.add_windows(run, other.run(run.inputs))
                comparison.add(run.inputs, run)
    seconds = time.perf_counter() - began
    stacked, first = np.stack(outputs), runs[0]
    if first.host.seconds and device.name in WARM_DEVICES:
        host += warm_runs(session, samples, WARM_RUNS - len(host))
    profile = profile_of(module, first.results, first.names, first.host.typical(host))
    return RunOutcome(
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

"""Run samples on a device, and compare the results, layer by layer and byte by byte."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...compiler.module import Module
from ...runtime import Comparison, Session, open_device
from ...runtime.benchmark import REPEAT, Benchmark
from ...runtime.device import Device, Result
from ...runtime.devices import SimDevice, without_gpu
from ...runtime.profile import Profile, profile_of
from ...runtime.session import NO_STATES, Run
from ..cli.progress import progress_bar
from .samples import Samples

SLOW_S, SLOW_REPEATS = 0.1, 3
"""Repetitions of a run that takes this long; a shorter one is repeated `REPEAT` times."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The results of some samples on a device.

    Parameters
    ----------
    outputs : ndarray
        The network's first output, [samples, ...].
    profile : Profile
        Profile of the first sample; times of host steps are medians of repeated runs.
    results : tuple
        The device's result of each segment, for the first sample.
    comparison : Comparison or None
        The comparison with the reference, or of data windows alone; None if there was none.
    seconds : float
        The device's time, comparisons included.
    benchmark : Benchmark or None
        The time of a whole run on this machine, of which host times are medians; None if the host
        runs nothing, or the device is too slow to run again.
    """

    module: Module
    device: Device
    samples: Samples
    outputs: np.ndarray
    profile: Profile
    results: tuple[Result, ...]
    comparison: Comparison | None
    seconds: float
    benchmark: Benchmark | None = None


def run_samples(
    module: Module,
    device: Device,
    samples: Samples,
    *,
    compare: bool = False,
    compare_with: int = 0,
    states: Mapping[str, str] = NO_STATES,
    repeat: int | None = None,
) -> RunOutcome:
    """Run every sample, one after another.

    Parameters
    ----------
    compare : bool
        Compare every layer and output with the integer reference.
    compare_with : int
        Number of samples, the first ones, whose whole data windows are compared with `sim`, layers
        or not.
    states : mapping
        Input -> the output that it takes from the previous sample.
    repeat : int or None
        Repetitions when host times are measured; None for as many as take little time.

    Raises
    ------
    InputError
        When the samples do not fit the network.
    DeviceError
        When the device fails.
    """
    session = Session(module, device, keep_all=compare, states=states)
    comparison = Comparison(module, device.tolerance) if compare or compare_with else None
    runs: list[Run] = []
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
            if comparison is not None:
                if other is not None and index < compare_with:
                    comparison.add_windows(run, other.run(run.inputs))
                if compare:
                    comparison.add(run.inputs, run)
    seconds = time.perf_counter() - began
    stacked, first = np.stack(outputs), runs[0]
    times, host = None, first.host
    if host.seconds and (
        without_gpu(device.name)[0] == SimDevice.name or not device.has_accelerator
    ):
        slow = seconds / samples.count >= SLOW_S
        often = repeat or (SLOW_REPEATS if slow else REPEAT)
        times = session.benchmark(next(iter(samples)), repeat=often)
        host = host.typical(tuple(session.step_times))
    profile = profile_of(module, first.results, first.names, host)
    return RunOutcome(
        module, device, samples, stacked, profile, first.results, comparison, seconds, times
    )

"""OpenVINO's time for a network, in a process of its own, since its threads spin after runs."""

import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ...errors import ToolError, install_command

PROCESSES = 4
"""Processes that measure on several threads, of which the fastest counts, since their medians were
seen to differ by up to 1.6 times."""


def check_openvino() -> None:
    """Tell that OpenVINO is missing.

    Raises
    ------
    ToolError
        When it is.
    """
    if not find_spec("openvino"):
        raise ToolError(f"bench: OpenVINO is not installed; run `{install_command('bench')}`")


def openvino_seconds(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int, turns: int, turn_s: float
) -> float:
    """Return the median seconds of a run, in processor time on one thread.

    On several threads, it is the least median of `PROCESSES` processes.

    Raises
    ------
    ToolError
        When OpenVINO cannot run the model.
    """
    try:
        return min(
            _in_process(model, inputs, threads, turns, turn_s)
            for _ in range(1 if threads == 1 else PROCESSES)
        )
    except BrokenProcessPool as problem:
        raise ToolError("bench: OpenVINO's process died; leave out `--openvino`") from problem


def _in_process(*arguments) -> float:
    """Measure in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_median, *arguments).result()


def _median(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int, turns: int, turn_s: float
) -> float:
    """Measure in this process."""
    openvino = import_module("openvino")
    asked = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # it would take bfloat16 on AMX
    }
    try:
        request = openvino.Core().compile_model(model, "CPU", asked).create_infer_request()
        given = dict(inputs)
        request.infer(given)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ToolError(f"bench: OpenVINO cannot run the model: {reason[:300]}") from error
    clock = time.process_time if threads == 1 else time.perf_counter
    began = clock()
    request.infer(given)
    repeats = max(1, round(turn_s / max(clock() - began, 1e-6)))
    times = []
    for _ in range(turns * repeats):
        before = clock()
        request.infer(given)
        times.append(clock() - before)
    return float(np.median(times))

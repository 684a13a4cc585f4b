"""Repeated timing of a call: wall-clock time, its spread, processor time, and a busy machine.

A first call is up to a hundred times as slow as later ones: code, data and sleeping threads have to
be woken. Calls before the first repetition therefore do not count, and a repetition lasts long
enough for the clock. On a busy machine no figure is right, so the time that threads waited for a
processor is measured too.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..argument_types import checked
from ..errors import InputError
from ..wording import counted

REPEAT, MIN_REPEAT_MS = 10, 20.0
"""Repetitions, and the least duration of each: 0.2 s in all."""

WARM_UP_S = 0.05
"""Least duration of the calls that do not count."""

BUSY = 0.1
"""Share of the time that a thread waits for a processor, from which on the machine is busy."""

MIN_WATCHED_S = 0.01
"""Shorter times say nothing about the machine."""

THREADS = Path("/proc/self/task")
"""The kernel's records of this process's threads."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Wall-clock, processor and waiting time of a measurement, in seconds.

    Parameters
    ----------
    wall_s : float
        Wall-clock time.
    processor_s : float
        Processor time of all threads of this process.
    waiting_s : float
        The longest time that a thread was ready to run but had no processor; 0 if the kernel does
        not record it.
    """

    wall_s: float
    processor_s: float
    waiting_s: float

    @property
    def waiting(self) -> float:
        """Share of the time that a thread waited; 0 for times too short to tell."""
        return self.waiting_s / self.wall_s if self.wall_s >= MIN_WATCHED_S else 0.0

    @property
    def busy(self) -> bool:
        """Whether other work on this machine made the time longer."""
        return self.waiting >= BUSY


class Watch:
    """Measure what time is spent on, from when it is made."""

    def __init__(self) -> None:
        self._waited = _waited()
        self._processor = time.process_time()
        self._began = time.perf_counter()

    def load(self) -> HostLoad:
        """Return the load since the watch was made."""
        wall = time.perf_counter() - self._began
        processor = time.process_time() - self._processor
        waited = [seconds - self._waited.get(thread, 0.0) for thread, seconds in _waited().items()]
        return HostLoad(wall, processor, max(waited, default=0.0))


def _waited() -> Mapping[str, float]:
    """Return the seconds that each thread has waited for a processor; empty if not recorded."""
    found = {}
    for thread in os.listdir(THREADS) if THREADS.is_dir() else ():
        try:
            record = (THREADS / thread / "schedstat").read_text("utf-8").split()
            found[thread] = int(record[1]) / 1e9
        except (OSError, IndexError, ValueError):  # the thread ended, or the kernel has no records
            continue
    return found


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Times of a call in several repetitions.

    Parameters
    ----------
    seconds : tuple of float
        Wall-clock seconds of one call, for each repetition.
    number : int
        Calls in each repetition.
    processor_s : float
        Processor time of one call, all threads together.
    waiting : float
        Share of the time that a thread waited for a processor.
    """

    seconds: tuple[float, ...]
    number: int
    processor_s: float
    waiting: float

    @property
    def mean(self) -> float:
        """Mean of the repetitions, in seconds."""
        return statistics.fmean(self.seconds)

    @property
    def median(self) -> float:
        """Median of the repetitions, in seconds."""
        return statistics.median(self.seconds)

    @property
    def std(self) -> float:
        """Standard deviation of the repetitions, in seconds; 0 for a single one."""
        return statistics.stdev(self.seconds) if len(self.seconds) > 1 else 0.0

    @property
    def busy(self) -> bool:
        """Whether other work on this machine made the times longer."""
        return self.waiting >= BUSY

    def __repr__(self) -> str:
        return (
            f"<Benchmark: median {_text(self.median)}, {_text(min(self.seconds))} to "
            f"{_text(max(self.seconds))}, {len(self.seconds)} repetitions of {self.number:,}>"
        )

    def sentences(self, *, is_whole: bool = True) -> list[str]:
        """Say what was measured, and that the machine was busy if it was.

        Parameters
        ----------
        is_whole : bool
            Whether this machine does all the work of a call, so that the time means something.
        """
        count = len(self.seconds)
        often = counted(self.number, "run")
        line = f"host times: median of {counted(count, 'repetition')} of {often}, warmed up"
        if is_whole:
            line += (
                f"; {_text(min(self.seconds))} to {_text(max(self.seconds))} a run, "
                f"{_text(self.processor_s)} of processor time"
            )
        return [line, busy_sentence(self.waiting)] if self.busy else [line]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "seconds": list(self.seconds),
            "number": self.number,
            "mean_s": self.mean,
            "median_s": self.median,
            "std_s": self.std,
            "processor_s": self.processor_s,
            "waiting": self.waiting,
            "busy": self.busy,
        }


def busy_sentence(waiting: float) -> str:
    """Say that times are too long; `waiting` is the share of time that a thread waited."""
    return (
        f"this machine was busy: a thread waited {waiting:.0%} of the time for a processor, so "
        "host times are too long; measure again when it is idle"
    )


@checked("benchmark", InputError)
def benchmark(
    call: Callable[[], object],
    *,
    number: int = 1,
    repeat: int = REPEAT,
    min_repeat_ms: float = MIN_REPEAT_MS,
    warm_up_s: float = WARM_UP_S,
) -> Benchmark:
    """Time a call, as TVM's `time_evaluator` does.

    Parameters
    ----------
    call : callable
        The work.
    number : int
        Calls in each repetition, or more if they take less than `min_repeat_ms`.
    repeat : int
        Repetitions.
    min_repeat_ms : float
        Least duration of a repetition, in milliseconds.
    warm_up_s : float
        Least duration of the calls before, of which there is at least one.

    Raises
    ------
    InputError
        For a number below 1, or a negative or infinite duration.
    """
    if number < 1 or repeat < 1 or not 0 <= min_repeat_ms < math.inf:
        raise InputError(
            "benchmark: expected `number` and `repeat` of 1 or more and a `min_repeat_ms` of 0 or "
            f"more, got {number}, {repeat} and {min_repeat_ms:g}; correct them"
        )
    began = time.perf_counter()
    call()
    while time.perf_counter() - began < warm_up_s:
        call()
    seconds: list[float] = []
    watch = Watch()
    while len(seconds) < repeat:
        began = time.perf_counter()
        for _ in range(number):
            call()
        taken = time.perf_counter() - began
        if taken * 1e3 >= min_repeat_ms:
            seconds.append(taken / number)
            continue
        # Too short for the clock: all repetitions begin anew, with more calls in each.
        wanted = 1.1 * min_repeat_ms / 1e3 / max(taken, 1e-9) * number
        number = max(2 * number, math.ceil(min(wanted, 100.0 * number)))
        seconds, watch = [], Watch()
    load = watch.load()
    return Benchmark(tuple(seconds), number, load.processor_s / number / repeat, load.waiting)


def _text(seconds: float) -> str:
    """Return a time with three significant digits and a unit."""
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"

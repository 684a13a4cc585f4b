"""Times of the host's steps in one run."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np


class BatchTime(NamedTuple):
    """The time of a batch of kernels in one run.

    Parameters
    ----------
    names : tuple of str
        The first value of each step; several steps may share one.
    views : tuple of str
        Values that were shown in another shape, which takes no time.
    ticks : ndarray
        When it began and each step ended, in ticks of the processor, uint64[1 + steps].
    seconds : float
        Seconds of the whole batch.
    """

    names: tuple[str, ...]
    views: tuple[str, ...]
    ticks: np.ndarray
    seconds: float

    def by_step(self) -> Iterator[tuple[str, float]]:
        """Yield the seconds of each step: its share of the ticks, times the seconds of all."""
        taken = np.diff(self.ticks).astype(np.float64)
        taken *= self.seconds / max(taken.sum(), 1.0)
        yield from ((name, 0.0) for name in self.views)
        yield from zip(self.names, taken.tolist(), strict=True)


class StepTimes(Mapping[str, float]):
    """Seconds of the host's steps in one run, by the value that each computes.

    Shares of batches are computed when somebody asks.
    """

    def __init__(self) -> None:
        self._parts: list[BatchTime | tuple[str, float]] = []

    def add(self, part: BatchTime | tuple[str, float]) -> None:
        """Add the time of a batch, or the name and the seconds of another step."""
        self._parts.append(part)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for part in self._parts:
            for name, seconds in part.by_step() if isinstance(part, BatchTime) else (part,):
                found[name] = found.get(name, 0.0) + seconds
        return found

    def __getitem__(self, name: str) -> float:
        return self._seconds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seconds)

    def __len__(self) -> int:
        return len(self._seconds)

"""Budgets of a search: multiplications, or seconds.

Multiplications give the same result on every machine. Seconds become multiplications at the speed
of the work that the search has done so far.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

Clock = Callable[[], float]
"""Return the seconds since a fixed moment, such as the start of the computer."""

SLOWER = 4
"""Cost of calibrating with a sample, or of measuring all layers with it, in runs of the network."""


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """Work of a search, in multiplications; it does not depend on the machine.

    Attributes
    ----------
    comparison_macs : float
        Greatest cost of one run of the network over the samples that compare candidates.
    rescue_macs : float
        Greatest total cost of candidates with layers in float.
    correction_macs : float
        Greatest cost of correcting biases; the best candidate is corrected in any case.
    """

    comparison_macs: float
    rescue_macs: float
    correction_macs: float

    @property
    def status(self) -> str:
        """Text about the time left, for a line of progress."""
        return ""

    @contextmanager
    def doing(self, macs: float) -> Iterator[None]:
        """Run a block of work; a budget of seconds measures the speed of the block."""
        yield

    def keep(self, macs: float) -> None:
        """Keep some work for the end of the search."""

    def calibration_samples(self, cost: float, run: Callable[[], object]) -> float:
        """Return the most samples to calibrate with; `run` runs the network once, at this cost."""
        return float("inf")

    def corrections(self, cost: float) -> int:
        """Return the number of candidates whose biases may be corrected."""
        return max(1, int(self.correction_macs // cost))

    def rescue_left(self, spent: float) -> float:
        """Return the multiplications left for candidates with layers in float."""
        return self.rescue_macs - spent


class TimeBudget:
    """A budget of seconds from now on, with the methods of `WorkBudget`.

    The search calibrates and compares the plain candidates however little time there is. It starts
    a further step only if it should end in time at the speed of the step before.

    Parameters
    ----------
    seconds : float
        Seconds for the search.
    clock : Clock
        The clock.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock, self._end = clock, clock() + seconds
        self._macs_per_s = self._kept = 0.0

    @property
    def status(self) -> str:
        """Text about the time left, for a line of progress."""
        return f", {max(0.0, self._end - self._clock()):.0f} s left"

    @contextmanager
    def doing(self, macs: float) -> Iterator[None]:
        """Measure the speed of the work in the block."""
        began = self._clock()
        yield
        self._macs_per_s = macs / max(self._clock() - began, 1e-6)

    def keep(self, macs: float) -> None:
        """Keep some work for the end of the search."""
        self._kept = macs

    def calibration_samples(self, cost: float, run: Callable[[], object]) -> float:
        """Return the most samples to calibrate with, a quarter of the time, after a trial run."""
        with self.doing(cost):
            run()
        return self._left / 4 // (SLOWER * cost)

    @property
    def comparison_macs(self) -> float:
        """Greatest cost of one run over the samples that compare: a sixteenth of the time left."""
        return self._left / 16

    def corrections(self, cost: float) -> int:
        """Return the number of candidates whose biases may be corrected: half of the time left."""
        return int(self._left / 2 // cost)

    def rescue_left(self, spent: float) -> float:
        """Return the multiplications left for candidates with layers in float."""
        return self._left

    @property
    def _left(self) -> float:
        """Multiplications for which there is time."""
        return max(0.0, (self._end - self._clock()) * self._macs_per_s - self._kept)


EFFORTS: Mapping[str, WorkBudget] = MappingProxyType(
    {
        "quick": WorkBudget(4e9, 16e9, 0),
        "normal": WorkBudget(32e9, 100e9, 64e9),
        "thorough": WorkBudget(1e12, 2e12, 1e12),
    }
)
"""Name of an effort -> its budget."""

"""A machine that a sweep has not decided yet, and its request for results."""

import numpy as np

from .outcome import PointResult
from .space import SweepMachine
from .work import Item


class SweepCandidate:
    """A machine and its undecided points.

    Attributes
    ----------
    results
        The undecided points, one per main memory at most.
    least
        Lower bounds of the points' objectives, float64[points, objectives].
    found
        Their objectives, likewise, when the machine is decided: exact if it was compiled, else the
        lower bounds. Infinite for a point that failed or does not satisfy the conditions.
    compile
        Whether the machine is compiled, unless it is ruled out first.
    """

    def __init__(self, machine: SweepMachine, results: list[PointResult]) -> None:
        self.machine, self.results = machine, results
        self.least = self.found = np.empty((0, 0))
        self.compile = True
        self.item = self.asked()

    def asked(self) -> Item:
        """Return the request for a rung: the machine with the memories of its points."""
        memories = tuple(result.point.setting.memory for result in self.results)
        self.item = Item(self.machine.configuration, memories)
        return self.item

"""Tuners: they choose the next candidates of a task, and learn from outcomes.

A tuner knows points by their number in the space. Equal seeds and equal outcomes give equal
choices.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from ...errors import UsageError, did_you_mean
from .tasks import KernelSpace

if TYPE_CHECKING:
    from .ranking import History
    from .tasks import KernelTask

FAILED = 10.0
"""A candidate without a time counts as this many times as slow as the default."""

RANDOM_SHARE = 0.2
"""Share of candidates that are drawn at random, whatever was learned."""

POPULATION, TOURNAMENT = 16, 3
"""Candidates from which descendants are made, and of how many the best becomes a parent."""


class Tuner(Protocol):
    """A search method on one space."""

    def propose(self, count: int) -> list[int]:
        """Return at most `count` points that were not proposed before; none at the end."""
        ...

    def learn(self, point: int, ratio: float | None) -> None:
        """Note the time of a point over the default's; None if it has none."""
        ...

    def score(self, point: int) -> float | None:
        """Return what a model thought of a point when it was proposed: more is faster."""
        return None


class GridTuner(Tuner):
    """All points, in the order of the space."""

    def __init__(self, space: KernelSpace, seed: int) -> None:
        self._size, self._next = len(space), 0

    @override
    def propose(self, count: int) -> list[int]:
        first, self._next = self._next, min(self._size, self._next + count)
        return list(range(first, self._next))

    @override
    def learn(self, point: int, ratio: float | None) -> None:
        """Learn nothing."""


class RandomTuner(GridTuner):
    """All points in random order, the default first."""

    def __init__(self, space: KernelSpace, seed: int) -> None:
        super().__init__(space, seed)
        order = np.random.default_rng(seed).permutation(np.arange(1, len(space)))
        self._order = [0, *map(int, order)]

    @override
    def propose(self, count: int) -> list[int]:
        return [self._order[place] for place in super().propose(count)]


class EvolutionaryTuner(Tuner):
    """Changes one or two answers of good points, or crosses two of them."""

    def __init__(self, space: KernelSpace, seed: int) -> None:
        self._points = space.points
        self._numbers = {point: number for number, point in enumerate(space.points)}
        self._random = np.random.default_rng(seed)
        # Neighbouring numbers are similar schedules.
        self._questions = {
            name: sorted(values, key=lambda one: (isinstance(one, str), one))
            for name, values in space.questions.items()
        }
        self._known: dict[int, float] = {}
        self._left = [0, *map(int, self._random.permutation(np.arange(1, len(space))))]
        self._seen: set[int] = set()

    @override
    def propose(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and len(self._seen) < len(self._points):
            wild = len(self._known) < POPULATION // 2 or self._random.random() < RANDOM_SHARE
            point = self._drawn() if wild else self._descendant()
            self._seen.add(point)
            found.append(point)
        return found

    @override
    def learn(self, point: int, ratio: float | None) -> None:
        self._seen.add(point)
        self._known[point] = FAILED if ratio is None else ratio

    def _drawn(self) -> int:
        while self._left[0] in self._seen:
            self._left.pop(0)
        return self._left.pop(0)

    def _descendant(self) -> int:
        """A new relative of good points; a random point if none is found."""
        best = sorted(self._known, key=lambda one: (self._known[one], one))[:POPULATION]
        for _ in range(50):
            first, second = (self._parent(best) for _ in range(2))
            child = dict(self._points[first])
            other = dict(self._points[second])
            for name in child:
                if name in other and self._random.random() < 0.3:
                    child[name] = other[name]
            for name in self._random.choice(list(child), size=min(2, len(child)), replace=False):
                if self._random.random() < 0.7:
                    values = self._questions[name]
                    near = values.index(child[name]) + int(self._random.choice([-2, -1, 1, 2]))
                    child[name] = values[min(max(near, 0), len(values) - 1)]
            number = self._numbers.get(tuple(child.items()))
            if number is not None and number not in self._seen:
                return number
        return self._drawn()

    def _parent(self, best: Sequence[int]) -> int:
        drawn = self._random.choice(len(best), size=min(TOURNAMENT, len(best)), replace=False)
        return best[int(min(drawn))]


TUNERS = ("evolutionary", "xgboost", "random", "grid")
"""Names of tuners, the default first."""


def open_tuner(
    name: str, task: "KernelTask", space: KernelSpace, seed: int, history: "History" = ()
) -> Tuner:
    """Return a new tuner.

    Parameters
    ----------
    history
        What is known of other tasks; only `xgboost` learns from them.

    Raises
    ------
    UsageError
        For an unknown name.
    ToolError
        If the library that it needs is not installed.
    """
    check_tuner(name)
    if name == "xgboost":
        from .ranking import RankingTuner

        return RankingTuner([task.features(point) for point in space.points], seed, history)
    plain = {"evolutionary": EvolutionaryTuner, "random": RandomTuner, "grid": GridTuner}
    return plain[name](space, seed)


def check_tuner(name: str) -> None:
    """Refuse an unknown tuner, or one without its library, before a long computation.

    Raises
    ------
    UsageError
        For an unknown name.
    ToolError
        If the library that it needs is not installed.
    """
    if name not in TUNERS:
        raise UsageError(
            f"`--tuner {name}`: expected one of {', '.join(TUNERS)}" + did_you_mean(name, TUNERS)
        )
    if name == "xgboost":
        from .ranking import require_xgboost

        require_xgboost()

"""Search guided by a model: it compiles the machines that most probably enlarge the front.

Multipliers and memories are exact before a machine is compiled, and programs stay near the
certified bound of their cycles. So the model learns one number, the ratio of cycles to bound, from
the parameters, the memory, and the unit that binds. It is XGBoost (Chen and Guestrin, KDD 2016);
several fits on random parts of the records show how uncertain a prediction is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.accelerator.lower_bound import UNITS
from ..candidate import SweepCandidate
from ..figures import NUMBERS
from ..outcome import PointResult
from ..pareto import Front
from ..space import SweepMachine
from .drawing import BATCH, Drawing

POOL = 1024
"""Machines that the search draws at first. It bounds all of them, in milliseconds each."""

FITS = 5
"""Fits of the model, which predict different ratios where records are few."""

MIN_RECORDS = 8
"""Records that the model needs; before, the search trusts the bounds."""

OPTIMISM = 0.1
"""Weight of the assumption that a program reaches its bound, relative to that of a fit. It lets
the search compile machines that only the model rules out, once the model expects no better ones."""

SAMPLES = 2048
"""Random points between the best and the worst objectives, by which volume is measured."""

MARGIN = 0.5
"""Share by which the volume extends beyond the worst objectives. Without it, the cheapest and the
fastest machines would add none; with 0.1, the fastest one could be missed."""

BOUNDED = ("cycles", "ms")
"""Objectives whose lower bound is proportional to the bound of the cycles."""

TINY = 1e-9
"""Objectives count as at least this much, as zero has no logarithm."""

FAILED_RATIO = 4.0
"""A failed machine counts as this many times as slow as the slowest one, relative to its bound."""


class ModelGuided:
    """Chooses the machines whose predicted objectives add most volume to the front.

    Volume is measured in logarithms of the objectives, so each counts by its ratios.

    Parameters
    ----------
    xgboost
        The library.
    objectives
        Names of the objectives.
    """

    batch = BATCH

    def __init__(
        self, xgboost: Any, drawing: Drawing, objectives: Sequence[str], seed: int
    ) -> None:
        self._drawing, self._xgboost = drawing, xgboost
        self._timed = np.array([name in BOUNDED for name in objectives])
        self._random = np.random.default_rng(seed)
        self._samples = self._random.random((SAMPLES, len(objectives)))
        self._features: list[list[float]] = []
        self._ratios: list[float] = []
        self._fronts: dict[int, Front] = {}
        self._best: list[str] = []

    def propose(self) -> list[SweepMachine]:
        """Draw the pool; later, return the neighbours of the machines that enlarged the front."""
        if not self._drawing.choices:
            return self._drawing.draw(POOL)
        around = [
            self._drawing.make(choice)
            for digest in self._best
            for choice in self._drawing.neighbours(self._drawing.choices[digest])
        ]
        self._best = []
        return [machine for machine in around if machine is not None]

    def choose(self, candidates: Sequence[SweepCandidate], count: int) -> list[SweepCandidate]:
        """Return, one after the other, the machine that adds most volume to those before it."""
        if not candidates:
            return []
        # The first of several that add nothing has the least product of objectives.
        left = sorted(candidates, key=lambda one: _logs(one.least).sum(axis=1).min())
        points = [(owner, result) for owner, one in enumerate(left) for result in one.results]
        owners = np.array([owner for owner, _ in points])
        memories = np.array([id(result.point.setting) for _, result in points])
        least = np.concatenate([one.least for one in left])
        ratios = self._predicted([_features(each) for _, each in points])
        box = self._box(least)
        gains = np.stack(
            [
                self._dominated(np.where(self._timed, least * fit[:, None], least), box)
                for fit in ratios
            ]
        )
        for memory, front in self._fronts.items():
            gains[:, memories == memory] &= ~self._dominated(front.values, box).any(axis=0)
        weights = np.array([OPTIMISM, *[1.0] * (len(gains) - 1)])
        chosen: list[int] = []
        while len(chosen) < min(count, len(left)):
            worth = np.bincount(owners, weights @ gains.sum(axis=2))
            worth[chosen] = -1
            best = int(np.argmax(worth))
            chosen.append(best)
            for place in np.flatnonzero(owners == best):
                gains[:, memories == memories[place]] &= ~gains[:, place : place + 1]
        return [left[index] for index in chosen]

    def learn(self, candidates: Sequence[SweepCandidate]) -> None:
        """Record the ratios and objectives of compiled machines."""
        for candidate in candidates:
            rows = zip(candidate.results, candidate.least, candidate.found, strict=True)
            for result, least, found in rows if candidate.compile else ():
                ratio = (_logs(found) - _logs(least))[self._timed]
                self._features.append(_features(result))
                self._ratios.append(ratio[0] if len(ratio) else 0.0)
                front = self._fronts.setdefault(id(result.point.setting), Front(len(found)))
                if np.isfinite(found).all() and front.add(found):
                    self._best.append(candidate.item.digest)

    def _predicted(self, features: list[list[float]]) -> np.ndarray:
        """Return ratios of cycles to bound, float64[1 + fits, points]; first those of the bound."""
        bounds = np.ones((1, len(features)))
        if len(self._ratios) < MIN_RECORDS:
            return bounds
        ratios = np.array(self._ratios)
        slowest = ratios[np.isfinite(ratios)].max(initial=0.0)
        ratios[~np.isfinite(ratios)] = slowest + np.log(FAILED_RATIO)
        known = np.array(self._features)
        fits, errors = [], []
        for fit in range(FITS):
            order = self._random.permutation(len(ratios))
            kept, tested = np.split(order, [len(order) * 4 // 5])
            model = self._xgboost.XGBRegressor(
                n_estimators=80, max_depth=4, learning_rate=0.15, n_jobs=1, random_state=fit
            )
            model.fit(known[kept], ratios[kept])
            fits.append(model.predict(features))
            errors.append(model.predict(known[tested]) - ratios[tested])
        error = np.sqrt(np.mean(np.square(np.concatenate(errors))))
        fits = np.array(fits) + error * self._random.standard_normal((FITS, len(features)))
        return np.concatenate([bounds, np.exp(np.maximum(0.0, fits))])

    def _box(self, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the least logarithm and the extent of each objective that may be on a front."""
        logs = _logs(np.concatenate([least, *(front.values for front in self._fronts.values())]))
        finite = logs[np.isfinite(logs).all(axis=1)]
        if not len(finite):
            finite = np.zeros((1, len(self._timed)))
        low = finite.min(axis=0)
        return low, np.maximum((1 + MARGIN) * (finite.max(axis=0) - low), 1e-9)

    def _dominated(self, values: np.ndarray, box: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return which samples the values dominate, bool[values, samples]."""
        low, extent = box
        found = np.ones((len(values), SAMPLES), dtype=bool)
        for place, sample in zip(
            (_logs(values) - low).T / extent[:, None], self._samples.T, strict=True
        ):
            found &= place[:, None] <= sample
        return found


def _logs(values: np.ndarray) -> np.ndarray:
    """Return logarithms; of zero, that of a very small number."""
    return np.log(np.maximum(values, TINY))


def _features(result: PointResult) -> list[float]:
    """Return the numbers that the model knows of a point before it is compiled."""
    configuration, memory = result.point.machine.configuration, result.point.setting.memory
    return [
        *(float(getattr(configuration, name)) for name in NUMBERS),
        float(memory.latency_cycles),
        memory.beats / memory.cycles,
        float(memory.outstanding_bursts),
        *map(float, result.bounds),
        *(float(unit == each) for unit in result.units for each in UNITS),
    ]

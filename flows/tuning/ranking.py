"""The tuner `xgboost`: a model ranks all points, and the first ones are tried.

It is XGBoost (Chen and Guestrin, KDD 2016) with pairwise ranking: only the order within a task
counts, so tasks of all sizes and machines teach it together. Records of other tasks are groups of
their own; with them, it ranks a new task before its first trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from typing_extensions import override

from ...errors import ToolError, install_command
from .features import Features
from .tuners import FAILED, RANDOM_SHARE, Tuner

MIN_KNOWN = 8
"""Trials of a task that the model needs if it knows no other one."""

MAX_GROUP = 256
"""Candidates of another task from which the model learns; more take time and teach little."""

ALIKE = 2
"""Candidates of a batch that may agree in the answers to the first questions."""


@dataclass(frozen=True, slots=True)
class TriedTask:
    """Outcomes of another task.

    Parameters
    ----------
    ratios
        Time over the default's for each candidate; None for failures.
    """

    features: Sequence[Features]
    ratios: Sequence[float | None]


History = Sequence[TriedTask]
"""Other tasks, from which a model learns."""


def require_xgboost() -> Any:
    """Return the library.

    Raises
    ------
    ToolError
        If it is not installed.
    """
    try:
        return import_module("xgboost")
    except ImportError:
        raise ToolError(
            "`xgboost`: not installed, so `--tuner xgboost` cannot run; install it with "
            f"`{install_command('sweep')}`, or choose `--tuner evolutionary`"
        ) from None


class RankingTuner(Tuner):
    """Tries the points that a model ranks first.

    Parameters
    ----------
    features
        Those of every point of the space.
    """

    def __init__(self, features: Sequence[Features], seed: int, history: History = ()) -> None:
        self._xgboost, self._seed = require_xgboost(), seed
        names = {name for task in history for each in task.features[:1] for name in each}
        names |= {name for each in features for name in each}
        self._names = sorted(names)
        self._rows = self._matrix(features)
        self._random = np.random.default_rng(seed)
        self._order = [0, *map(int, self._random.permutation(np.arange(1, len(features))))]
        self._seen: set[int] = set()
        self._known: dict[int, float] = {}
        self._scores: np.ndarray | None = None
        self._groups = [self._group(task) for task in history if len(task.ratios) > 1]
        self._signs = [tuple(sorted(each.items()))[:3] for each in features]

    @override
    def propose(self, count: int) -> list[int]:
        count = min(count, len(self._order) - len(self._seen))
        if not self._seen:
            found = [0]
        elif self._groups or len(self._known) >= MIN_KNOWN:
            wild = int(self._random.binomial(count, RANDOM_SHARE))
            found = self._ranked(count - wild)
        else:
            found = []
        self._seen.update(found)
        for point in self._order:
            if len(found) >= count:
                break
            if point not in self._seen:
                found.append(point)
                self._seen.add(point)
        return found[:count]

    @override
    def learn(self, point: int, ratio: float | None) -> None:
        self._seen.add(point)
        self._known[point] = FAILED if ratio is None else ratio

    @override
    def score(self, point: int) -> float | None:
        return None if self._scores is None else float(self._scores[point])

    def _ranked(self, count: int) -> list[int]:
        """The unseen points that the model ranks first, not all of one kind."""
        scores = self._fitted().predict(self._rows)
        self._scores = scores
        found: list[int] = []
        kinds: dict[object, int] = {}
        for point in map(int, np.argsort(-scores, kind="stable")):
            if len(found) == count:
                break
            kind = self._signs[point]
            if point in self._seen or kinds.get(kind, 0) >= ALIKE:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            found.append(point)
        return found

    def _fitted(self) -> Any:
        groups = list(self._groups)
        weights = [1.0] * len(groups)
        if len(self._known) > 1:
            points = sorted(self._known)
            groups.append((self._rows[points], _grades([self._known[one] for one in points])))
            weights.append(max(1.0, len(self._groups)))  # as much as all others together
        model = self._xgboost.XGBRanker(
            objective="rank:pairwise",
            lambdarank_pair_method="mean",
            lambdarank_num_pair_per_sample=8,
            n_estimators=60,
            max_depth=5,
            learning_rate=0.15,
            n_jobs=1,
            random_state=self._seed,
        )
        model.fit(
            np.concatenate([rows for rows, _ in groups]),
            np.concatenate([grades for _, grades in groups]),
            qid=np.repeat(np.arange(len(groups)), [len(grades) for _, grades in groups]),
            sample_weight=np.array(weights),
        )
        return model

    def _group(self, task: TriedTask) -> tuple[np.ndarray, np.ndarray]:
        step = max(1, -(-len(task.ratios) // MAX_GROUP))
        ratios = [FAILED if ratio is None else ratio for ratio in task.ratios[::step]]
        return self._matrix(task.features[::step]), _grades(ratios)

    def _matrix(self, features: Sequence[Features]) -> np.ndarray:
        return np.array([[each.get(name, np.nan) for name in self._names] for each in features])


def _grades(ratios: Sequence[float]) -> np.ndarray:
    """Grades from 0 to 30, the fastest candidate's the highest: steps of 2 % near the best."""
    slower = np.log(np.array(ratios) / min(ratios))
    return np.rint(30 * np.exp(-slower / 0.3)).astype(np.int64)

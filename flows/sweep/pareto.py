"""Pareto fronts: the points that no other point beats. All objectives are to be small."""

from collections.abc import Sequence

import numpy as np

CHUNK = 512


def front(values: np.ndarray) -> np.ndarray:
    """Whether each point is on the front.

    Parameters
    ----------
    values
        float64[points, objectives]; no NaN. Infinite ones are never on the front.

    Returns
    -------
    ndarray
        bool[points]. Of equal points, all are on the front or none.
    """
    mine = np.asarray(np.isfinite(values).all(axis=1))
    order = np.lexsort(values.T[::-1])
    kept = np.empty((0, values.shape[1]))
    for start in range(0, len(order), CHUNK):
        # A point that beats another one has a smaller first objective, or an equal one and a
        # smaller second, and so on: it comes before.
        some = order[start : start + CHUNK]
        some = some[mine[some]]
        rivals = np.concatenate([kept, values[some]])
        beaten = dominated(values[some], rivals)
        mine[some[beaten]] = False
        kept = np.concatenate([kept, values[some[~beaten]]])
    return mine


def dominated(values: np.ndarray, rivals: np.ndarray) -> np.ndarray:
    """Whether a rival is at most as large in every objective, and smaller in one, bool[points]."""
    no_worse = np.all(rivals[None] <= values[:, None], axis=2)
    better = np.any(rivals[None] < values[:, None], axis=2)
    return np.asarray(np.any(no_worse & better, axis=1))


class Front:
    """A front that grows point by point.

    Parameters
    ----------
    objectives
        Their number.
    """

    def __init__(self, objectives: int) -> None:
        self._values = np.empty((0, objectives))

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: Sequence[float]) -> None:
        """Take a point; the points that it beats leave."""
        new = np.asarray(value, dtype=float)[None]
        if dominated(new, self._values)[0] or np.any(np.all(self._values == new, axis=1)):
            return
        self._values = np.concatenate([self._values[~dominated(self._values, new)], new])

    def rules_out(self, least: Sequence[float] | np.ndarray) -> bool:
        """Whether a point beats every point whose objectives are at least these."""
        return bool(dominated(np.asarray(least, dtype=float)[None], self._values)[0])

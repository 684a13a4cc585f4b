"""Pareto fronts: the points that no other point beats. All objectives are minimised."""

from collections.abc import Sequence

import numpy as np

CHUNK = 512


def front(values: np.ndarray) -> np.ndarray:
    """Find the points on the front.

    Parameters
    ----------
    values
        float64[points, objectives], without NaN. A point with an infinite value is never on the
        front.

    Returns
    -------
    ndarray
        bool[points], true on the front. Equal points are either all on it or all off it.
    """
    mine = np.asarray(np.isfinite(values).all(axis=1))
    order = np.lexsort(values.T[::-1])
    kept = np.empty((0, values.shape[1]))
    for start in range(0, len(order), CHUNK):
        # A point precedes, in this order of first objective, second objective and so on, every
        # point that it beats.
        some = order[start : start + CHUNK]
        some = some[mine[some]]
        rivals = np.concatenate([kept, values[some]])
        beaten = dominated(values[some], rivals)
        mine[some[beaten]] = False
        kept = np.concatenate([kept, values[some[~beaten]]])
    return mine


def dominated(values: np.ndarray, rivals: np.ndarray) -> np.ndarray:
    """Find the points that some rival beats: nowhere larger, and smaller once; bool[points]."""
    no_worse = np.all(rivals[None] <= values[:, None], axis=2)
    better = np.any(rivals[None] < values[:, None], axis=2)
    return np.asarray(np.any(no_worse & better, axis=1))


def hypervolume(values: np.ndarray, reference: np.ndarray) -> float:
    """Measure the volume below a reference point that some values dominate.

    Parameters
    ----------
    values
        float64[points, objectives].
    reference
        The worst objectives, float64[objectives]; points that are worse somewhere add nothing.
    """
    inside = values[(values < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    *others, last = inside[np.argsort(inside[:, -1])].T
    if not others:
        return float(reference[0] - last[0])
    rest = np.array(others).T
    heights = np.diff(last, append=reference[-1])
    return sum(
        float(height) * hypervolume(rest[: count + 1], reference[:-1])
        for count, height in enumerate(heights)
        if height > 0
    )


class Front:
    """A front that grows point by point.

    Parameters
    ----------
    objectives
        Number of objectives.

    Attributes
    ----------
    values
        The points on the front, float64[points, objectives].
    """

    def __init__(self, objectives: int) -> None:
        self.values = np.empty((0, objectives))

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: Sequence[float] | np.ndarray) -> bool:
        """Add a point and remove those that it beats; False if it is beaten or known."""
        new = np.asarray(value, dtype=float)[None]
        if dominated(new, self.values)[0] or np.any(np.all(self.values == new, axis=1)):
            return False
        self.values = np.concatenate([self.values[~dominated(self.values, new)], new])
        return True

    def rules_out(self, least: Sequence[float] | np.ndarray) -> bool:
        """Whether the front beats every point whose objectives are no smaller than `least`."""
        return bool(dominated(np.asarray(least, dtype=float)[None], self.values)[0])

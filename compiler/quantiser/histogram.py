"""Streaming statistics of a tensor: extremes, and a histogram whose bins widen as data arrive.

Bins are `[k * width, (k + 1) * width)`. The width is a power of two, so adjacent bins merge exactly
when the range grows. The bin of a value therefore does not depend on the split into batches.
"""

import math

import numpy as np

from ...errors import InputError


class Histogram:
    """Counts and sums of values in bins of equal width.

    Parameters
    ----------
    name : str
        Name of the tensor, for messages.
    bins : int
        Greatest number of bins. At least a quarter of them are used once two values differ.

    Attributes
    ----------
    low, high : float
        Smallest and largest value seen.
    counts : int64[bins used]
        Values in each bin.
    sums : float64[bins used]
        Sum of the values in each bin.
    """

    def __init__(self, name: str, bins: int = 4096) -> None:
        self.name = name
        self.bins = bins
        self.low = math.inf
        self.high = -math.inf
        self.width = 0.0
        self.first = 0
        self.counts = np.zeros(0, dtype=np.int64)
        self.sums = np.zeros(0, dtype=np.float64)

    @property
    def total(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    def add(self, values: np.ndarray) -> None:
        """Count values.

        Parameters
        ----------
        values : float32[...]
            Values of any shape, possibly empty.

        Raises
        ------
        InputError
            If a value is infinite or NaN.
        """
        flat = np.asarray(values, dtype=np.float32).ravel()
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(
                f"calibration: value `{self.name}`: expected finite numbers, got `{low}` to "
                f"`{high}`; leave out the samples that give them, or correct the model"
            )
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen()
        # In float32, the quotient of a tiny negative number would be 0, which lies in the next bin.
        quotients = np.divide(flat, self.width, dtype=np.float64)
        places = np.floor(quotients).astype(np.int64) - self.first
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.sums += np.bincount(places, weights=flat, minlength=len(self.sums))

    def centres(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the number of values of each non-empty bin."""
        used = np.flatnonzero(self.counts)
        return self.sums[used] / self.counts[used], self.counts[used]

    def quantile(self, share: float) -> float:
        """Return the value below which a share (0 to 1) of all values lies, accurate to one bin."""
        reached = np.cumsum(self.counts) / max(self.total, 1)
        place = int(np.searchsorted(reached, share))
        edge = (self.first + place + (1 if share > 0.5 else 0)) * self.width
        return float(np.clip(edge, self.low, self.high))

    def _widen(self) -> None:
        """Extend the bins to cover `low` to `high`, with the smallest power of two as width."""
        if not self.width:
            span = max(self.high - self.low, abs(self.high), abs(self.low))
            # The smallest binary32 number is 2**-149, so narrower bins are useless.
            # Zeros alone take the narrowest ones: bins widen when data arrive, but never shrink.
            exponent = math.frexp(span / self.bins)[1] - 1 if span else -math.inf
            self.width = 2.0 ** max(exponent, -120)
        old_width, old_first = self.width, self.first
        while self._index(self.high) - self._index(self.low) >= self.bins:
            self.width *= 2
        first, last = self._index(self.low), self._index(self.high)
        if self.width == old_width and first == old_first and last - first + 1 == len(self.counts):
            return
        counts = np.zeros(last - first + 1, dtype=np.int64)
        sums = np.zeros(last - first + 1, dtype=np.float64)
        if len(self.counts):
            # Exact: the ratio is a power of two. Indices of very narrow bins may not fit 64 bits.
            old = float(old_first) + np.arange(len(self.counts))
            places = np.floor(old / (self.width / old_width)).astype(np.int64) - first
            np.add.at(counts, places, self.counts)
            np.add.at(sums, places, self.sums)
        self.first, self.counts, self.sums = first, counts, sums

    def _index(self, value: float) -> int:
        return math.floor(value / self.width)


def merge(name: str, parts: list[Histogram]) -> Histogram:
    """Return one histogram of all parts; the mean of each bin stands for its values.

    Parameters
    ----------
    name : str
        Name of the result.
    parts : list of Histogram
        At least one histogram; they do not change.
    """
    result = Histogram(name, parts[0].bins)
    seen = [part for part in parts if part.total]
    if not seen:
        return result
    result.low = min(part.low for part in seen)
    result.high = max(part.high for part in seen)
    result._widen()
    for part in seen:
        centres, counts = part.centres()
        places = np.floor(centres / result.width).astype(np.int64) - result.first
        places = np.clip(places, 0, len(result.counts) - 1)
        np.add.at(result.counts, places, counts)
        np.add.at(result.sums, places, centres * counts)
    return result

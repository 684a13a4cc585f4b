"""Choice of the range that int8 represents for a tensor, from the tensor's histogram.

A narrow range rounds finely but clips the largest values; a wide one clips nothing but rounds
coarsely. The methods differ in the error that they minimise.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ...errors import CompileError
from ..graph import Quantisation
from .histogram import Histogram

LEVELS = 256
"""Number of 8-bit integers."""

PERCENTILE = 0.9999
"""Share of the values that `percentile` keeps on each side."""

SHRINKINGS = np.linspace(1.0, 0.1, 64)
"""Shares of the full range that the searching methods try."""

Range = tuple[float, float]

Function = Callable[[np.ndarray], np.ndarray]
"""An elementwise function of float64[...]."""


def quantisation_of_range(low: float, high: float) -> Quantisation:
    """Return scale and zero point of int8 for a range; it is widened to 0, which stays exact.

    Parameters
    ----------
    low, high : float
        Smallest and largest real number to represent; both zero gives a scale of 1.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < np.finfo(np.float32).tiny:
        return Quantisation(1.0, 0)
    scale = float(np.float32((high - low) / (LEVELS - 1)))
    zero_point = int(np.clip(np.rint(-128 - low / scale), -128, 127))
    return Quantisation(scale, zero_point)


def centred_quantisation(low: float, high: float) -> Quantisation:
    """Return a quantisation of int8 with zero point 0 for a range; see `quantisation_of_range`."""
    reach = max(-low, high)
    if reach < np.finfo(np.float32).tiny:
        return Quantisation(1.0, 0)
    return Quantisation(float(np.float32(reach / (LEVELS / 2 - 1))), 0)


def range_of(quantisation: Quantisation) -> Range:
    """Return the real numbers that -128 and 127 stand for."""
    scale, zero = quantisation.scale, quantisation.zero_point
    return scale * (-128 - zero), scale * (127 - zero)


def choose_range(histogram: Histogram, method: str, function: Function | None = None) -> Range:
    """Return the range that a method takes for a tensor.

    Parameters
    ----------
    histogram : Histogram
        The tensor's histogram; an empty one gives the range 0 to 0.
    method : str
        A key of `METHODS`.
    function : callable or None
        The only reader, if it is elementwise; `mse` then counts the error of its results.

    Raises
    ------
    CompileError
        If the method is unknown.
    """
    if method not in METHODS:
        raise CompileError(
            f"calibration: expected one of {', '.join(METHODS)}, got `{method}`; choose one"
        )
    if not histogram.total:
        return 0.0, 0.0
    return _mse(histogram, function) if method == "mse" else METHODS[method](histogram)


def _minmax(histogram: Histogram) -> Range:
    """Return the full range: it clips nothing, and one outlier sets the scale."""
    return histogram.low, histogram.high


def _percentile(histogram: Histogram) -> Range:
    """Return the range without the outermost 0.01 % on each side."""
    return histogram.quantile(1 - PERCENTILE), histogram.quantile(PERCENTILE)


def _mse(histogram: Histogram, function: Function | None = None) -> Range:
    """Return the range with the least mean squared error, clipping included."""
    centres, counts = histogram.centres()
    after = function or (lambda values: values)
    real = after(centres)

    def error(low: float, high: float) -> float:
        quantisation = quantisation_of_range(low, high)
        scale, zero = quantisation.scale, quantisation.zero_point
        integers = np.clip(np.rint(centres / scale) + zero, -128, 127)
        return float(((after(scale * (integers - zero)) - real) ** 2) @ counts)

    return _search(histogram, error)


def _entropy(histogram: Histogram) -> Range:
    """Return the range with the least Kullback-Leibler divergence of the rounded values.

    Zeros are left out: Relu produces many of them, and their representation is exact.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017; here both ends vary.
    """
    centres, counts = histogram.centres()
    other = np.abs(centres) >= histogram.width
    if not other.any():
        return histogram.low, histogram.high
    centres, counts = centres[other], counts[other]
    shares = counts / counts.sum()

    def divergence(low: float, high: float) -> float:
        quantisation = quantisation_of_range(low, high)
        lowest, highest = range_of(quantisation)
        scale = quantisation.scale
        inside = (centres >= lowest - scale / 2) & (centres <= highest + scale / 2)
        level = np.clip(np.rint((centres - lowest) / scale), 0, LEVELS - 1).astype(np.int64)
        # Clipped values count at the ends of the real distribution, not of the rounded one.
        real = np.where(inside, shares, 0.0)
        for end, outside in ((0, centres < lowest), (-1, centres > highest)):
            places = np.flatnonzero(inside)
            if len(places):
                real[places[end]] += shares[outside & ~inside].sum()
        kept = np.where(inside, shares, 0.0)
        mass = np.bincount(level, weights=kept, minlength=LEVELS)
        bins = np.bincount(level, weights=inside, minlength=LEVELS)
        spread = np.divide(mass, bins, out=np.zeros_like(mass), where=bins > 0)[level]
        spread = np.where(inside, spread, 0.0)
        if not spread.sum():
            return np.inf
        spread /= spread.sum()
        some = (real > 0) & (spread > 0)
        return float((real[some] * np.log(real[some] / spread[some])).sum())

    return _search(histogram, divergence)


def _search(histogram: Histogram, cost: Callable[[float, float], float]) -> Range:
    """Return the range of least cost; first both ends vary together, then one after the other."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    _, share = min((cost(low * share, high * share), -share) for share in SHRINKINGS)
    best = (low * -share, high * -share)
    if low == 0 or high == 0:
        return best
    for _ in range(2):
        best = min(((low * share, best[1]) for share in SHRINKINGS), key=lambda r: cost(*r))
        best = min(((best[0], high * share) for share in SHRINKINGS), key=lambda r: cost(*r))
    return best


METHODS: Mapping[str, Callable[[Histogram], Range]] = MappingProxyType(
    {"minmax": _minmax, "percentile": _percentile, "entropy": _entropy, "mse": _mse}
)
"""Name of a method -> function that chooses the range from a histogram."""

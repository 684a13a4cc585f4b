"""Search for integer constants with which adds, products and average pools equal float32.

ONNX defines these operators in float32: dequantise, compute, quantise. The accelerator
multiplies, adds and requantises integers. The search looks for constants with which both
definitions agree on every operand. If it finds none, it returns the number of mismatches, and the
compiler reports it.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...isa.numbers import quantise_output
from .types import Quantisation

MAX_MULTIPLIER = 32767
"""Maximum multiplier: multipliers are signed 16-bit immediates."""

CANDIDATES = 400
"""Number of multiplier pairs to try, best approximation first."""

CRITICAL_PAIRS = 2000
"""Number of operand pairs to test first, those nearest to a rounding tie."""

MAX_KEPT = 1024
"""Number of sums whose fit is kept, as repeated blocks often have the same scales."""

NEIGHBOURS = (0, 1, -1, 2, -2, 3, -3)
"""Steps on the binary32 grid to try around the ideal scale."""


@dataclass(frozen=True, slots=True)
class AddFit:
    """Constants of a QAdd, and the number of operand pairs, of 65,536, that differ from ONNX."""

    multipliers: tuple[int, int]
    constant: int
    scale: float
    mismatches: int


@dataclass(frozen=True, slots=True)
class ScaleFit:
    """A scale, and the number of operands that differ from ONNX.

    Those of a QMul are 65,536 pairs, those of a QAvgPool the sums that a window can reach.
    """

    scale: float
    mismatches: int


def add_definition(a: Quantisation, b: Quantisation, y: Quantisation, sign: int = 1) -> np.ndarray:
    """Compute DequantizeLinear, Add (or Sub) and QuantizeLinear, before saturation.

    Parameters
    ----------
    a, b, y : Quantisation
        Quantisation of the operands and of the result.
    sign : int
        1 adds b; -1 subtracts b.

    Returns
    -------
    float32[256, 256]
        Result for a = row - 128 and b = column - 128, rounded to integers, plus the zero point.
    """
    values = np.arange(-128, 128)
    with np.errstate(all="ignore"):  # quantisers give masks of -inf the largest scales
        left = (values - a.zero_point).astype(np.float32) * np.float32(a.scale)
        right = (values - b.zero_point).astype(np.float32) * np.float32(b.scale)
        total = left[:, None] + np.float32(sign) * right[None, :]
        return np.rint(total / np.float32(y.scale)) + np.float32(y.zero_point)


@lru_cache(MAX_KEPT)
def fit_add(
    a: Quantisation,
    b: Quantisation,
    y: Quantisation,
    low: int = -128,
    high: int = 127,
    sign: int = 1,
) -> AddFit:
    """Find multipliers and a scale with which an integer add equals its float32 definition.

    The result is `requantise(a * ma + b * mb + constant, scale)`. The ratio ma / mb approximates
    the ratio of the operands' scales. Good approximations by 16-bit integers are about as exact as
    binary32 itself. Among many of them, one usually rounds every pair as the definition does.

    Parameters
    ----------
    a, b, y : Quantisation
        Quantisation of the operands and of the result.
    low, high : int
        Limits to which the result is clamped.
    sign : int
        1 adds b; -1 subtracts b.

    Returns
    -------
    AddFit
        The first fit without mismatches, or else the one with the fewest.
    """
    expected = np.clip(add_definition(a, b, y, sign), low, high).astype(np.int8).ravel()
    values = np.arange(-128, 128, dtype=np.int32)
    left = np.repeat(values, 256)
    right = np.tile(values, 256)
    exact = (left - a.zero_point) * a.scale + sign * (right - b.zero_point) * b.scale
    critical = _nearest_ties(exact / y.scale)

    def mismatches(first: int, second: int, scale: float, chosen: np.ndarray | slice) -> int:
        constant = -(a.zero_point * first + b.zero_point * second)
        totals = left[chosen] * first + right[chosen] * second + constant
        got = quantise_output(totals, np.float32(scale), y.zero_point, low, high)
        return int(np.count_nonzero(got != expected[chosen]))

    tried: list[tuple[int, int, int, float]] = []
    for first, second in _ratios(a.scale, b.scale, y.scale):
        ideal = a.scale / (y.scale * first) if first >= second else b.scale / (y.scale * second)
        for scale in _neighbours(ideal):
            count = mismatches(first, sign * second, scale, critical)
            tried.append((count, first, sign * second, scale))
            if count == 0 and mismatches(first, sign * second, scale, slice(None)) == 0:
                constant = -(a.zero_point * first + b.zero_point * sign * second)
                return AddFit((first, sign * second), constant, scale, 0)
    tried.sort(key=lambda entry: entry[0])
    best = min((mismatches(m, n, s, slice(None)), m, n, s) for _, m, n, s in tried[:20])
    count, first, second, scale = best
    constant = -(a.zero_point * first + b.zero_point * second)
    return AddFit((first, second), constant, scale, count)


def fit_product(
    a: Quantisation, b: Quantisation, y: Quantisation, low: int = -128, high: int = 127
) -> ScaleFit:
    """Find the scale with which an integer product is nearest to its float32 definition.

    Parameters
    ----------
    a, b, y : Quantisation
        Quantisation of the operands and of the result.
    low, high : int
        Limits to which the result is clamped.
    """
    values = np.arange(-128, 128, dtype=np.int32)
    left, right = values[:, None] - a.zero_point, values - b.zero_point
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        real = (left.astype(np.float32) * np.float32(a.scale)) * (
            right.astype(np.float32) * np.float32(b.scale)
        )
        near = np.rint(real / np.float32(y.scale)) + np.float32(y.zero_point)
    ideal = a.scale * b.scale / y.scale
    return _fit_scale(left * right, near, ideal, (y.zero_point, low, high))


def average_definition(
    sums: np.ndarray, count: int, x: Quantisation, y: Quantisation, factor: float = 1.0
) -> np.ndarray:
    """Compute DequantizeLinear, AveragePool, a factor and QuantizeLinear, before saturation.

    The mean is rounded to float32 once, as if its sum were exact. The rounding of a float32 sum
    would depend on the order of its terms.

    Parameters
    ----------
    sums : int[...]
        Sums of `x - zero_point` over a window.
    count : int
        Number of elements in the window.
    x, y : Quantisation
        Quantisation of the operand and of the result.
    factor : float
        Positive float32 by which the mean is multiplied.
    """
    mean = (sums.astype(np.float64) * x.scale / count).astype(np.float32) * np.float32(factor)
    return np.rint(mean / np.float32(y.scale)) + np.float32(y.zero_point)


def fit_average(
    count: int,
    x: Quantisation,
    y: Quantisation,
    low: int = -128,
    high: int = 127,
    factor: float = 1.0,
) -> ScaleFit:
    """Find the scale with which an integer average is nearest to its float32 definition.

    Parameters
    ----------
    count : int
        Number of elements in the window.
    x, y : Quantisation
        Quantisation of the operand and of the result.
    low, high : int
        Limits to which the result is clamped.
    factor : float
        Positive float32 by which the mean is multiplied.
    """
    first, last = count * (-128 - x.zero_point), count * (127 - x.zero_point)
    sums = np.arange(first, last + 1, dtype=np.int32)
    near = average_definition(sums, count, x, y, factor)
    ideal = x.scale * factor / (y.scale * count)
    critical = _nearest_ties(sums * ideal)
    return _fit_scale(sums, near, ideal, (y.zero_point, low, high), critical)


def _fit_scale(
    totals: np.ndarray,
    near: np.ndarray,
    ideal: float,
    rounding: tuple[int, int, int],
    critical: np.ndarray | slice = slice(None),
) -> ScaleFit:
    """Return the scale of integers with the fewest mismatches; of equal ones that nearest `ideal`.

    Parameters
    ----------
    totals, near : ndarray
        The integers, and the definition's results before saturation.
    rounding : tuple of int
        Zero point and limits of the result.
    critical : ndarray or slice
        Indices of the integers that decide between scales.
    """
    expected = np.clip(near, *rounding[1:]).astype(np.int8)

    def mismatches(scale: float, chosen: np.ndarray | slice) -> int:
        got = quantise_output(totals[chosen], np.float32(scale), *rounding)
        return int(np.count_nonzero(got != expected[chosen]))

    scale = min(_neighbours(ideal), key=lambda scale: mismatches(scale, critical))
    return ScaleFit(scale, mismatches(scale, slice(None)))


def _nearest_ties(values: np.ndarray) -> np.ndarray:
    """Return the indices of the values nearest to k + 1/2, in or near the range of int8."""
    distance = np.abs(values - np.floor(values) - 0.5)
    distance[np.abs(values) > 300] = 1.0
    if len(values) <= CRITICAL_PAIRS:
        return np.arange(len(values))
    return np.argpartition(distance, CRITICAL_PAIRS)[:CRITICAL_PAIRS]


def _ratios(a: float, b: float, y: float) -> list[tuple[int, int]]:
    """Return multiplier pairs in the ratio a : b, best first; ties go to the smaller pair."""
    grid = np.arange(1, MAX_MULTIPLIER + 1, dtype=np.float64)
    firsts = np.concatenate([grid, np.rint(grid * (a / b))])
    seconds = np.concatenate([np.rint(grid * (b / a)), grid])
    fits = (firsts <= MAX_MULTIPLIER) & (seconds <= MAX_MULTIPLIER)
    firsts, seconds = firsts[fits], seconds[fits]
    with np.errstate(divide="ignore", invalid="ignore"):
        by_first = np.abs(seconds * a / firsts - b)
        by_second = np.abs(firsts * b / seconds - a)
    error = np.where(firsts >= seconds, by_first, by_second) * (255 / y)
    quantum = 2.0**-36
    order = np.lexsort((firsts + seconds, np.floor(error / quantum)))[: 4 * CANDIDATES]
    pairs = dict.fromkeys((int(firsts[i]), int(seconds[i])) for i in order)
    return list(pairs)[:CANDIDATES]


def _neighbours(ideal: float) -> list[float]:
    """Return binary32 numbers around `ideal`, nearest first."""
    bits = int(np.float32(ideal).view(np.uint32))
    return [float(np.uint32(bits + step).view(np.float32)) for step in NEIGHBOURS]

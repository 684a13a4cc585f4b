"""Bounds of a quantised layer's accumulators, and the conditions for plain requantisation.

The accelerator's rule is `isa.numbers.requantise`: `round_half_even(float32(float32(a) * scale))`
limited to +-256, except that accumulators `a` of magnitude 2**24 or more give +-256. A processor
computes and rounds the product in the same way, in IEEE-754 binary32, so ties round alike. The
plain form (`cpu.Requantisation`) omits the other steps. It gives the same results if

* scales are finite;
* products stay below 2**31, because larger ones cannot be converted to int32. The limits of int8
  then also limit to +-256, since a zero point is 128 at most;
* accumulators stay below 2**24, or scales are at least 2**-16. An accumulator of 2**24 or more
  stays so in float32, because rounding keeps order. Its product with the scale is at least 256.

The weights are known, so the bounds of each channel's accumulators are exact.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT, INT8_MIN, SATURATED
from ..graph.accumulators import accumulator_bounds

INT32_LIMIT = 1 << 31
"""The graph's definition rejects accumulators of this magnitude or more."""

PRODUCT_LIMIT = float(1 << 30)
"""Products below this fit int32, including their rounding error and a zero point."""


def largest_sums(w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the largest magnitude of each channel's accumulator over all int8 inputs.

    Parameters
    ----------
    w : int8[..., Co]
        Weights; the last axis is the output channel.
    bias : int32[Co]
        Added to the sums.

    Returns
    -------
    int64[Co]
    """
    low, high = accumulator_bounds(w.reshape(1, 1, -1, w.shape[-1]), bias)
    return np.maximum(np.abs(high), np.abs(low))


def are_narrow(w: np.ndarray, bias: np.ndarray) -> bool:
    """Whether float32 represents every accumulator and every partial sum exactly.

    Parameters
    ----------
    w, bias : ndarray
        Weights and bias, as for `largest_sums`.
    """
    taps = np.abs(w.reshape(-1, w.shape[-1]).astype(np.int64)).sum(axis=0)
    return bool(np.all(-INT8_MIN * taps + np.abs(bias.astype(np.int64)) < EXACT_LIMIT))


def fits(sizes: np.ndarray | int) -> bool:
    """Whether no accumulator can leave int32."""
    return bool(np.all(np.asarray(sizes) < INT32_LIMIT))


def is_plain(sizes: np.ndarray | int, scales: np.ndarray | float) -> bool:
    """Whether requantisation is one product and one rounding.

    Parameters
    ----------
    sizes : int64[Co]
        Largest magnitudes of the accumulators.
    scales : float32[Co]
        Their scales.
    """
    factors = np.abs(np.asarray(scales, dtype=np.float32).astype(np.float64))
    extents = np.asarray(sizes, dtype=np.float64)
    if not np.isfinite(factors).all():
        return False
    saturates = factors * EXACT_LIMIT >= SATURATED
    return bool(np.all((extents * factors < PRODUCT_LIMIT) & ((extents < EXACT_LIMIT) | saturates)))

"""Bounds of a quantised layer's accumulators, and when requantisation takes its plain form.

The accelerator's rule is `isa.numbers.requantise`: `round_half_even(float32(float32(a) * scale))`
limited to +-256, except that accumulators `a` of magnitude 2**24 or more give +-256. A processor
computes the product and its rounding alike, in IEEE-754 binary32, so that no tie can fall another
way. What is left out of the plain form (`cpu.Requantisation`) makes no difference when

* scales are finite;
* products stay below 2**31, beyond which the conversion to int32 has no meaning. Limiting to
  +-256 is then done by the limits of int8, since a zero point is 128 at most;
* accumulators stay below 2**24, or scales are at least 2**-16: then `float32(a)`, which is at
  least 2**24 because rounding keeps order, times the scale is at least 256 too.

Weights are known, so that the bounds of each channel's accumulators are exact.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT, INT8_MIN, SATURATED
from ..passes.check_accumulators import accumulator_bounds

INT32_LIMIT = 1 << 31
"""Accumulators at or beyond it, the graph's definition refuses."""

PRODUCT_LIMIT = float(1 << 30)
"""Products below it fit int32, with their rounding error and a zero point."""


def largest_sums(w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The largest magnitude that each channel's accumulator can have for any int8 input.

    Parameters
    ----------
    w : int8[..., Co]
        Weights of a channel.
    bias : int32[Co]
        Added to the sums.

    Returns
    -------
    int64[Co]
    """
    low, high = accumulator_bounds(w.reshape(1, 1, -1, w.shape[-1]), bias)
    return np.maximum(np.abs(high), np.abs(low))


def are_narrow(w: np.ndarray, bias: np.ndarray) -> bool:
    """Whether float32 holds every accumulator, and every part of one, exactly.

    Parameters
    ----------
    w, bias
        As for `largest_sums`.
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
        Largest magnitude of accumulators.
    scales : float32[Co]
        Their scales.
    """
    factors = np.abs(np.asarray(scales, dtype=np.float32).astype(np.float64))
    extents = np.asarray(sizes, dtype=np.float64)
    if not np.isfinite(factors).all():
        return False
    saturates = factors * EXACT_LIMIT >= SATURATED
    return bool(np.all((extents * factors < PRODUCT_LIMIT) & ((extents < EXACT_LIMIT) | saturates)))

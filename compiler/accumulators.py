"""Bounds of a quantised layer's accumulators, for passes, quantiser and host kernels."""

import numpy as np

SMALL_SCALE = 2.0**-16
"""With a smaller scale, an accumulator of 2**24 still lies inside int8."""


def accumulator_bounds(weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest accumulator of each channel over all int8 inputs.

    Parameters
    ----------
    weights : int8[KH, KW, Ci / groups, Co]
        Of a QConv.
    bias : int32[Co]
        Of a QConv.

    Returns
    -------
    int64[Co], int64[Co]
    """
    wide = weights.astype(np.int64)
    positive = np.maximum(wide, 0).sum(axis=(0, 1, 2))
    negative = np.minimum(wide, 0).sum(axis=(0, 1, 2))
    lowest = -128 * positive + 127 * negative + bias
    highest = 127 * positive - 128 * negative + bias
    return lowest, highest

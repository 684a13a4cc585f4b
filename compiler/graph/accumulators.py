"""Ranges of a quantised layer's accumulators, and the proof that the machine requantises them.

The machine saturates magnitudes of 2**24 and more. For scales of at least 2**-16, this equals the
binary32 definition (see `isa.numbers.requantise`). For smaller scales, the accumulators must stay
below 2**24.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from .operator import Pair

SMALL_SCALE = 2.0**-16
"""With a smaller scale, an accumulator of 2**24 still lies inside int8."""


LOWEST, HIGHEST = -128, 127

Bounds = tuple[np.ndarray, np.ndarray]
"""The smallest and largest value of each channel."""


def accumulator_bounds(
    weights: np.ndarray,
    bias: np.ndarray,
    low: np.ndarray | int = LOWEST,
    high: np.ndarray | int = HIGHEST,
) -> Bounds:
    """Return the smallest and largest accumulator of each channel.

    Parameters
    ----------
    weights : integer[KH, KW, Ci / groups, Co]
        Weights of a QConv, or wider integers.
    bias : int64[Co] or float64[Co]
        In units of input scale times weight scale, the input's zero point included.
    low, high : int64[1, 1, Ci / groups, Co] or int
        Smallest and largest value of the inputs that the weights multiply, padding included.

    Returns
    -------
    Two arrays like `bias`.
    """
    wide = weights.astype(np.int64)
    positive, negative = np.maximum(wide, 0), np.minimum(wide, 0)
    lowest = (positive * low + negative * high).sum(axis=(0, 1, 2)) + bias
    highest = (positive * high + negative * low).sum(axis=(0, 1, 2)) + bias
    return lowest, highest


def result_bounds(accumulators: Bounds, scale: np.ndarray, zero_point: int, limits: Pair) -> Bounds:
    """Return the smallest and largest result of each channel, as float64 integers.

    Binary32 requantisation is monotone, so the ends of the accumulators' range give the ends of the
    results' range.

    Parameters
    ----------
    accumulators : two arrays [Co]
        From `accumulator_bounds`.
    scale : float32[Co]
        Requantisation scales of the layer.
    zero_point : int
        Zero point of the output.
    limits : tuple of int
        Smallest and largest result.
    """
    with np.errstate(over="ignore"):
        ends = np.rint(np.stack(accumulators).astype(np.float32) * scale)
    low, high = np.clip(ends.astype(np.float64) + zero_point, *limits)
    return low, high


def exact_layer(
    weights: np.ndarray,
    bias: np.ndarray,
    scale: np.ndarray,
    zero_point: int,
    limits: Pair,
    inputs: Bounds,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return parameters of a layer that the machine computes exactly.

    A channel that the machine might requantise otherwise gives one result over the whole range of
    its accumulator, or several. In the first case, the channel becomes that constant. Converters
    write such dead channels with scales near 0 and with biases up to 2**30 and beyond.

    Parameters
    ----------
    weights : integer[KH, KW, Ci / groups, Co]
        Weights of the layer.
    bias : float64[Co]
        In units of input scale times weight scale, the input's zero point included; integers, or
        infinite.
    scale : float32[Co]
        Requantisation scales of the layer.
    zero_point : int
        Zero point of the output.
    limits : tuple of int
        Smallest and largest result, within int8.
    inputs : two arrays int64[1, 1, Ci / groups, Co]
        Bounds of the inputs that the weights multiply.

    Returns
    -------
    tuple or None
        Weights, bias and scale, the bias within int32. None if a channel has several results that
        the machine might not compute.
    """
    lowest, highest = found = accumulator_bounds(weights, bias, *inputs)
    beyond = np.where(scale < SMALL_SCALE, EXACT_LIMIT, 2**31)
    inexact = np.maximum(highest, -lowest) >= beyond
    low, high = result_bounds(found, scale, zero_point, limits)
    if (inexact & (low != high)).any():
        return None
    return (
        np.where(inexact, np.zeros_like(weights), weights),
        np.where(inexact, low - zero_point, bias),
        np.where(inexact, np.float32(1), scale),
    )

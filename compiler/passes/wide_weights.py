"""Weights that take nine bits once their zero point is subtracted, as sums of int8 weights.

Models with uint8 weights have zero points in the middle of the range, TFLite's older ones for
example, and what is left reaches past int8. A convolution of it is one of as many copies of the
input, side by side in the channels, with the terms as their weights: `x * w = x * a + x * b`.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..accumulators import SMALL_SCALE, accumulator_bounds


def split_weights(weights: np.ndarray) -> list[np.ndarray]:
    """Return int8 arrays of the weights' shape whose sum they are; one where they fit.

    Parameters
    ----------
    weights : int16[...]
        From -255 to 255: two terms, or three beyond 254.
    """
    terms, rest = [], weights.astype(np.int16)
    while not terms or rest.any():
        terms.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - terms[-1]
    return terms


def is_exact(weights: np.ndarray, bias: np.ndarray, scale: np.ndarray) -> bool:
    """Tell whether `check_accumulators` will accept a layer.

    Parameters
    ----------
    weights : int8[KH, KW, Ci, Co]
        Of a QConv.
    bias : int64[Co]
        In units of input scale times weight scale, the input's zero point included.
    scale : float32[Co]
        Of the output.
    """
    lowest, highest = accumulator_bounds(weights, bias)
    largest = np.maximum(highest, -lowest)
    return bool((largest < np.where(scale < SMALL_SCALE, EXACT_LIMIT, 2**31)).all())

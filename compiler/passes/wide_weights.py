"""Nine-bit weights as sums of int8 weights.

Some models, such as TFLite's older ones, have uint8 weights with zero points in the middle of the
range. Without the zero point, such a weight may exceed int8. It is split into int8 terms. The
convolution then reads copies of the input, side by side in the channels, with one term per copy:
`x * w = x * a + x * b`.
"""

import numpy as np


def split_weights(weights: np.ndarray) -> list[np.ndarray]:
    """Return int8 arrays whose sum is the weights; a single array if the weights fit int8.

    Parameters
    ----------
    weights : int16[...]
        From -255 to 255; values beyond 254 need three terms, others two at most.
    """
    terms, rest = [], weights.astype(np.int16)
    while not terms or rest.any():
        terms.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - terms[-1]
    return terms

"""Rotary embedding of int8 rows, in one pass."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..numbers import quantise_output


def rotate(
    x: Sequence[npt.NDArray[np.int8]],
    zero_point: int,
    factors: Sequence[npt.NDArray[np.int8]],
    scale: float,
    y_zero_point: int,
) -> npt.NDArray[np.int8]:
    """Rotate with cosines and sines of 8 bits.

    Parameters
    ----------
    x : sequence of int8[..., positions, channels]
        The channels, and their partners in the same places.
    factors : sequence of int8[positions, channels]
        The factor of each: cosines, and sines with the signs of the partners.
    scale : float
        Of the sum of the products.

    Notes
    -----
    1. `x - zero point` to ACC, unless that is 0.
    2. `y = requantise(sum of products) + zero point`: two steps of `mul`, ACC or ACT, and ACT, to
       ACT.
    """
    terms = zip(x, factors, strict=True)
    totals = sum((each.astype(np.int32) - zero_point) * factor for each, factor in terms)
    return quantise_output(np.asarray(totals, np.int32), np.float32(scale), y_zero_point)

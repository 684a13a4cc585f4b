"""Softmax of int8 rows, with a mask by a bound, in three passes."""

import numpy as np
import numpy.typing as npt

from ...errors import IsaError
from ..numbers import quantise_output
from ..row_statistics import wide
from .steps import Table, integer_table, look_up, reciprocal_scale, row_maximum, row_sum

MAX_KEYS = 1 << 16
"""Length of a row up to which a sum of 16-bit entries fits 32 bits."""


def exponential_table(x_scale: float) -> Table:
    """Build the table of `rint(65535 * exp(x * x_scale))` for distances from the maximum."""
    return integer_table(lambda x: 65535 * np.exp(np.minimum(x, 0) * float(x_scale)), np.uint16)


def exponential_entries(x_scale: float) -> npt.NDArray[np.uint16]:
    """Build the entries of `Statistic.SUM`: uint16[256], for distances of -255 to 0."""
    return look_up(wide(np.arange(-255, 1), 1), exponential_table(x_scale)).astype(np.uint16)


def softmax(
    x: npt.NDArray[np.int8],
    x_scale: float,
    y_scale: float,
    y_zero_point: int,
    valid: npt.ArrayLike | None = None,
) -> npt.NDArray[np.int8]:
    """Softmax of the last axis.

    Parameters
    ----------
    x : int8[..., keys]
        Scores; their zero point does not matter. At most MAX_KEYS keys.
    valid : int64[...], optional
        The keys of each row that count, from the left: at least 1, all by default. The others
        give the zero point, as scores of minus infinity do.

    Returns
    -------
    int8[..., keys]

    Raises
    ------
    IsaError
        For too many keys, or a row without one that counts.

    Notes
    -----
    1. `M = row_maximum(x)`: ACT to the bias in PARAM.
    2. `e = table[x - M]`, 0 beyond the bound, to ACC; `S = row_sum(e)` in the same pass,
       `reciprocal_scale(S)` to the scale in PARAM.
    3. `y = requantise(e, scale) + zero point`: ACC to ACT.
    """
    keys = x.shape[-1]
    if not 1 <= keys <= MAX_KEYS:
        raise IsaError(f"softmax: {keys} keys; expected 1 to {MAX_KEYS}")
    counted = np.arange(keys) < np.asarray(keys if valid is None else valid)[..., None]
    distance = x.astype(np.int32) - row_maximum(x, counted)
    e = np.where(counted, look_up(wide(distance, 1), exponential_table(x_scale)), 0)
    scale = reciprocal_scale(row_sum(e), 1 / y_scale)
    return quantise_output(e, scale, y_zero_point)

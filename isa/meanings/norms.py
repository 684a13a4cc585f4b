"""LayerNormalization and RMSNormalization of int8 rows, in three passes."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import IsaError
from ..numbers import EXACT_LIMIT, quantise_output
from ..row_statistics import FRACTION_BITS, WIDE_LIMIT, wide
from .steps import inverse_root_scale, row_squares, row_sum, spread

MAX_CHANNELS = 4096
"""Length of a row: keeps `spread` within 40 bits and `C * x - S` within 21."""

MAX_EPSILON = (1 << 31) - 1
"""The constant is the bias of PARAM."""

MIN_SCALE = 2.0**-64
"""Of a channel whose `gamma` and `beta` are 0."""

BIAS_LIMIT = EXACT_LIMIT - 2 * (WIDE_LIMIT + 1)
"""Magnitude of a bias to which a wide result can be added without reaching 2**24."""


@dataclass(frozen=True, slots=True)
class NormConstants:
    """Constants of a normalisation in PARAM; see `norm_constants`.

    Parameters
    ----------
    epsilon : int
        Added to the spread of a row.
    factor : float
        Of the row's scale: a normalised value of 1 is `2 * factor` as a wide result.
    bias, scale : int32[channels], float32[channels]
        Of the last pass.
    """

    epsilon: int
    factor: float
    bias: npt.NDArray[np.int32]
    scale: npt.NDArray[np.float32]


def norm_constants(
    gamma: npt.ArrayLike, beta: npt.ArrayLike, epsilon: float, x_scale: float, y_scale: float
) -> NormConstants:
    """Derive the integers of a normalisation.

    A normalised value is at most `sqrt(channels)`, so the factor is as large as it may be without
    saturation. Where `gamma` of a channel is so small beside `beta` that the bias would not fit,
    its scale is enlarged until it does; that moves a result by less than 1.

    Parameters
    ----------
    gamma, beta : float32[channels]
    x_scale, y_scale : float
        Scales of the input and of the result.

    Raises
    ------
    IsaError
        For rows that are too long, or so small beside `epsilon` that it exceeds 31 bits.
    """
    gamma, beta = np.broadcast_arrays(np.asarray(gamma, float), np.asarray(beta, float))
    channels = gamma.size
    if not 1 <= channels <= MAX_CHANNELS:
        raise IsaError(f"normalisation: {channels} channels; expected 1 to {MAX_CHANNELS}")
    added = round(epsilon * (channels / x_scale) ** 2)
    if added > MAX_EPSILON:
        raise IsaError(
            f"normalisation: `epsilon` = {epsilon:g} is {added} in integers, above 2**31 - 1; "
            f"raise the scale of the input, {x_scale:g}"
        )
    factor = (WIDE_LIMIT + 1) / math.sqrt(channels)
    offset = beta / y_scale
    step = np.maximum(np.abs(gamma) / y_scale / (2 * factor), np.abs(offset) / BIAS_LIMIT)
    scale = np.copysign(np.maximum(step, MIN_SCALE), gamma).astype(np.float32)
    bias = np.clip(np.rint(offset / scale), -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32)
    return NormConstants(added, factor, bias, scale)


def layer_norm(
    x: npt.NDArray[np.int8], constants: NormConstants, y_zero_point: int
) -> npt.NDArray[np.int8]:
    """LayerNormalization of the last axis; the zero point of `x` does not matter.

    Notes
    -----
    1. `S = row_sum(x)`, `Q = row_squares(x)`: ACT; `inverse_root_scale(spread(Q, S, S))` to the
       scale and `-S` to the bias in PARAM.
    2. `v = wide(C * x - S, scale)`: ACT to ACC.
    3. `y = requantise(v + bias, scale) + zero point`, by channel: ACC to ACT.
    """
    return _normalise(x, row_sum(x), constants, y_zero_point)


def rms_norm(
    x: npt.NDArray[np.int8], x_zero_point: int, constants: NormConstants, y_zero_point: int
) -> npt.NDArray[np.int8]:
    """RMSNormalization of the last axis: `layer_norm` with C times the zero point in place of S."""
    centre = np.full((*x.shape[:-1], 1), x.shape[-1] * x_zero_point)
    return _normalise(x, centre, constants, y_zero_point)


def _normalise(
    x: npt.NDArray[np.int8],
    centre: npt.NDArray[np.int64],
    constants: NormConstants,
    y_zero_point: int,
) -> npt.NDArray[np.int8]:
    channels = x.shape[-1]
    around = spread(row_squares(x), row_sum(x), centre, channels, constants.epsilon)
    scale = inverse_root_scale(around, constants.factor / (1 << FRACTION_BITS))
    normalised = wide(channels * x.astype(np.int32) - centre, scale)
    return quantise_output(normalised + constants.bias, constants.scale, y_zero_point)

"""Weights and biases of a layer as integers: int8 per output channel, int32 biases.

Weights lie in -127..127 about zero. A channel's scale is the one of least squared error, raised
where its accumulators would otherwise leave the range in which the machine rounds exactly.
"""

from dataclasses import dataclass

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..accumulators import SMALL_SCALE
from ..graph import Quantisation

LARGEST = 127
"""Largest magnitude of a weight; -128 is left out so that two products share a multiplier."""

SHARES = np.linspace(1.0, 0.6, 41)
"""Shares of a channel's largest weight that are tried as its range."""

BIAS_LIMIT = 2.0**29
"""Magnitude that an integer bias stays below; leaves room for the zero point's share."""

MARGIN = 1.001
"""Keeps scales on the safe side of a limit through binary32's roundings."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Integer parameters of a layer.

    Attributes
    ----------
    data : int8[...]
        Weights in the float weights' layout.
    scales : float32[channels]
        Of the weights.
    axis : int
        Of the output channels.
    bias : int32[channels]
        In units of input scale times weight scale.
    bias_scales : float32[channels]
        That product.
    """

    data: np.ndarray
    scales: np.ndarray
    axis: int
    bias: np.ndarray
    bias_scales: np.ndarray


def quantise_weights(
    weights: np.ndarray, bias: np.ndarray, axis: int, x: Quantisation, y: Quantisation
) -> LayerWeights:
    """Quantise a layer's parameters.

    Parameters
    ----------
    weights : float32[...]
        Of a convolution [Co, Ci / groups, KH, KW] or dense layer [K, Co].
    bias : float[channels]
        Real bias.
    axis : int
        Of the output channels.
    x, y : Quantisation
        Of the layer's input and output.
    """
    rows = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1).astype(np.float64)
    scales = least_error_scales(rows)
    scales = np.maximum(scales, np.abs(bias) / (x.scale * BIAS_LIMIT) * MARGIN)
    smallest = SMALL_SCALE * y.scale / x.scale * MARGIN
    # An input is at most 255 away from its zero point.
    reach = 256 * np.abs(_rounded(rows, scales)).sum(axis=1) + np.abs(bias) / (x.scale * scales)
    wide = reach >= EXACT_LIMIT
    scales = np.where(wide, np.maximum(scales, smallest), scales)
    scales = np.maximum(scales, np.finfo(np.float32).tiny / x.scale).astype(np.float32)
    integers = np.moveaxis(
        _rounded(rows, scales).reshape(np.moveaxis(weights, axis, 0).shape), 0, axis
    )
    units = np.float32(x.scale) * scales
    return LayerWeights(
        integers.astype(np.int8),
        scales,
        axis,
        np.rint(bias / units.astype(np.float64)).astype(np.int32),
        units,
    )


def least_error_scales(rows: np.ndarray) -> np.ndarray:
    """Return the scale of each row that rounds it with the least squared error.

    Parameters
    ----------
    rows : float64[channels, weights]
        One channel each; a row of zeros gets a scale of 1 / 127.

    Returns
    -------
    float64[channels]
    """
    largest = np.abs(rows).max(axis=1, initial=0)
    largest = np.where(largest > 0, largest, 1.0)
    best, least = largest / LARGEST, np.full(len(rows), np.inf)
    for share in SHARES:
        scales = (largest * share / LARGEST).astype(np.float32).astype(np.float64)
        error = ((_rounded(rows, scales) * scales[:, None] - rows) ** 2).sum(axis=1)
        better = error < least
        best, least = np.where(better, scales, best), np.where(better, error, least)
    return best


def _rounded(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(rows / scales[:, None]), -LARGEST, LARGEST)

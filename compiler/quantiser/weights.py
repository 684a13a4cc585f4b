"""Quantisation of a layer's parameters: int8 weights with a scale per channel, int32 biases.

Weights are symmetric, in -127..127. A channel's scale has the least squared error. It is raised if
the accumulators would otherwise leave the range in which the machine rounds exactly.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..graph import Quantisation
from ..graph.accumulators import SMALL_SCALE

MAX_MAGNITUDE = 127
"""Maximum magnitude of a weight; -128 is left out so that two products share a multiplier."""

SHARES = np.linspace(1.0, 0.6, 41)
"""Shares of a channel's largest weight that the search tries as its range."""

BIAS_LIMIT = 2.0**29
"""Limit of an integer bias's magnitude; it leaves room for the zero point's part."""

CACHED_WEIGHTS = 1 << 15
"""Weights whose errors are computed together."""

MARGIN = 1.001
"""Factor that keeps scales on the safe side of a limit despite binary32 rounding."""


class WeightForm(Protocol):
    """The integers that the weights of an output may be."""

    def scales(self, rows: np.ndarray) -> np.ndarray:
        """Return the scale of each row with the least squared error, float64[channels]."""
        ...

    def rounded(self, rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return the nearest integers of rows, float64[channels, weights of one]."""
        ...


@dataclass(frozen=True, slots=True)
class ScaledIntegers:
    """Integers, and the scales along an axis that give them their real values.

    Attributes
    ----------
    data : int8[...] or int32[channels]
        Weights, in the layout of the float weights, or biases.
    scales : float32[channels]
        Scales of the weights, or input scale times weight scale.
    axis : int
        Axis of the output channels.
    """

    data: np.ndarray
    scales: np.ndarray
    axis: int


def rows_of(weights: np.ndarray, axis: int) -> np.ndarray:
    """Return float64[channels, weights of one], from weights with their channels on `axis`."""
    return np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1).astype(np.float64)


def quantise_weights(
    weights: np.ndarray,
    bias: np.ndarray,
    axis: int,
    x: Quantisation,
    y: Quantisation,
    scales: np.ndarray,
    form: WeightForm,
) -> tuple[ScaledIntegers, ScaledIntegers]:
    """Quantise a layer's weights and bias.

    Parameters
    ----------
    weights : float32[...]
        Weights of a convolution [Co, Ci / groups, KH, KW] or dense layer [K, Co].
    bias : float[channels]
        The real bias.
    axis : int
        Axis of the output channels.
    x, y : Quantisation
        Quantisation of the layer's input and output.
    scales : float64[channels]
        The scales of the weights in their form, which do not depend on `x` and `y`.
    form : WeightForm
        The integers that the weights may be.
    """
    rows = rows_of(weights, axis)
    scales = np.maximum(scales, np.abs(bias) / (x.scale * BIAS_LIMIT) * MARGIN)
    smallest = SMALL_SCALE * y.scale / x.scale * MARGIN
    # An input differs from its zero point by at most 255.
    reach = 256 * np.abs(form.rounded(rows, scales)).sum(axis=1) + np.abs(bias) / (x.scale * scales)
    wide = reach >= EXACT_LIMIT
    scales = np.where(wide, np.maximum(scales, smallest), scales)
    scales = np.maximum(scales, np.finfo(np.float32).tiny / x.scale).astype(np.float32)
    integers = np.moveaxis(
        form.rounded(rows, scales.astype(np.float64)).reshape(np.moveaxis(weights, axis, 0).shape),
        0,
        axis,
    )
    units = np.float32(x.scale) * scales
    biases = np.rint(bias / units.astype(np.float64)).astype(np.int32)
    return ScaledIntegers(integers.astype(np.int8), scales, axis), ScaledIntegers(biases, units, 0)


def least_error_scales(rows: np.ndarray) -> np.ndarray:
    """Return, for each row, the scale with the least squared rounding error.

    Errors are compared in binary32, a few rows at a time so that they stay in the cache.

    Parameters
    ----------
    rows : float[channels, weights]
        One row per channel; a row of zeros gets a scale of 1 / 127.

    Returns
    -------
    float64[channels]
    """
    largest = np.abs(rows).max(axis=1, initial=0).astype(np.float64)
    largest = np.where(largest > 0, largest, 1.0)
    best, least = largest / MAX_MAGNITUDE, np.full(len(rows), np.inf)
    step = max(1, CACHED_WEIGHTS // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        # Rows are scaled to their largest weight, so that squares stay in the range of binary32.
        shares_of_row = (rows[part] / largest[part, None]).astype(np.float32)
        for share in SHARES:
            scale = np.float32(share / MAX_MAGNITUDE)
            error = shares_of_row / scale
            np.rint(error, out=error)
            np.clip(error, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=error)
            error *= scale
            error -= shares_of_row
            total = np.einsum("ij,ij->i", error, error)
            better = total < least[part]
            scales = (largest[part] * share / MAX_MAGNITUDE).astype(np.float32)
            best[part] = np.where(better, scales, best[part])
            least[part] = np.where(better, total, least[part])
    return best


class _EightBits:
    def scales(self, rows: np.ndarray) -> np.ndarray:
        return least_error_scales(rows)

    def rounded(self, rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(rows / scales[:, None]), -MAX_MAGNITUDE, MAX_MAGNITUDE)


EIGHT_BITS = _EightBits()
"""Any int8 but -128."""

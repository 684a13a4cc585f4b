"""Constant weights with a scale for each block, as int8 with a scale for each channel.

The scales of a channel must be small multiples of one number, as quantisers for 4-bit hardware
choose them. The integers take up the multiples: int4 times up to 15 is what `packed_weights` loads.
"""

import numpy as np

from ..graph import operators as ops
from ..graph.operators.quantisation import NARROW_INTEGERS

CHANNEL_AXES = (0, 1)
"""Axes of the output channels: Conv and transposed Gemm have 0; MatMul and ConvTranspose have 1."""

MAX_WEIGHT = 127

NEIGHBOURS = (0, -1, 1, -2, 2)
"""Steps of one unit in the last place from the estimate of a channel's scale."""


def channel_scales(
    weights: np.ndarray, scales: np.ndarray, *zeros: np.ndarray, axis: int, block: int
) -> tuple[np.ndarray, ops.Dequantize] | None:
    """Return int8 weights and how to dequantise them, or None if the scales do not allow it.

    Parameters
    ----------
    weights : integers[...]
    scales : floats[...]
        One for each `block` elements along `axis`.
    zeros : integers[...]
        The zero points likewise, or none.
    """
    extents = [-(-n // block) if i == axis else n for i, n in enumerate(weights.shape)]
    fits = str(weights.dtype) in NARROW_INTEGERS and scales.shape == tuple(extents)
    fits = fits and scales.dtype == np.float32 and weights.size > 0
    if not fits or not (np.isfinite(scales) & (scales > 0)).all():
        return None
    whole = weights.astype(np.int32)
    for points in zeros:
        whole -= _spread(points.astype(np.int32).reshape(scales.shape), weights.shape, axis, block)
    largest = np.maximum.reduceat(np.abs(whole), range(0, whole.shape[axis], block), axis)
    for channels in CHANNEL_AXES:
        if channels == axis or channels >= weights.ndim:
            continue
        rows = [np.moveaxis(each, channels, 0) for each in (scales, largest)]
        found = _multiples(*(each.reshape(len(each), -1) for each in rows))
        if found is not None:
            multiples, units = found
            factors = np.moveaxis(multiples.reshape(rows[0].shape), 0, channels)
            whole *= _spread(factors, weights.shape, axis, block)
            scaling = ops.Dequantize(tuple(map(float, units)), (0,) * len(units), channels)
            return whole.astype(np.int8), scaling
    return None


def _spread(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    return np.repeat(values, block, axis).take(range(shape[axis]), axis)


def _multiples(scales: np.ndarray, largest: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return int16[channels, blocks] and float32[channels] whose products, rounded, are `scales`.

    A multiple times a block's `largest` weight fits int8. It is 0 for a block of zeros.
    """
    used = largest > 0
    least = np.where(used, scales, np.inf).min(axis=1)
    done = np.isinf(least)
    units = np.where(done, np.float32(1), least)
    shares = scales / units[:, None].astype(np.float64)
    multiples = np.zeros(scales.shape, np.int16)
    for divisor in range(1, MAX_WEIGHT + 1):
        if done.all():
            break
        tried = np.where(used, np.rint(shares * divisor), 0)
        if (tried * largest > MAX_WEIGHT)[~done].any():
            return None  # and greater ones would not fit either
        widest = tried.argmax(axis=1, keepdims=True)
        places = (np.take_along_axis(each, widest, 1)[:, 0] for each in (scales, tried))
        estimate = np.divide(*places, where=~done, out=units.copy())
        for steps in NEIGHBOURS:
            unit = estimate + steps * np.spacing(estimate)
            same = (tried.astype(np.float32) * unit[:, None] == scales) | ~used
            hits = same.all(axis=1) & ~done
            multiples[hits], units[hits] = tried[hits], unit[hits]
            done |= hits
    return (multiples, units) if done.all() else None

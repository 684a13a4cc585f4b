"""Rotary embedding of int8 rows, in one pass."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..numbers import quantise_output
from .steps import PRODUCT, sum_of_products

ROTARY_UNIT = 32767
"""A cosine of 1 as a 16-bit integer."""

Pairs = Literal["halves", "interleaved"]


def rotary_constants(angles: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Round cosines and sines of angles to 16 bits.

    They are loaded as two bytes each, and one pass of `add` (`256 * high + low`) writes them to
    ACC, where they serve all heads and layers.
    """
    angles = np.asarray(angles, float)
    return (
        np.rint(ROTARY_UNIT * np.cos(angles)).astype(np.int32),
        np.rint(ROTARY_UNIT * np.sin(angles)).astype(np.int32),
    )


def rotate(
    x: Sequence[npt.NDArray[np.int8]],
    zero_point: int,
    factors: Sequence[npt.NDArray[np.int8]],
    scale: float,
    y_zero_point: int,
) -> npt.NDArray[np.int8]:
    """Rotate with cosines and sines of 8 bits: the form that the compiler uses.

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


def rotary(
    x: npt.NDArray[np.int8],
    x_scale: float,
    x_zero_point: int,
    constants: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
    pairs: Pairs,
    y_scale: float,
    y_zero_point: int,
) -> npt.NDArray[np.int8]:
    """Rotate pairs of channels by the angles of their position.

    Parameters
    ----------
    x : int8[..., positions, channels]
    constants
        int32[positions, channels / 2] each; see `rotary_constants`.
    pairs
        Channel i goes with `i + channels / 2` (halves) or 2 i with `2 i + 1` (interleaved). The
        hardware has halves alone: the rows of the weights before can be in any order.

    Notes
    -----
    1. `y = requantise((x - zero point) * cos -+ (partner - zero point) * sin) + zero point`: two
       steps of `PRODUCT`, ACC and ACT to ACT.
    """
    cosines, sines = constants
    half = x.shape[-1] // 2
    split = x.reshape(*x.shape[:-1], *((2, half) if pairs == "halves" else (half, 2)))
    first, second = np.moveaxis(split, -2 if pairs == "halves" else -1, 0)
    turned = [
        quantise_output(
            sum_of_products(PRODUCT, terms, -x_zero_point),
            x_scale / (ROTARY_UNIT * y_scale),
            y_zero_point,
        )
        for terms in (
            [(cosines, first), (-sines, second)],
            [(cosines, second), (sines, first)],
        )
    ]
    return np.stack(turned, -2 if pairs == "halves" else -1).reshape(x.shape)

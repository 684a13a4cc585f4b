"""Weighted sums of elements along one axis: what resizing is, one axis at a time."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import FLOATS, INTEGERS, Definition, Types, expect, wide


@dataclass(frozen=True, slots=True)
class Interpolate(Operator):
    """y[..., i, ...] = sum over t of x[..., places[i, t], ...] * weights[i, t] along `axis`.

    Inputs: x of any number type, places int64[extent, taps] within x, weights float32 likewise.
    """

    op: ClassVar[str] = "interpolate"
    axis: int


def interpolate(op: Interpolate, x: np.ndarray, places: np.ndarray, weights: np.ndarray):
    """Return the weighted sums in x's type."""
    values = wide(x) if x.dtype.kind not in "iu" else x.astype(np.float64)
    spread = [-1 if i == op.axis else 1 for i in range(x.ndim)]
    total = np.zeros((), dtype=values.dtype)
    for tap in range(places.shape[1]):
        part = np.take(values, places[:, tap], axis=op.axis)
        total = total + part * weights[:, tap].astype(values.dtype).reshape(spread)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        total = np.clip(np.rint(total), limits.min, limits.max)
    return total.astype(x.dtype)


def _type(op: Interpolate, types: Types) -> TensorType:
    x, places, weights = types
    fits = (
        x.dtype in (*FLOATS, *INTEGERS)
        and (places.dtype, weights.dtype) == ("int64", "float32")
        and len(places.shape) == 2
        and places.shape[1] >= 1
        and places.shape == weights.shape
        and 0 <= op.axis < len(x.shape)
    )
    expect(fits, op, f"numbers with an axis {op.axis}, places and weights [extent, taps]", types)
    return TensorType(x.dtype, (*x.shape[: op.axis], places.shape[0], *x.shape[op.axis + 1 :]))


DEFINITIONS = (Definition(Interpolate, (3, 3), _type, interpolate),)

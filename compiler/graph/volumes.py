"""Convolutions and pools over any number of axes and any element type, and transposed convolution.

`Conv`, `MaxPool` and `AveragePool` are their two-dimensional forms, which the passes know. Pads are
all befores, then all afters.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import FLOATS, INTEGERS, Definition, Types, expect, wide
from .windows import divisors, lowest, surround, window_extents, windows

Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VolumeConv(Operator):
    """Convolution of x [N, Ci, ...] with w [Co, Ci / groups, ...] and a bias [Co], if given."""

    op: ClassVar[str] = "volume_conv"
    strides: Extents
    pads: Extents
    dilations: Extents
    groups: int


@dataclass(frozen=True, slots=True)
class ConvTranspose(Operator):
    """Transposed convolution of x [N, Ci, ...] with w [Ci, Co / groups, ...] and a bias [Co].

    `pads` are taken off the result (negative ones grow it), `output_padding` is added at its end.
    """

    op: ClassVar[str] = "conv_transpose"
    strides: Extents
    pads: Extents
    dilations: Extents
    output_padding: Extents
    groups: int


@dataclass(frozen=True, slots=True)
class VolumePool(Operator):
    """Pooling of x [N, C, ...]: `kind` is max, average or lp (with exponent `p`).

    An average's divisor counts padding if `count_include_pad`, and never `overhang`, the reach of
    the last windows beyond it.
    """

    op: ClassVar[str] = "volume_pool"
    kind: str
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    overhang: Extents
    count_include_pad: bool = False
    p: int = 2


@dataclass(frozen=True, slots=True)
class MaxPoolIndices(Operator):
    """Max pooling and the flat int64 index of each maximum in x, the spatial axes row by row.

    Column by column if `columns_first`.
    """

    op: ClassVar[str] = "maxpool_indices"
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    columns_first: bool = False


def _fits_window(op, axes: int) -> bool:
    return len(op.strides) == len(op.dilations) == axes and len(op.pads) == 2 * axes


def _conv_type(op: VolumeConv, types: Types) -> TensorType:
    x, w = types[:2]
    fits = (
        x.dtype in (*FLOATS, *INTEGERS)
        and all(t.dtype == x.dtype for t in types)
        and len(x.shape) == len(w.shape) >= 3
        and _fits_window(op, len(x.shape) - 2)
        and op.groups >= 1
        and x.shape[1] == w.shape[1] * op.groups
        and w.shape[0] % op.groups == 0
        and all(bias.shape == w.shape[:1] for bias in types[2:])
    )
    expect(fits, op, "[N,Ci,...], [Co,Ci/groups,...] and [Co] of one type", types)
    extents = window_extents(op, x.shape[2:], w.shape[2:], op.dilations)
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *extents))


def _transpose_type(op: ConvTranspose, types: Types) -> TensorType:
    x, w = types[:2]
    axes = len(x.shape) - 2
    fits = (
        x.dtype in FLOATS
        and all(t.dtype == x.dtype for t in types)
        and len(x.shape) == len(w.shape) >= 3
        and _fits_window(op, axes)
        and min(*op.strides, *op.dilations, op.groups) >= 1
        and len(op.output_padding) == axes
        and x.shape[1] == w.shape[0]
        and x.shape[1] % op.groups == 0
        and all(bias.shape == (w.shape[1] * op.groups,) for bias in types[2:])
    )
    expect(fits, op, "floats [N,Ci,...], [Ci,Co/groups,...] and [Co]", types)
    whole = _whole(op, x.shape[2:], w.shape[2:])
    shape = tuple(n - op.pads[i] - op.pads[i + axes] for i, n in enumerate(whole))
    expect(min(shape) >= 1, op, f"a result left by pads {list(op.pads)}", types)
    return TensorType(x.dtype, (x.shape[0], w.shape[1] * op.groups, *shape))


def _whole(op: ConvTranspose, x: Extents, kernel: Extents) -> Extents:
    """Extents of a transposed convolution before its pads are taken off."""
    return tuple(
        (x[i] - 1) * op.strides[i] + (kernel[i] - 1) * op.dilations[i] + 1 + op.output_padding[i]
        for i in range(len(x))
    )


def _pool_type(op: VolumePool, types: Types) -> TensorType:
    (x,) = types
    fits = (
        op.kind in ("max", "average", "lp")
        and x.dtype in (FLOATS if op.kind != "max" else (*FLOATS, *INTEGERS))
        and len(x.shape) >= 3
        and len(op.kernel) == len(op.overhang) == len(x.shape) - 2
        and _fits_window(op, len(x.shape) - 2)
    )
    expect(fits, op, "[N,C,...], floats unless for a maximum", types)
    extents = window_extents(op, x.shape[2:], op.kernel, op.dilations)
    return TensorType(x.dtype, (*x.shape[:2], *extents))


def _indices_type(op: MaxPoolIndices, types: Types) -> tuple[TensorType, TensorType]:
    (x,) = types
    fits = (
        x.dtype in (*FLOATS, *INTEGERS)
        and len(x.shape) == len(op.kernel) + 2 >= 3
        and _fits_window(op, len(x.shape) - 2)
    )
    expect(fits, op, "numbers [N,C,...]", types)
    shape = (*x.shape[:2], *window_extents(op, x.shape[2:], op.kernel, op.dilations))
    return TensorType(x.dtype, shape), TensorType("int64", shape)


def _row_major(x: np.ndarray) -> np.ndarray:
    """Return wide floats in one layout: NumPy's order of summation follows from it."""
    return np.ascontiguousarray(wide(x))


def volume_conv(op: VolumeConv, x: np.ndarray, w: np.ndarray, *bias: np.ndarray) -> np.ndarray:
    """Return [N, Co, ...]; see `VolumeConv`."""
    axes = x.ndim - 2
    view = windows(surround(_row_major(x), op.pads, 0), w.shape[2:], op.strides, op.dilations)
    depth, part = w.shape[1], w.shape[0] // op.groups
    taps = (1, *range(2 + axes, 2 + 2 * axes))
    results = []
    for group in range(op.groups):
        patches = view[:, group * depth : (group + 1) * depth]
        kernel = wide(w)[group * part : (group + 1) * part]
        sums = np.tensordot(patches, kernel, (taps, tuple(range(1, 2 + axes))))
        results.append(np.moveaxis(sums, -1, 1))
    total = np.concatenate(results, axis=1)
    if bias:
        total = total + wide(bias[0]).reshape(-1, *(1,) * axes)
    return total.astype(x.dtype)


def conv_transpose(op: ConvTranspose, x: np.ndarray, w: np.ndarray, *bias: np.ndarray):
    """Return [N, Co, ...]; see `ConvTranspose`."""
    axes, kernel = x.ndim - 2, w.shape[2:]
    depth, part = w.shape[0] // op.groups, w.shape[1]
    whole = _whole(op, x.shape[2:], kernel)
    total = np.zeros((x.shape[0], part * op.groups, *whole), dtype=wide(x).dtype)
    for group in range(op.groups):
        inputs = slice(group * depth, (group + 1) * depth)
        product = np.tensordot(wide(w)[inputs], wide(x)[:, inputs], (0, 1))
        for tap in np.ndindex(*kernel):
            places = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, s, n in zip(tap, op.dilations, op.strides, x.shape[2:], strict=True)
            )
            outputs = slice(group * part, (group + 1) * part)
            total[(slice(None), outputs, *places)] += np.moveaxis(
                product[(slice(None), *tap)], 1, 0
            )
    total = surround(total, tuple(max(0, -pad) for pad in op.pads), 0)
    inside = tuple(
        slice(max(0, op.pads[i]), total.shape[2 + i] - max(0, op.pads[i + axes]))
        for i in range(axes)
    )
    total = total[(slice(None), slice(None), *inside)]
    if bias:
        total = total + wide(bias[0]).reshape(-1, *(1,) * axes)
    return total.astype(x.dtype)


def volume_pool(op: VolumePool, x: np.ndarray) -> np.ndarray:
    """Return [N, C, ...]; see `VolumePool`."""
    axes = tuple(range(x.ndim, 2 * x.ndim - 2))
    values = _row_major(x)

    def view(array: np.ndarray) -> np.ndarray:
        return windows(array, op.kernel, op.strides, op.dilations)

    if op.kind == "max":
        padded = surround(values, op.pads, lowest(values), op.overhang)
        return view(padded).max(axis=axes).astype(x.dtype)
    taps = view(surround(values, op.pads, 0, op.overhang))
    if op.kind == "lp":
        powers = (np.abs(taps) ** op.p).sum(axis=axes)
        return (powers ** (1 / op.p)).astype(x.dtype)
    counted = divisors(x.shape[2:], values.dtype, op.pads, op.overhang, op.count_include_pad)
    return (taps.sum(axis=axes) / view(counted).sum(axis=axes)).astype(x.dtype)


def max_pool_indices(op: MaxPoolIndices, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the maxima and where they are; see `MaxPoolIndices`."""
    axes, values = x.ndim - 2, wide(x)
    padded = surround(values, op.pads, lowest(values))
    view = windows(padded, op.kernel, op.strides, op.dilations)
    flat = view.reshape(*view.shape[: 2 + axes], -1)
    best = flat.argmax(axis=-1)
    taps = np.unravel_index(best, op.kernel)
    places = np.indices(best.shape, sparse=True)
    coordinates = [
        places[2 + i] * op.strides[i] + taps[i] * op.dilations[i] - op.pads[i] for i in range(axes)
    ]
    sizes = x.shape[2:]
    if op.columns_first:
        coordinates, sizes = coordinates[::-1], sizes[::-1]
    index = np.zeros(best.shape, dtype=np.int64)
    for coordinate, size in zip(coordinates, sizes, strict=True):
        index = index * size + coordinate
    channel = places[0] * x.shape[1] + places[1]
    maxima = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
    return maxima.astype(x.dtype), index + channel * math.prod(x.shape[2:])


DEFINITIONS = (
    Definition(VolumeConv, (2, 3), _conv_type, volume_conv),
    Definition(ConvTranspose, (2, 3), _transpose_type, conv_transpose),
    Definition(VolumePool, (1, 1), _pool_type, volume_pool),
    Definition(MaxPoolIndices, (1, 1), _indices_type, max_pool_indices),
)

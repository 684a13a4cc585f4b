"""Pools: of images, as the passes know them, over any number of axes, and with indices of maxima.

Pads list the starts of all axes, then the ends of all axes; for an image, (top, left, bottom,
right).
"""

import math

import numpy as np

from ..operator import Operator, Pair, Quad, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide
from .convolutions import image_of, in_layout, to_first, to_last
from .windows import Extents, fits_window, lowest, surround, window_extents, windows


def _pooled_image(op: "MaxPool | AveragePool", dilations: Pair, types: Types) -> TensorType:
    (x,), average = types, isinstance(op, AveragePool)
    fits = len(x.shape) == 4 and x.dtype in (("float32",) if average else NUMBERS)
    layout = "[N,H,W,C]" if op.channels_last else "[N,C,H,W]"
    op.expect(fits, f"numbers {layout}, float32 for an average", types)
    n, channels, image = image_of(x, op.channels_last)
    extents = window_extents(op, image, op.kernel, dilations)
    result = x.reshaped(in_layout(n, channels, extents, op.channels_last))
    return TensorType(x.dtype, result.shape) if average else result


@operator("maxpool")
class MaxPool(Operator):
    """Max pooling in ONNX's layout, x [N, C, H, W] of any number type; padding is never chosen.

    With `channels_last`, x and y are [N, H, W, C].
    """

    kernel: Pair
    strides: Pair
    pads: Quad
    dilations: Pair = (1, 1)
    channels_last: bool = False

    def result_type(self, types: Types) -> TensorType:
        return _pooled_image(self, self.dilations, types)

    def compute(self, x: np.ndarray) -> np.ndarray:
        if self.channels_last:
            first = MaxPool(self.kernel, self.strides, self.pads, self.dilations)
            return to_last(first.compute(to_first(x)))
        values = wide(x)
        padded = surround(values, self.pads, lowest(values))
        view = windows(padded, self.kernel, self.strides, self.dilations)
        return view.max(axis=(4, 5)).astype(x.dtype, copy=False)


@operator("averagepool")
class AveragePool(Operator):
    """Average pooling in ONNX's layout, x float32[N, C, H, W].

    `count_include_pad` tells whether the divisor counts padding. The divisor never counts
    `overhang`, the rows and columns that the last windows read beyond the padding (ONNX's
    `ceil_mode`). With `channels_last`, x and y are [N, H, W, C].
    """

    kernel: Pair
    strides: Pair
    pads: Quad
    count_include_pad: bool = False
    overhang: Pair = (0, 0)
    channels_last: bool = False

    def result_type(self, types: Types) -> TensorType:
        return _pooled_image(self, (1, 1), types)

    def compute(self, x: np.ndarray) -> np.ndarray:
        if not self.channels_last:
            return _average(self, x, (1, 1))
        first = (self.kernel, self.strides, self.pads, self.count_include_pad, self.overhang)
        return to_last(AveragePool(*first).compute(to_first(x)))


def _average(op: "AveragePool | VolumePool", x: np.ndarray, dilations: Extents) -> np.ndarray:
    """Return the mean of each window of [N, C, ...]."""

    def total(padded: np.ndarray) -> np.ndarray:
        view = windows(padded, op.kernel, op.strides, dilations)
        return view.sum(axis=tuple(range(x.ndim, 2 * x.ndim - 2)))

    counted = np.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    counted = surround(counted, op.pads, float(op.count_include_pad))
    counted = surround(counted, (0,) * len(op.pads), 0, op.overhang)
    return total(surround(x, op.pads, 0, op.overhang)) / total(counted)


@operator("volume_pool")
class VolumePool(Operator):
    """Pooling of x [N, C, ...]: `kind` is max, average or lp (with exponent `p`).

    An average has the same divisor as `AveragePool`.
    """

    kind: str
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    overhang: Extents
    count_include_pad: bool = False
    p: int = 2

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = (
            self.kind in ("max", "average", "lp")
            and x.dtype in (FLOATS if self.kind != "max" else NUMBERS)
            and len(x.shape) >= 3
            and len(self.kernel) == len(self.overhang) == len(x.shape) - 2
            and fits_window(self, len(x.shape) - 2)
        )
        self.expect(fits, "[N,C,...], floats unless for a maximum", types)
        extents = window_extents(self, x.shape[2:], self.kernel, self.dilations)
        return TensorType(x.dtype, (*x.shape[:2], *extents))

    def compute(self, x: np.ndarray) -> np.ndarray:
        axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        values = np.ascontiguousarray(wide(x))  # the layout determines the order of NumPy's sums
        if self.kind == "average":
            return _average(self, values, self.dilations).astype(x.dtype)
        padding = lowest(values) if self.kind == "max" else 0
        padded = surround(values, self.pads, padding, self.overhang)
        taps = windows(padded, self.kernel, self.strides, self.dilations)
        if self.kind == "max":
            return taps.max(axis=axes).astype(x.dtype)
        return ((np.abs(taps) ** self.p).sum(axis=axes) ** (1 / self.p)).astype(x.dtype)


@operator("maxpool_indices")
class MaxPoolIndices(Operator):
    """Max pooling, and the flat int64 index of each maximum in x.

    The index counts the spatial axes row by row, or column by column if `columns_first`.
    """

    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    columns_first: bool = False

    def result_type(self, types: Types) -> tuple[TensorType, TensorType]:
        (x,) = types
        fits = x.dtype in NUMBERS and len(x.shape) == len(self.kernel) + 2 >= 3
        fits = fits and fits_window(self, len(x.shape) - 2)
        self.expect(fits, "numbers [N,C,...]", types)
        extents = window_extents(self, x.shape[2:], self.kernel, self.dilations)
        shape = (*x.shape[:2], *extents)
        return TensorType(x.dtype, shape), TensorType("int64", shape)

    def compute(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axes, values = x.ndim - 2, wide(x)
        padded = surround(values, self.pads, lowest(values))
        view = windows(padded, self.kernel, self.strides, self.dilations)
        flat = view.reshape(*view.shape[: 2 + axes], -1)
        best = flat.argmax(axis=-1)
        taps, places = np.unravel_index(best, self.kernel), np.indices(best.shape, sparse=True)
        coordinates = [
            places[2 + i] * self.strides[i] + taps[i] * self.dilations[i] - self.pads[i]
            for i in range(axes)
        ]
        sizes = x.shape[2:]
        if self.columns_first:
            coordinates, sizes = coordinates[::-1], sizes[::-1]
        index = np.zeros(best.shape, dtype=np.int64)
        for coordinate, size in zip(coordinates, sizes, strict=True):
            index = index * size + coordinate
        channel = places[0] * x.shape[1] + places[1]
        maxima = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        return maxima.astype(x.dtype), index + channel * math.prod(x.shape[2:])

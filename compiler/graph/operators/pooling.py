"""Pools over any number of axes: maxima, means, norms, and maxima with their indices.

Pads list the starts of all axes, then the ends of all axes; for an image, (top, left, bottom,
right).
"""

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide
from .windows import (
    Extents,
    fits_window,
    lowest,
    shape_to_first,
    shape_to_last,
    surround,
    to_first,
    to_last,
    window_extents,
    windows,
)

WINDOW = ("strides", "pads", "dilations")
"""Attributes of a window in ONNX, besides its shape."""


class Pool(Operator):
    """Base of the pools in ONNX's layout, x [N, C, ...]; with `channels_last`, [N, ..., C].

    Layers and kernels are made of pools of images, x [N, C, H, W]; NumPy computes all others.
    """

    __slots__ = ()
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    channels_last: bool

    @property
    def ceil_mode(self) -> bool:
        """Whether the last windows may read beyond the padding."""
        return any(getattr(self, "overhang", ()))

    @property
    def is_image(self) -> bool:
        return len(self.kernel) == 2

    def result_type(self, types: Types) -> TensorType:
        (x,), axes, maximum = types, len(self.kernel), isinstance(self, MaxPool)
        fits = x.dtype in (NUMBERS if maximum else FLOATS)
        fits = fits and len(x.shape) == axes + 2 >= 3 and fits_window(self, axes)
        layout = "[N,...,C]" if self.channels_last else "[N,C,...]"
        numbers = "numbers" if maximum else "floats"
        self.expect(fits, f"{numbers} {layout}, with as many axes as the kernel has", types)
        first = shape_to_first(x.shape) if self.channels_last else x.shape
        extents = window_extents(self, first[2:], self.kernel, self.dilations)
        shape = (*first[:2], *extents)
        shape = shape_to_last(shape) if self.channels_last else shape
        return x.reshaped(shape) if maximum else TensorType(x.dtype, shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        if self.channels_last:
            return to_last(replace(self, channels_last=False).compute(to_first(x)))
        values = wide(x)
        return self.pooled(values).astype(x.dtype, copy=False)

    @abstractmethod
    def pooled(self, x: np.ndarray) -> np.ndarray:
        """Return the result for each window of [N, C, ...]."""

    def taps(self, x: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the windows of [N, C, ...], padded before, and the axes of their taps."""
        view = windows(x, self.kernel, self.strides, self.dilations)
        return view, tuple(range(x.ndim, view.ndim))


@operator("maxpool")
class MaxPool(Pool):
    """Max pooling of any number type; padding is never chosen."""

    onnx = onnx_form("MaxPool", *WINDOW, kernel_shape="kernel")
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents = (1, 1)
    channels_last: bool = False

    def pooled(self, x: np.ndarray) -> np.ndarray:
        view, axes = self.taps(surround(x, self.pads, lowest(x)))
        return view.max(axis=axes)


@operator("averagepool")
class AveragePool(Pool):
    """Average pooling of floats.

    `count_include_pad` tells whether the divisor counts padding. The divisor never counts
    `overhang`, the elements that the last windows read beyond the padding (ONNX's `ceil_mode`).
    """

    onnx = onnx_form(
        "AveragePool", *WINDOW, "count_include_pad", "ceil_mode", kernel_shape="kernel"
    )
    kernel: Extents
    strides: Extents
    pads: Extents
    count_include_pad: bool = False
    overhang: Extents = (0, 0)
    channels_last: bool = False
    dilations: Extents = (1, 1)

    def pooled(self, x: np.ndarray) -> np.ndarray:
        counted = np.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
        counted = surround(counted, self.pads, float(self.count_include_pad))
        counted, axes = self.taps(surround(counted, (0,) * len(self.pads), 0, self.overhang))
        view, _ = self.taps(surround(x, self.pads, 0, self.overhang))
        with np.errstate(invalid="ignore"):  # a window of nothing but padding has no mean
            return view.sum(axis=axes) / counted.sum(axis=axes)


@operator("lppool")
class LpPool(Pool):
    """The norm with exponent `p` of each window of floats; `overhang` as for `AveragePool`."""

    onnx = onnx_form("LpPool", *WINDOW, "p", "ceil_mode", kernel_shape="kernel")
    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    overhang: Extents
    p: int = 2
    channels_last: bool = False

    def pooled(self, x: np.ndarray) -> np.ndarray:
        view, axes = self.taps(surround(x, self.pads, 0, self.overhang))
        return (np.abs(view) ** self.p).sum(axis=axes) ** (1 / self.p)


@operator("maxpool_indices")
class MaxPoolIndices(Operator):
    """Max pooling, and the flat int64 index of each maximum in x.

    The index counts the spatial axes row by row, or column by column if `columns_first`.
    """

    onnx = onnx_form("MaxPool", *WINDOW, kernel_shape="kernel", storage_order="columns_first")
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
        flat = view.reshape(*view.shape[: 2 + axes], math.prod(self.kernel))
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

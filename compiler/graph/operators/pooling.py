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
from .indexing import within
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
        (x,), axes = types, len(self.kernel)
        maximum = isinstance(self, MaxPool | MaxPoolIndices)
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
        found = self.pooled(wide(x))
        return found if isinstance(self, MaxPoolIndices) else found.astype(x.dtype, copy=False)

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
class MaxPoolIndices(Pool):
    """The index of the first maximum of each window, int64, in all of x [N, C, ...].

    The index counts the spatial axes row by row, or column by column if `columns_first`. It does
    not depend on the layout.
    """

    kernel: Extents
    strides: Extents
    pads: Extents
    dilations: Extents
    columns_first: bool = False
    channels_last: bool = False

    def result_type(self, types: Types) -> TensorType:
        return TensorType("int64", Pool.result_type(self, types).shape)

    def pooled(self, x: np.ndarray) -> np.ndarray:
        axes = x.ndim - 2
        padded = surround(x, self.pads, lowest(x))
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
        return index + channel * math.prod(x.shape[2:])


@operator("max_unpool", 2)
class MaxUnpool(Operator):
    """Zeros [N, C, ...] with each x[n, c, ...] at its flat index, as MaxPoolIndices counts.

    The output has the extents of the smallest image with so many windows.
    """

    onnx = onnx_form("MaxUnpool", "strides", "pads", kernel_shape="kernel")
    kernel: Extents
    strides: Extents
    pads: Extents

    def result_type(self, types: Types) -> TensorType:
        x, indices = types
        axes = len(self.kernel)
        fits = len(x.shape) == axes + 2 >= 3 and x.shape == indices.shape
        fits = fits and indices.dtype == "int64" and x.dtype in NUMBERS
        fits = fits and (len(self.strides), len(self.pads)) == (axes, 2 * axes)
        self.expect(fits, "numbers [N,C,...] and as many int64 indices", types)
        shape = self.unpooled(x.shape)
        self.expect(min(shape[2:]) >= 1, "an output that is not empty", types)
        return TensorType(x.dtype, shape)

    def unpooled(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output's shape for one of x."""
        ends = zip(self.pads, self.pads[len(self.kernel) :], strict=False)
        windows = zip(shape[2:], self.strides, self.kernel, ends, strict=True)
        return *shape[:2], *(
            (n - 1) * stride + taps - sum(pads) for n, stride, taps, pads in windows
        )

    def compute(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        result = np.zeros(self.unpooled(x.shape), x.dtype)
        result.reshape(-1)[within(indices, result.size)] = x
        return result

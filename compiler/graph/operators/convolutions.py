"""Convolutions over any number of axes: plain and transposed.

Pads list the starts of all axes, then the ends of all axes; for an image, (top, left, bottom,
right).
"""

import math
from dataclasses import replace

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide
from .windows import (
    Extents,
    fits_window,
    shape_to_first,
    shape_to_last,
    surround,
    to_first,
    to_last,
    window_extents,
    windows,
)


@operator("conv", 2, 3)
class Conv(Operator):
    """Convolution in ONNX's layout: x [N, Ci, ...], w [Co, Ci / groups, ...], bias [Co].

    With `channels_last`, x and y are [N, ..., C] and w is [..., Ci / groups, Co]. The results are
    bit-identical to those of the same convolution with channels first. Layers and kernels are made
    of float32 images, x [N, Ci, H, W]; NumPy computes all others.
    """

    onnx = onnx_form("Conv", "strides", "pads", "dilations", group="groups")
    numpy_passes = 2
    strides: Extents
    pads: Extents
    dilations: Extents
    groups: int
    channels_last: bool = False

    @property
    def is_image(self) -> bool:
        return len(self.strides) == 2

    def result_type(self, types: Types) -> TensorType:
        x, w = (kind.shape for kind in types[:2])
        image, taps = ("H,W", "KH,KW") if len(x) == 4 else ("...", "...")
        layout = f"[N,Ci,{image}], [Co,Ci/groups,{taps}]"
        if self.channels_last:
            layout = f"[N,{image},Ci], [{taps},Ci/groups,Co]"
            x, w = shape_to_first(x), (*w[:-3:-1], *w[:-2])
        dtype = types[0].dtype
        fits = (
            dtype in NUMBERS
            and all(kind.dtype == dtype for kind in types)
            and len(x) == len(w) >= 3
            and fits_window(self, len(x) - 2)
            and self.groups >= 1
            and x[1] == w[1] * self.groups
            and w[0] % self.groups == 0
            and all(bias.shape == w[:1] for bias in types[2:])
        )
        self.expect(fits, f"{dtype} {layout} and [Co]", types)
        shape = (x[0], w[0], *window_extents(self, x[2:], w[2:], self.dilations))
        return TensorType(dtype, shape_to_last(shape) if self.channels_last else shape)

    def compute(self, x: np.ndarray, w: np.ndarray, *bias: np.ndarray) -> np.ndarray:
        if self.channels_last:
            first = replace(self, channels_last=False)
            kernel = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))
            return to_last(first.compute(to_first(x), kernel, *bias))
        axes, (channels, depth, *kernel) = x.ndim - 2, w.shape
        padded = surround(wide(x), self.pads, 0)
        view = windows(padded, tuple(kernel), self.strides, self.dilations)
        samples, places, taps = len(x), view.shape[2 : 2 + axes], depth * math.prod(kernel)
        patches = view.reshape(samples, self.groups, depth, math.prod(places), math.prod(kernel))
        patches = patches.transpose(0, 1, 3, 2, 4)
        patches = patches.reshape(samples, self.groups, math.prod(places), taps)
        matrix = wide(w).reshape(self.groups, channels // self.groups, taps).transpose(0, 2, 1)
        product = np.matmul(patches, matrix).transpose(0, 1, 3, 2)
        return _with_bias(product.reshape(samples, channels, *places), bias).astype(x.dtype)


def _with_bias(total: np.ndarray, bias: tuple[np.ndarray, ...]) -> np.ndarray:
    """Add a bias [Co], if given, to [N, Co, ...]."""
    return total + wide(bias[0]).reshape(-1, *(1,) * (total.ndim - 2)) if bias else total


@operator("conv_transpose", 2, 3)
class ConvTranspose(Operator):
    """Transposed convolution of x [N, Ci, ...] with w [Ci, Co / groups, ...] and a bias [Co].

    `pads` crop the result; negative ones extend it. `output_padding` is added at its end.
    """

    strides: Extents
    pads: Extents
    dilations: Extents
    output_padding: Extents
    groups: int

    @property
    def is_image(self) -> bool:
        return len(self.strides) == 2

    def result_type(self, types: Types) -> TensorType:
        x, w = types[:2]
        axes = len(x.shape) - 2
        fits = (
            x.dtype in FLOATS
            and all(t.dtype == x.dtype for t in types)
            and len(x.shape) == len(w.shape) >= 3
            and fits_window(self, axes)
            and min(*self.strides, *self.dilations, self.groups) >= 1
            and len(self.output_padding) == axes
            and x.shape[1] == w.shape[0]
            and x.shape[1] % self.groups == 0
            and all(bias.shape == (w.shape[1] * self.groups,) for bias in types[2:])
        )
        self.expect(fits, "floats [N,Ci,...], [Ci,Co/groups,...] and [Co]", types)
        whole = self._whole(x.shape[2:], w.shape[2:])
        shape = tuple(n - self.pads[i] - self.pads[i + axes] for i, n in enumerate(whole))
        self.expect(min(shape) >= 1, f"a result left by pads {list(self.pads)}", types)
        return TensorType(x.dtype, (x.shape[0], w.shape[1] * self.groups, *shape))

    def _whole(self, x: Extents, kernel: Extents) -> Extents:
        """Return the extents before `pads` crop them."""
        steps = zip(x, self.strides, kernel, self.dilations, self.output_padding, strict=True)
        return tuple((n - 1) * s + (k - 1) * d + 1 + more for n, s, k, d, more in steps)

    def compute(self, x: np.ndarray, w: np.ndarray, *bias: np.ndarray) -> np.ndarray:
        axes, kernel = x.ndim - 2, w.shape[2:]
        depth, part = w.shape[0] // self.groups, w.shape[1]
        shape = (x.shape[0], part * self.groups, *self._whole(x.shape[2:], kernel))
        total = np.zeros(shape, dtype=wide(x).dtype)
        for group in range(self.groups):
            inputs = slice(group * depth, (group + 1) * depth)
            outputs = slice(group * part, (group + 1) * part)
            product = np.tensordot(wide(w)[inputs], wide(x)[:, inputs], (0, 1))
            for tap in np.ndindex(*kernel):
                places = tuple(
                    slice(t * d, t * d + (n - 1) * s + 1, s)
                    for t, d, s, n in zip(
                        tap, self.dilations, self.strides, x.shape[2:], strict=True
                    )
                )
                rows = np.moveaxis(product[(slice(None), *tap)], 1, 0)
                total[(slice(None), outputs, *places)] += rows
        total = surround(total, tuple(max(0, -pad) for pad in self.pads), 0)
        inside = tuple(
            slice(max(0, self.pads[i]), total.shape[2 + i] - max(0, self.pads[i + axes]))
            for i in range(axes)
        )
        return _with_bias(total[(slice(None), slice(None), *inside)], bias).astype(x.dtype)

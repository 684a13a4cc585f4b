"""Convolutions: of images, as the passes know them, over any number of axes, and transposed.

Pads list the starts of all axes, then the ends of all axes; for an image, (top, left, bottom,
right).
"""

import numpy as np

from ..operator import Operator, Pair, Quad, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide
from .windows import Extents, fits_window, surround, window_extents, windows


def to_first(x: np.ndarray) -> np.ndarray:
    """Copy [N, H, W, C] to [N, C, H, W]; the layout determines the order in which NumPy sums."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def to_last(x: np.ndarray) -> np.ndarray:
    """Copy [N, C, H, W] to [N, H, W, C], row-major."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def image_of(x: TensorType, channels_last: bool) -> tuple[int, int, Pair]:
    """Return the number of images, the number of channels, and (height, width)."""
    if channels_last:
        n, height, width, channels = x.shape
    else:
        n, channels, height, width = x.shape
    return n, channels, (height, width)


def in_layout(
    n: int, channels: int, extents: tuple[int, ...], channels_last: bool
) -> tuple[int, ...]:
    """Return the shape of a batch of images in a layout."""
    return (n, *extents, channels) if channels_last else (n, channels, *extents)


@operator("conv", 2, 3)
class Conv(Operator):
    """Convolution in ONNX's layout: x [N, Ci, H, W], w [Co, Ci / groups, KH, KW], bias [Co].

    With `channels_last`, x and y are [N, H, W, C] and w is [KH, KW, Ci / groups, Co]. The results
    are bit-identical to those of the same convolution with channels first.
    """

    strides: Pair
    pads: Quad
    dilations: Pair
    groups: int
    channels_last: bool = False

    def result_type(self, types: Types) -> TensorType:
        x, w = types[:2]
        first = "[N,Ci,H,W], [Co,Ci/groups,KH,KW]"
        layout = "[N,H,W,Ci], [KH,KW,Ci/groups,Co]" if self.channels_last else first
        wanted = f"float32 {layout} and [Co]"
        ranked = len(x.shape) == len(w.shape) == 4 and all(t.dtype == "float32" for t in types)
        self.expect(ranked, wanted, types)
        n, channels, image = image_of(x, self.channels_last)
        if self.channels_last:
            *kernel, depth, out = w.shape
        else:
            out, depth, *kernel = w.shape
        fits = channels == depth * self.groups and out % self.groups == 0
        fits = fits and all(bias.shape == (out,) for bias in types[2:])
        self.expect(fits, wanted, types)
        extents = window_extents(self, image, kernel, self.dilations)
        return TensorType("float32", in_layout(n, out, extents, self.channels_last))

    def compute(self, x: np.ndarray, w: np.ndarray, *bias: np.ndarray) -> np.ndarray:
        if self.channels_last:
            first = Conv(self.strides, self.pads, self.dilations, self.groups)
            kernel = np.ascontiguousarray(w.transpose(3, 2, 0, 1))
            return to_last(first.compute(to_first(x), kernel, *bias))
        channels, depth, height, width = w.shape
        view = windows(surround(x, self.pads, 0), (height, width), self.strides, self.dilations)
        samples, _, rows, columns = view.shape[:4]
        patches = view.reshape(samples, self.groups, depth, rows, columns, height * width)
        patches = patches.transpose(0, 1, 3, 4, 2, 5)
        patches = patches.reshape(samples, self.groups, rows * columns, -1)
        matrix = w.reshape(self.groups, channels // self.groups, -1).transpose(0, 2, 1)
        product = np.matmul(patches, matrix).transpose(0, 1, 3, 2)
        result = product.reshape(samples, channels, rows, columns)
        return result + bias[0].reshape(-1, 1, 1) if bias else result


def _with_bias(total: np.ndarray, bias: tuple[np.ndarray, ...]) -> np.ndarray:
    """Add a bias [Co], if given, to [N, Co, ...]."""
    return total + wide(bias[0]).reshape(-1, *(1,) * (total.ndim - 2)) if bias else total


@operator("volume_conv", 2, 3)
class VolumeConv(Operator):
    """Convolution of x [N, Ci, ...] with w [Co, Ci / groups, ...] and an optional bias [Co]."""

    strides: Extents
    pads: Extents
    dilations: Extents
    groups: int

    def result_type(self, types: Types) -> TensorType:
        x, w = types[:2]
        fits = (
            x.dtype in NUMBERS
            and all(t.dtype == x.dtype for t in types)
            and len(x.shape) == len(w.shape) >= 3
            and fits_window(self, len(x.shape) - 2)
            and self.groups >= 1
            and x.shape[1] == w.shape[1] * self.groups
            and w.shape[0] % self.groups == 0
            and all(bias.shape == w.shape[:1] for bias in types[2:])
        )
        self.expect(fits, "[N,Ci,...], [Co,Ci/groups,...] and [Co] of one type", types)
        extents = window_extents(self, x.shape[2:], w.shape[2:], self.dilations)
        return TensorType(x.dtype, (x.shape[0], w.shape[0], *extents))

    def compute(self, x: np.ndarray, w: np.ndarray, *bias: np.ndarray) -> np.ndarray:
        axes, depth, part = x.ndim - 2, w.shape[1], w.shape[0] // self.groups
        rows = np.ascontiguousarray(wide(x))  # the layout determines the order of NumPy's sums
        view = windows(surround(rows, self.pads, 0), w.shape[2:], self.strides, self.dilations)
        taps = (1, *range(2 + axes, 2 + 2 * axes))
        results = []
        for group in range(self.groups):
            patches = view[:, group * depth : (group + 1) * depth]
            kernel = wide(w)[group * part : (group + 1) * part]
            sums = np.tensordot(patches, kernel, (taps, tuple(range(1, 2 + axes))))
            results.append(np.moveaxis(sums, -1, 1))
        return _with_bias(np.concatenate(results, axis=1), bias).astype(x.dtype)


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

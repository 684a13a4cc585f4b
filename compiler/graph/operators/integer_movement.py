"""Operators on int8[N, H, W, C] that only move elements and compute nothing."""

from math import prod

import numpy as np

from ..operator import Pair, Quad, operator
from ..types import TensorType, Types
from .integer import Accelerated
from .movement import concat_type, slice_type


class Rearranging(Accelerated):
    """Base of the operators that compute nothing and only move elements."""

    __slots__ = ()
    moved = slice(None)
    numpy_passes = 1


@operator("qconcat", 1, 1000)
class QConcat(Rearranging):
    """Concatenation along `axis`.

    Inputs: int8[N, H, W, C], all of one quantisation, with equal extents on the other axes.
    """

    axis: int

    def result_type(self, types: Types) -> TensorType:
        fits = all(t.dtype == "int8" and len(t.shape) == 4 for t in types) and 0 <= self.axis < 4
        self.expect(fits, "int8 tensors of rank 4 and an axis from 0 to 3", types)
        return concat_type(self, self.axis, types)

    def compute(self, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, axis=self.axis)


@operator("qresize")
class QResize(Rearranging):
    """Resize by repeating pixels: `y[n, i, j, c] = x[n, i // factors[0], j // factors[1], c]`.

    Inputs: x int8[N, H, W, C].
    """

    factors: Pair

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and min(self.factors) >= 1
        self.expect(fits, "int8 [N,H,W,C] and factors of 1 or more", types)
        n, height, width, channels = x.shape
        return x.reshaped((n, height * self.factors[0], width * self.factors[1], channels))

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.repeat(self.factors[0], axis=1).repeat(self.factors[1], axis=2)


@operator("qinterleave", 1, 1000)
class QInterleave(Rearranging):
    """Interleaving of images: `y[n, i * R + a, j * S + b, c] = parts[a * S + b][n, i, j, c]`.

    Inputs: R * S parts int8[N, H, W, C] of one quantisation, where `factors` are (R, S).
    """

    factors: Pair

    def result_type(self, types: Types) -> TensorType:
        x = types[0]
        fits = len(x.shape) == 4 and min(self.factors) >= 1
        fits = fits and all(t.dtype == "int8" and t.shape == x.shape for t in types)
        count = self.factors[0] * self.factors[1]
        self.expect(fits and len(types) == count, f"{count} int8 [N,H,W,C] of one shape", types)
        n, height, width, channels = x.shape
        return x.reshaped((n, height * self.factors[0], width * self.factors[1], channels))

    def compute(self, *parts: np.ndarray) -> np.ndarray:
        n, height, width, channels = parts[0].shape
        whole = np.stack(parts).reshape(*self.factors, n, height, width, channels)
        whole = whole.transpose(2, 3, 0, 4, 1, 5)
        return whole.reshape(n, height * self.factors[0], width * self.factors[1], channels)


@operator("qslice")
class QSlice(Rearranging):
    """Slice `x[starts[i]:stops[i]:steps[i]]` on each axis i, all in range; the last step is 1.

    With a negative step, elements come in reverse, and a stop of -1 is before the first one.

    Inputs: x int8[N, H, W, C].
    """

    starts: Quad
    stops: Quad
    steps: Quad

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and self.steps[-1] == 1
        self.expect(fits, "int8 [N,H,W,C] and a step of 1 along channels", types)
        reverse = [
            (stop + 1, start + 1, -step) if step < 0 else (start, stop, step)
            for start, stop, step in zip(self.starts, self.stops, self.steps, strict=True)
        ]
        starts, stops, steps = zip(*reverse, strict=True)
        return slice_type(self, starts, stops, steps, types)

    def compute(self, x: np.ndarray) -> np.ndarray:
        stops = (None if stop < 0 else stop for stop in self.stops)
        return x[tuple(map(slice, self.starts, stops, self.steps))]


@operator("qreshape")
class QReshape(Rearranging):
    """The elements of images, in order, as images of another `shape`; mostly whole pixels.

    Inputs: x int8[N, H, W, C].
    """

    shape: Quad

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and prod(x.shape) == prod(self.shape)
        self.expect(fits, f"int8 [N,H,W,C] of {prod(self.shape)} elements", types)
        return x.reshaped(self.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)


@operator("qswap")
class QSwap(Rearranging):
    """Rows and columns of images swapped: `y[n, w, h, c] = x[n, h, w, c]`.

    Inputs: x int8[N, H, W, C].
    """

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        self.expect(x.dtype == "int8" and len(x.shape) == 4, "int8 [N,H,W,C]", types)
        n, height, width, channels = x.shape
        return x.reshaped((n, width, height, channels))

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.swapaxes(1, 2)

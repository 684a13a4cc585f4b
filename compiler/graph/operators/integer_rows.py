"""Softmax, norms and rotations of int8 rows, on machines with `row_statistics`.

See `isa.meanings`. They equal the float operators between Dequantize and Quantize in all but a few
results, by 1 at most, so a graph has them only where the machine's meaning is chosen.
"""

from typing import ClassVar

import numpy as np

from ....isa.meanings import NormConstants, layer_norm, rms_norm, rotate, softmax
from ....isa.meanings.norms import MAX_CHANNELS
from ....isa.meanings.softmax import MAX_KEYS
from ..operator import operator
from ..types import TensorType, Types
from .integer import Requantising


class RowWise(Requantising):
    """Base of the operators that read whole rows, the last axis, for each element."""

    __slots__ = ()
    follows: ClassVar[bool] = True
    numpy_passes = 20


@operator("qsoftmax", 1, 2)
class QSoftmax(RowWise):
    """Softmax of the last axis: `isa.meanings.softmax`, then the clamp.

    Inputs: x int8[N, H, W, C]; optionally a mask that broadcasts to it along all axes but the last,
    with 0 for elements that count and `MASKED` for others.
    """

    scale_x: float
    scale_y: float
    zero_point_y: int
    low: int = -128
    high: int = 127

    def result_type(self, types: Types) -> TensorType:
        x, *masks = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and 1 <= x.shape[3] <= MAX_KEYS
        for mask in masks:
            sizes = zip(mask.shape, x.shape, strict=False)
            fits = fits and mask.dtype == "int8" and len(mask.shape) == 4
            fits = fits and mask.shape[3] == x.shape[3]
            fits = fits and all(size in (1, own) for size, own in sizes)
        self.expect(fits, f"int8 [N,H,W,C] with 1 to {MAX_KEYS} channels", types)
        return TensorType("int8", x.shape)

    def compute(self, x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        found = softmax(x, self.scale_x, self.scale_y, self.zero_point_y, mask=mask)
        return np.clip(found, np.int8(self.low), np.int8(self.high))


@operator("qnorm", 3)
class QNorm(RowWise):
    """LayerNormalization of the last axis, or RMSNormalization unless `centred`, then the clamp.

    Inputs: x int8[N, H, W, C], bias int32[C], scale float32[C]; see `isa.meanings.NormConstants`.
    """

    reads_constants: ClassVar[bool] = True
    centred: bool
    epsilon: int
    factor: float
    zero_point_x: int
    zero_point_y: int
    low: int = -128
    high: int = 127

    def result_type(self, types: Types) -> TensorType:
        x, bias, scale = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and 1 <= x.shape[3] <= MAX_CHANNELS
        fits = fits and (bias.dtype, scale.dtype) == ("int32", "float32")
        fits = fits and bias.shape == scale.shape == x.shape[3:]
        expected = f"int8 [N,H,W,C] with 1 to {MAX_CHANNELS} channels, int32 and float32 [C]"
        self.expect(fits, expected, types)
        return TensorType("int8", x.shape)

    def compute(self, x: np.ndarray, bias: np.ndarray, scale: np.ndarray) -> np.ndarray:
        constants = NormConstants(self.epsilon, self.factor, bias, scale)
        if self.centred:
            found = layer_norm(x, constants, self.zero_point_y)
        else:
            found = rms_norm(x, self.zero_point_x, constants, self.zero_point_y)
        return np.clip(found, np.int8(self.low), np.int8(self.high))


@operator("qrotate", 2)
class QRotate(RowWise):
    """Rotary embedding: `isa.meanings.rotate`, then the clamp.

    Inputs: x int8[N, 1, W, 2 * span], which holds the channels from 0 and their partners from
    `span` on, and their factors int8[1, 1, W, 2 * span]; the result is int8[N, 1, W, channels].
    """

    channels: int
    span: int
    scale: float
    zero_point_x: int
    zero_point_y: int
    low: int = -128
    high: int = 127

    def result_type(self, types: Types) -> TensorType:
        x, factors = types
        fits = x.dtype == factors.dtype == "int8" and len(x.shape) == 4
        fits = fits and factors.shape == (1, *x.shape[1:]) and x.shape[1] == 1
        fits = fits and 1 <= self.channels <= self.span and x.shape[3] == 2 * self.span
        self.expect(fits, f"int8 [N,1,W,{2 * self.span}] and [1,1,W,{2 * self.span}]", types)
        return TensorType("int8", (*x.shape[:3], self.channels))

    def compute(self, x: np.ndarray, factors: np.ndarray) -> np.ndarray:
        first, second = (slice(start, start + self.channels) for start in (0, self.span))
        pairs = ([each[..., first], each[..., second]] for each in (x, factors))
        values, held = pairs
        found = rotate(values, self.zero_point_x, held, self.scale, self.zero_point_y)
        return np.clip(found, np.int8(self.low), np.int8(self.high))

"""Softmax and normalisations of int8 rows, on machines with `row_statistics`; see `isa.meanings`.

They equal the float operators between Dequantize and Quantize in all but a few results, by 1 at
most, so a graph has them only where the machine's meaning is chosen.
"""

from typing import ClassVar

import numpy as np

from ....isa.meanings import NormConstants, layer_norm, rms_norm, softmax
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


@operator("qsoftmax")
class QSoftmax(RowWise):
    """Softmax of the last axis: `isa.meanings.softmax`, then the clamp.

    Inputs: x int8[N, H, W, C].
    """

    scale_x: float
    scale_y: float
    zero_point_y: int
    low: int = -128
    high: int = 127

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype == "int8" and len(x.shape) == 4 and 1 <= x.shape[3] <= MAX_KEYS
        self.expect(fits, f"int8 [N,H,W,C] with 1 to {MAX_KEYS} channels", types)
        return TensorType("int8", x.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        found = softmax(x, self.scale_x, self.scale_y, self.zero_point_y)
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

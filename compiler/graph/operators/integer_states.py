"""Steps of states of 16 bits, which recurrent cells keep; see `isa.meanings.cells`."""

from typing import ClassVar

import numpy as np

from ....isa.meanings.cells import MAX_MULTIPLIER, blend_totals, high_byte, low_byte
from ..operator import operator
from ..types import TensorType, Types
from .integer import Accelerated


@operator("qblend", 4)
class QBlend(Accelerated):
    """`gate * state + increment`: the high byte of the result, or the low one.

    Inputs: the state's high and low byte, gate and increment, int8[N, H, W, C] each.
    """

    follows: ClassVar[bool] = True
    numpy_passes = 12
    low: bool
    multiplier: int
    zero_point: int

    def result_type(self, types: Types) -> TensorType:
        first, *others = types
        fits = first.dtype == "int8" and len(first.shape) == 4
        fits = fits and all((one.dtype, one.shape) == (first.dtype, first.shape) for one in others)
        self.expect(fits, "int8 tensors of one shape and rank 4", types)
        return TensorType("int8", first.shape)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        high, low, gate, increment = arrays
        state = high, low
        totals = blend_totals(state, gate, increment, self.multiplier, self.zero_point)
        return low_byte(totals) if self.low else high_byte(totals)

    def mistake(self, output: TensorType) -> str:
        if 1 <= self.multiplier <= MAX_MULTIPLIER and -128 <= self.zero_point <= 127:
            return ""
        return (
            f"expected a multiplier of 1 to {MAX_MULTIPLIER} and a zero point of int8, got "
            f"{self.multiplier} and {self.zero_point}; quantise the state anew"
        )

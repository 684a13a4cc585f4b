"""The accelerator's operators on int8[N, H, W, C], each with an exact definition in integers.

Windows are (y, x) pairs; pads are (top, left, bottom, right). QConv, QAdd, QMul, QAvgPool and
QMatMul end in the same way, with `requantise` as the contract defines it:

    y = clamp(saturate8(requantise(accumulator, scale) + zero_point_y), low, high)
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....isa.numbers import quantise_output
from ..operator import Operator, Pair, Quad, operator
from ..types import TensorType, Types
from .windows import surround, window_extents, windows

SUM_BYTES = 4
"""Bytes of an accumulator."""


class Accelerated(Operator):
    """Base of the operators that integers define exactly, so that the accelerator may run them.

    Attributes
    ----------
    leads : bool
        Whether its kernel may be fused with that of an operator behind it.
    follows : bool
        Whether its kernel may be fused into that of an operator ahead of it that leads.
    result_bytes : int
        Elements of int8 that each of its results takes: `SUM_BYTES` for accumulators.
    """

    __slots__ = ()
    leads: ClassVar[bool] = False
    follows: ClassVar[bool] = False
    result_bytes: ClassVar[int] = 1


class Clamping(Accelerated):
    """Base of the operators that clamp their results to the range from `low` to `high`."""

    __slots__ = ()
    low: int
    high: int

    def mistake(self, output: TensorType) -> str:
        if -128 <= self.low <= self.high <= 127:
            return ""
        return (
            f"expected -128 <= low <= high <= 127, got low `{self.low}` and high `{self.high}`; "
            "correct the clamp"
        )


class Requantising(Clamping):
    """Base of the operators that round accumulators to int8, add `zero_point_y` and clamp."""

    __slots__ = ()
    numpy_passes = 10
    zero_point_y: int

    def mistake(self, output: TensorType) -> str:
        known = output.quantisation
        if clamp := Clamping.mistake(self, output):
            return clamp
        if known is not None and known.zero_point == self.zero_point_y:
            return ""
        return (
            f"expected an output with zero point `{self.zero_point_y}`, got `{known}`; give the "
            "output its quantisation"
        )

    def requantised(self, totals: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
        """Requantise accumulators to int8."""
        factor = np.asarray(scale, np.float32)[()]
        return quantise_output(totals, factor, self.zero_point_y, self.low, self.high)


def patches_of(x: np.ndarray, op: Any, kernel: Pair, dilations: Pair, padding: int) -> np.ndarray:
    """Return the windows [N, OH, OW, KH, KW, C] of [N, H, W, C], padded with `padding`."""
    padded = surround(x, op.pads, padding, first=1)
    return windows(padded, kernel, op.strides, dilations, first=1).transpose(0, 1, 2, 4, 5, 3)


def _broadcast_type(operator: Requantising, types: Types) -> TensorType:
    """Return the type of the first of two operands, to which the second is broadcast."""
    a, b = types
    fits = a.dtype == b.dtype == "int8" and len(a.shape) == len(b.shape) == 4
    fits = fits and all(size in (1, own) for size, own in zip(b.shape, a.shape, strict=False))
    operator.expect(fits, "two int8 tensors of rank 4, the second broadcast to the first", types)
    return TensorType("int8", a.shape)


@operator("qadd", 2)
class QAdd(Requantising):
    """Residual add: the accumulator is `a * multipliers[0] + b * multipliers[1] + constant`.

    Inputs: a int8[N, H, W, C], and b of the same shape, or broadcast along some axes. `mismatches`
    counts the operand pairs, out of 65,536, whose result differs from the float32 definition to
    which the constants were fitted.
    """

    follows: ClassVar[bool] = True
    multipliers: Pair
    constant: int
    scale: float
    zero_point_y: int
    low: int = -128
    high: int = 127
    mismatches: int = 0

    def result_type(self, types: Types) -> TensorType:
        return _broadcast_type(self, types)

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first, second = self.multipliers
        totals = a.astype(np.int32) * first + b.astype(np.int32) * second + np.int32(self.constant)
        return self.requantised(totals, self.scale)

    def mistake(self, output: TensorType) -> str:
        other = Requantising.mistake(self, output)
        if other or all(-32768 <= factor <= 32767 for factor in self.multipliers):
            return other
        return f"expected multipliers of 16 bits, got {list(self.multipliers)}; fit them again"


@operator("qmul", 2)
class QMul(Requantising):
    """Product: the accumulator is `(a - zero_point_a) * (b - zero_point_b)`.

    Inputs: a int8[N, H, W, C], and b of the same shape, or broadcast along some axes. `mismatches`
    counts the operand pairs, out of 65,536, whose result differs from the float32 definition to
    which the scale was fitted.
    """

    leads: ClassVar[bool] = True
    follows: ClassVar[bool] = True
    scale: float
    zero_point_a: int
    zero_point_b: int
    zero_point_y: int
    low: int = -128
    high: int = 127
    mismatches: int = 0

    def result_type(self, types: Types) -> TensorType:
        return _broadcast_type(self, types)

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        left, right = a.astype(np.int32), b.astype(np.int32)
        totals = (left - self.zero_point_a) * (right - self.zero_point_b)
        return self.requantised(totals, self.scale)


@dataclass(frozen=True)
class IntegerPool(Clamping):
    """Base of the pools of int8[N, H, W, C]."""

    __slots__ = ()
    follows: ClassVar[bool] = True
    kernel: Pair
    strides: Pair
    pads: Quad

    def pooled(self, dilations: Pair, types: Types) -> tuple[int, ...]:
        """Return the shape of the result."""
        (x,) = types
        self.expect(x.dtype == "int8" and len(x.shape) == 4, "int8 [N,H,W,C]", types)
        extents = window_extents(self, x.shape[1:3], self.kernel, dilations)
        return (x.shape[0], *extents, x.shape[3])


@operator("qavgpool")
class QAvgPool(IntegerPool, Requantising):
    """Average pooling: the accumulator is `sum(window) + constant`; padding is `zero_point_x`.

    Inputs: x int8[N, H, W, C]. `mismatches` counts the reachable sums whose result differs from
    the float32 definition to which `scale` was fitted.
    """

    zero_point_x: int
    constant: int
    scale: float
    zero_point_y: int
    low: int = -128
    high: int = 127
    mismatches: int = 0

    def result_type(self, types: Types) -> TensorType:
        return TensorType("int8", self.pooled((1, 1), types))

    def compute(self, x: np.ndarray) -> np.ndarray:
        patches = patches_of(x, self, self.kernel, (1, 1), self.zero_point_x)
        totals = patches.sum(axis=(3, 4), dtype=np.int32) + np.int32(self.constant)
        return self.requantised(totals, self.scale)


@operator("qmaxpool")
class QMaxPool(IntegerPool):
    """Max pooling: the largest value of each window, clamped; padding is -128.

    Inputs: x int8[N, H, W, C].
    """

    dilations: Pair = (1, 1)
    low: int = -128
    high: int = 127

    def result_type(self, types: Types) -> TensorType:
        return types[0].reshaped(self.pooled(self.dilations, types))

    def compute(self, x: np.ndarray) -> np.ndarray:
        patches = patches_of(x, self, self.kernel, self.dilations, -128)
        return np.clip(patches.max(axis=(3, 4)), self.low, self.high).astype(np.int8)


@operator("qlut", 2)
class QLut(Accelerated):
    """Table lookup, for any function of one int8: `y = table[x + 128]`.

    Inputs: x int8[...], table int8[256].
    """

    follows: ClassVar[bool] = True
    reads_constants: ClassVar[bool] = True
    numpy_passes = 3

    def result_type(self, types: Types) -> TensorType:
        x, table = types
        fits = x.dtype == table.dtype == "int8" and table.shape == (256,)
        self.expect(fits, "int8 [...] and a table int8 [256]", types)
        return TensorType("int8", x.shape)

    def compute(self, x: np.ndarray, table: np.ndarray) -> np.ndarray:
        return table[x.astype(np.int16) + 128]

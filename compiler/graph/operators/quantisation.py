"""Quantisation, both with constant scales, which the passes recognise, and in ONNX's general form.

The general form takes scales computed at run time, block by block, and any narrow type. Source:
ONNX operators QuantizeLinear and DequantizeLinear.
"""

import ml_dtypes
import numpy as np

from ..operator import Operator, operator
from ..types import DTYPES, FLOATS, Quantisation, TensorType, Types, wide

NARROW_INTEGERS = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
NARROW = (*NARROW_INTEGERS, *FLOAT8, "float4_e2m1fn")


def along(values: tuple[float, ...], axis: int | None, rank: int, dtype: type) -> np.ndarray:
    """Reshape per-channel values so that they broadcast along `axis` of a tensor of `rank`."""
    array = np.array(values, dtype=dtype)
    return array.reshape(() if axis is None else [-1 if i == axis else 1 for i in range(rank)])


def _expect_channels(op: "Quantize | Dequantize", types: Types) -> None:
    (x,) = types
    count = 1 if op.axis is None else x.shape[op.axis] if op.axis < len(x.shape) else -1
    fits = len(op.scales) == len(op.zero_points) == count
    op.expect(fits, f"{len(op.scales)} channels on axis {op.axis}", types)


@operator("quantize")
class Quantize(Operator):
    """Quantise float32: `saturate(round_half_even(x / scale) + zero_point)`.

    There is one scale and zero point for the whole tensor (`axis` None), or one for each index of
    `axis`. NaN gives the zero point.
    """

    numpy_passes = 10
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dtype: str
    axis: int | None = None

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        self.expect(x.dtype == "float32", "float32", types)
        _expect_channels(self, types)
        whole = Quantisation(self.scales[0], self.zero_points[0]) if self.axis is None else None
        return TensorType(self.dtype, x.shape, whole)

    def compute(self, x: np.ndarray) -> np.ndarray:
        zero = along(self.zero_points, self.axis, x.ndim, np.int64)
        with np.errstate(over="ignore"):
            ratio = x / along(self.scales, self.axis, x.ndim, np.float32)
        limits = np.iinfo(self.dtype)
        rounded = np.rint(ratio, out=ratio) if ratio.ndim else np.rint(ratio)
        if limits.bits == 8:  # binary32 holds all integers here; NaN gives the zero point
            least, most = ((limit - zero).astype(np.float32) for limit in (limits.min, limits.max))
            rounded = np.nan_to_num(np.clip(rounded, least, most))
            return (rounded + zero.astype(np.float32)).astype(self.dtype)
        whole = np.nan_to_num(rounded.astype(np.float64)) + zero
        return np.clip(whole, limits.min, limits.max).astype(self.dtype)


@operator("dequantize")
class Dequantize(Operator):
    """Dequantise to float32: `float32(x - zero_point) * scale`; see `Quantize`."""

    numpy_passes = 3
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        self.expect(x.dtype in ("int8", "uint8", "int32"), "int8, uint8 or int32", types)
        _expect_channels(self, types)
        return TensorType("float32", x.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        scale = along(self.scales, self.axis, x.ndim, np.float32)
        if x.dtype.itemsize == 1:  # exact in binary32
            apart = x - along(self.zero_points, self.axis, x.ndim, np.float32)
        else:
            zero = along(self.zero_points, self.axis, x.ndim, np.int64)
            apart = (x.astype(np.int64) - zero).astype(np.float32)
        with np.errstate(all="ignore"):  # quantisers give masks of -inf the largest scales
            return apart * scale


def _spread(parameter: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Reshape scales or zero points so that they broadcast to `shape`."""
    if parameter.size == 1 and not block:
        return parameter.reshape(())
    if not block:
        return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    repeated = np.repeat(parameter, block, axis=axis)
    return np.take(repeated, np.arange(shape[axis]), axis=axis)


def _narrowed(x: np.ndarray, dtype: str, saturate: bool) -> np.ndarray:
    """Round floats to a type of 8 bits or fewer; saturate them or let them overflow."""
    kind = DTYPES[dtype]
    with np.errstate(all="ignore"):
        if not saturate:
            return x.astype(kind)
        largest = float(ml_dtypes.finfo(kind).max)
        return np.clip(x, -largest, largest).astype(kind)


def _expect_scales(op: "GeneralQuantize | GeneralDequantize", types: Types) -> None:
    x, scale = types[:2]
    axis_fits = 0 <= op.axis < max(len(x.shape), 1)
    if op.block:
        blocks = [-(-size // op.block) if i == op.axis else size for i, size in enumerate(x.shape)]
        fits = axis_fits and scale.shape == tuple(blocks)
    else:
        fits = scale.elements == 1 or (axis_fits and scale.shape == (x.shape[op.axis],))
    fits = fits and all(t.elements == scale.elements for t in types[2:])
    op.expect(fits, f"a scale for each index or block of axis {op.axis}", types)


@operator("general_quantize", 2, 3)
class GeneralQuantize(Operator):
    """Quantise to `dtype`: `saturate(round(x / scale) + zero point)`.

    The inputs are x, the scale and, optionally, the zero point.

    There is one scale for the whole tensor, one for each index of `axis`, or one for each `block`
    elements along it (0 for none). The division runs in the type `precision`, by default that of
    the scale. Without `saturate`, floats overflow as their type does.
    """

    axis: int
    block: int
    dtype: str
    saturate: bool = True
    precision: str = ""

    def result_type(self, types: Types) -> TensorType:
        x, scale = types[:2]
        fits = x.dtype in (*FLOATS, "int32") and scale.dtype in (*FLOATS, "float8_e8m0fnu")
        fits = fits and self.dtype in NARROW and all(t.dtype == self.dtype for t in types[2:])
        self.expect(fits, f"floats and a zero point of {self.dtype}", types)
        _expect_scales(self, types)
        return TensorType(self.dtype, x.shape)

    def compute(self, x: np.ndarray, scale: np.ndarray, *zero_point: np.ndarray) -> np.ndarray:
        factor = _spread(scale, x.shape, self.axis, self.block)
        with np.errstate(all="ignore"):
            if self.precision:
                kind = DTYPES[self.precision]
                ratio = wide(np.divide(x.astype(kind), factor.astype(kind)))
            else:
                ratio = wide(x) / wide(factor)
        zero = np.zeros(())
        if zero_point:
            zero = _spread(zero_point[0], x.shape, self.axis, self.block)
        if self.dtype not in NARROW_INTEGERS:
            return _narrowed(ratio + wide(zero).astype(ratio.dtype), self.dtype, self.saturate)
        limits = ml_dtypes.iinfo(DTYPES[self.dtype])
        rounded = np.nan_to_num(np.rint(ratio.astype(np.float64))) + zero.astype(np.float64)
        whole = np.clip(rounded, int(limits.min), int(limits.max)).astype(np.int32)
        return whole.astype(DTYPES[self.dtype])


@operator("general_dequantize", 2, 3)
class GeneralDequantize(Operator):
    """Dequantise to `dtype`: `(x - zero point) * scale`; inputs as in `GeneralQuantize`."""

    axis: int
    block: int
    dtype: str

    def result_type(self, types: Types) -> TensorType:
        x, scale = types[:2]
        fits = x.dtype in (*NARROW, "int32") and scale.dtype in (*FLOATS, "float8_e8m0fnu")
        fits = fits and self.dtype in FLOATS and all(t.dtype == x.dtype for t in types[2:])
        self.expect(fits, "narrow integers or floats, a float scale", types)
        _expect_scales(self, types)
        return TensorType(self.dtype, x.shape)

    def compute(self, x: np.ndarray, scale: np.ndarray, *zero_point: np.ndarray) -> np.ndarray:
        factor = wide(_spread(scale, x.shape, self.axis, self.block))
        values = x.astype(np.float32 if x.dtype.itemsize < 4 else np.float64)
        if zero_point:
            zero = _spread(zero_point[0], x.shape, self.axis, self.block)
            values = values - zero.astype(values.dtype)
        return (values * factor).astype(DTYPES[self.dtype])

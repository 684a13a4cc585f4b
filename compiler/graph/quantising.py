"""Quantisation in ONNX's general form: scales computed at run time, blocks, any narrow type.

`Quantize` and `Dequantize` are the forms with constant scales, which the passes know.
"""

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from .ir import DTYPES, TensorType
from .operator import Operator
from .rules import FLOATS, Definition, Types, expect, wide

NARROW_INTEGERS = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
NARROW = (*NARROW_INTEGERS, *FLOAT8, "float4_e2m1fn")


@dataclass(frozen=True, slots=True)
class GeneralQuantize(Operator):
    """round(x / scale) + zero point, saturated to `dtype`; inputs x, scale, [zero point].

    Scales are one for all, one for each index of `axis`, or one for each `block` elements along it
    (0 for none). `precision` is the type that divides, the scale's by default. Without `saturate`,
    floats overflow as their type does.
    """

    op: ClassVar[str] = "general_quantize"
    axis: int
    block: int
    dtype: str
    saturate: bool = True
    precision: str = ""


@dataclass(frozen=True, slots=True)
class GeneralDequantize(Operator):
    """(x - zero point) * scale as `dtype`; scales as in `GeneralQuantize`."""

    op: ClassVar[str] = "general_dequantize"
    axis: int
    block: int
    dtype: str


@dataclass(frozen=True, slots=True)
class SaturatingCast(Operator):
    """Convert to a float type of 8 bits or fewer: too large values become its largest.

    float8_e8m0fnu rounds as `round_mode` says: nearest, up or down.
    """

    op: ClassVar[str] = "saturating_cast"
    dtype: str
    round_mode: str = "up"


def spread(parameter: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Return scales or zero points so that they broadcast to `shape`."""
    if parameter.size == 1 and not block:
        return parameter.reshape(())
    if not block:
        return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    repeated = np.repeat(parameter, block, axis=axis)
    return np.take(repeated, np.arange(shape[axis]), axis=axis)


def _limits(dtype: str) -> tuple[int, int]:
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def to_narrow_float(x: np.ndarray, dtype: str, saturate: bool) -> np.ndarray:
    """Round floats to a type of 8 bits or fewer.

    Saturated, what is too large becomes the largest finite value, infinities included. Source:
    ONNX operator Cast, table of conversions to float 8.
    """
    kind = DTYPES[dtype]
    with np.errstate(all="ignore"):
        if not saturate:
            return x.astype(kind)
        largest = float(ml_dtypes.finfo(kind).max)
        return np.clip(x, -largest, largest).astype(kind)


def general_quantize(op: GeneralQuantize, x, scale, *zero_point) -> np.ndarray:
    """Return `dtype` of x's shape; see `GeneralQuantize`."""
    factor = wide(spread(scale, x.shape, op.axis, op.block))
    with np.errstate(all="ignore"):
        if op.precision:
            kind = DTYPES[op.precision]
            ratio = wide(x.astype(kind) / spread(scale, x.shape, op.axis, op.block).astype(kind))
        else:
            ratio = wide(x) / factor
    zero = np.zeros(()) if not zero_point else spread(zero_point[0], x.shape, op.axis, op.block)
    if op.dtype not in NARROW_INTEGERS:
        return to_narrow_float(ratio + wide(zero).astype(ratio.dtype), op.dtype, op.saturate)
    low, high = _limits(op.dtype)
    rounded = np.nan_to_num(np.rint(ratio.astype(np.float64))) + zero.astype(np.float64)
    return np.clip(rounded, low, high).astype(np.int32).astype(DTYPES[op.dtype])


def general_dequantize(op: GeneralDequantize, x, scale, *zero_point) -> np.ndarray:
    """Return `dtype` of x's shape; see `GeneralDequantize`."""
    factor = wide(spread(scale, x.shape, op.axis, op.block))
    values = x.astype(np.float32) if x.dtype.itemsize < 4 else x.astype(np.float64)
    if zero_point:
        zero = spread(zero_point[0], x.shape, op.axis, op.block)
        values = values - zero.astype(values.dtype)
    return (values * factor).astype(DTYPES[op.dtype])


def saturating_cast(op: SaturatingCast, x: np.ndarray) -> np.ndarray:
    """Return `dtype` of x's shape; see `SaturatingCast`."""
    if op.dtype != "float8_e8m0fnu":
        return to_narrow_float(wide(x), op.dtype, saturate=True)
    with np.errstate(all="ignore"):
        exponent = np.log2(wide(x).astype(np.float64))
        rounded = {"up": np.ceil, "down": np.floor, "nearest": _half_up}[op.round_mode](exponent)
        return np.exp2(np.clip(rounded, -127, 127)).astype(DTYPES[op.dtype])


def _half_up(exponent: np.ndarray) -> np.ndarray:
    """Round 2**exponent to the nearest power of two, ties to the larger one."""
    low = np.floor(exponent)
    return np.where(np.exp2(exponent) >= 1.5 * np.exp2(low), low + 1, low)


def _check_scales(op: GeneralQuantize | GeneralDequantize, types: Types) -> None:
    x, scale = types[:2]
    axis_fits = 0 <= op.axis < max(len(x.shape), 1)
    if op.block:
        blocks = tuple(
            -(-size // op.block) if i == op.axis else size for i, size in enumerate(x.shape)
        )
        fits = axis_fits and scale.shape == blocks
    else:
        fits = scale.elements == 1 or (axis_fits and scale.shape == (x.shape[op.axis],))
    fits = fits and all(t.elements == scale.elements for t in types[2:])
    expect(fits, op, f"a scale for each index or block of axis {op.axis}", types)


def _quantize_type(op: GeneralQuantize, types: Types) -> TensorType:
    fits = types[0].dtype in (*FLOATS, "int32") and types[1].dtype in (*FLOATS, "float8_e8m0fnu")
    fits = fits and op.dtype in NARROW and all(t.dtype == op.dtype for t in types[2:])
    expect(fits, op, f"floats and a zero point of {op.dtype}", types)
    _check_scales(op, types)
    return TensorType(op.dtype, types[0].shape)


def _dequantize_type(op: GeneralDequantize, types: Types) -> TensorType:
    x, scale = types[:2]
    fits = x.dtype in (*NARROW, "int32") and scale.dtype in (*FLOATS, "float8_e8m0fnu")
    fits = fits and op.dtype in FLOATS and all(t.dtype == x.dtype for t in types[2:])
    expect(fits, op, "narrow integers or floats, a float scale", types)
    _check_scales(op, types)
    return TensorType(op.dtype, x.shape)


def _cast_type(op: SaturatingCast, types: Types) -> TensorType:
    known = op.dtype in (*FLOAT8, "float4_e2m1fn", "float8_e8m0fnu")
    expect(known and op.round_mode in ("up", "down", "nearest"), op, "a narrow float", types)
    return TensorType(op.dtype, types[0].shape)


DEFINITIONS = (
    Definition(GeneralQuantize, (2, 3), _quantize_type, general_quantize),
    Definition(GeneralDequantize, (2, 3), _dequantize_type, general_dequantize),
    Definition(SaturatingCast, (1, 1), _cast_type, saturating_cast),
)

"""What runs on the host, in NumPy: ONNX's float operators and moves of elements.

The kernels know arrays only; attributes come as keywords. Shapes are ONNX's (channels first), and
what is asked for with channels last has the bits of the same with channels first. These are the
operators that passes know; the others stand in the files of their `families`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .elementwise import binary, unary
from .ir import DTYPES
from .reductions import reduce, softmax
from .rules import NARROW_FLOATS, wide
from .windows import divisors, lowest, surround, windows

INTEGER_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}
"""Element type -> smallest and largest value that QuantizeLinear saturates to."""


def along(values: tuple[float, ...], axis: int | None, rank: int, dtype: type) -> np.ndarray:
    """Shape per-channel values so that they broadcast along `axis` of a tensor of `rank`."""
    array = np.array(values, dtype=dtype)
    if axis is None:
        return array.reshape(())
    return array.reshape([-1 if i == axis else 1 for i in range(rank)])


def quantize(
    x: np.ndarray,
    scales: tuple[float, ...],
    zero_points: tuple[int, ...],
    dtype: str,
    axis: int | None = None,
) -> np.ndarray:
    """Round `x / scale` half to even, add the zero point, saturate; NaN gives the zero point.

    Source: ONNX QuantizeLinear, operator set 13.
    """
    scale = along(scales, axis, x.ndim, np.float32)
    zero = along(zero_points, axis, x.ndim, np.int64)
    low, high = INTEGER_RANGES[dtype]
    with np.errstate(over="ignore"):
        rounded = np.rint(x / scale).astype(np.float64)
    return np.clip(np.nan_to_num(rounded) + zero, low, high).astype(dtype)


def dequantize(
    x: np.ndarray,
    scales: tuple[float, ...],
    zero_points: tuple[int, ...],
    axis: int | None = None,
) -> np.ndarray:
    """Return `float32(x - zero_point) * scale`. Source: ONNX DequantizeLinear, operator set 13."""
    scale = along(scales, axis, x.ndim, np.float32)
    zero = along(zero_points, axis, x.ndim, np.int64)
    return (x.astype(np.int64) - zero).astype(np.float32) * scale


def shift(x: np.ndarray) -> np.ndarray:
    """Move uint8 to int8 or back by flipping the top bit."""
    other = np.int8 if x.dtype == np.uint8 else np.uint8
    return (x.view(np.uint8) ^ np.uint8(0x80)).view(other)


def pad(x: np.ndarray, before: tuple[int, ...], after: tuple[int, ...], value: float) -> np.ndarray:
    """Surround with `value`."""
    widths = tuple(zip(before, after, strict=True))
    return np.pad(x, widths, constant_values=x.dtype.type(value))


def to_first(x: np.ndarray) -> np.ndarray:
    """Copy [N, H, W, C] as [N, C, H, W]: NumPy's order of summation follows from the layout."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def to_last(x: np.ndarray) -> np.ndarray:
    """Return [N, C, H, W] as [N, H, W, C], row-major."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def conv(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilations: tuple[int, int],
    groups: int,
    channels_last: bool = False,
) -> np.ndarray:
    """Convolve float32[N, Ci, H, W] with [Co, Ci / groups, KH, KW]; see `Conv` for the layouts."""
    if channels_last:
        window = np.ascontiguousarray(w.transpose(3, 2, 0, 1))
        attributes = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
        return to_last(conv(to_first(x), window, bias, **attributes))
    channels, depth, height, width = w.shape
    view = windows(surround(x, pads, 0), (height, width), strides, dilations)
    samples, _, rows, columns = view.shape[:4]
    patches = view.reshape(samples, groups, depth, rows, columns, height * width)
    patches = patches.transpose(0, 1, 3, 4, 2, 5).reshape(samples, groups, rows * columns, -1)
    matrix = w.reshape(groups, channels // groups, -1).transpose(0, 2, 1)
    product = np.matmul(patches, matrix).transpose(0, 1, 3, 2)
    result = product.reshape(samples, channels, rows, columns)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def max_pool(
    x: np.ndarray,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilations: tuple[int, int] = (1, 1),
    channels_last: bool = False,
) -> np.ndarray:
    """Largest value of each window of [N, C, H, W], or [N, H, W, C]."""
    if channels_last:
        return to_last(max_pool(to_first(x), kernel, strides, pads, dilations))
    padded = surround(x, pads, lowest(x))
    return windows(padded, kernel, strides, dilations).max(axis=(4, 5))


def average_pool(
    x: np.ndarray,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    count_include_pad: bool = False,
    overhang: tuple[int, int] = (0, 0),
    channels_last: bool = False,
) -> np.ndarray:
    """Mean of each window of float32[N, C, H, W]; see `AveragePool` for the divisor."""
    if channels_last:
        first = average_pool(to_first(x), kernel, strides, pads, count_include_pad, overhang)
        return to_last(first)

    def total(padded: np.ndarray) -> np.ndarray:
        return windows(padded, kernel, strides, (1, 1)).sum(axis=(4, 5))

    counted = divisors(x.shape[2:], np.float32, pads, overhang, count_include_pad)
    return total(surround(x, pads, 0, overhang)) / total(counted)


def slice_(x: np.ndarray, starts, stops, steps) -> np.ndarray:
    """Take every step-th element between starts and stops."""
    return x[tuple(map(slice, starts, stops, steps))]


def cast(x: np.ndarray, dtype: str) -> np.ndarray:
    """Convert elements: to bool by what is not zero, to integers towards zero and wrapping."""
    values = wide(x)
    if values.dtype.kind == "V":  # integers narrower than 8 bits convert to NumPy's own types only
        values = values.astype(np.int32)
    if dtype == "bool":
        return values != 0
    if dtype in NARROW_FLOATS and values.dtype.kind != "f":
        values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return values.astype(DTYPES[dtype])


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply matrices of one type; narrow floats are summed in float32."""
    with np.errstate(all="ignore"):
        return np.matmul(wide(a), wide(b)).astype(a.dtype)


HOST_KERNELS: dict[str, Callable[..., Any]] = {
    "quantize": quantize,
    "dequantize": dequantize,
    "shift": shift,
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, permutation: x.transpose(permutation),
    "pad": pad,
    "slice": slice_,
    "concat": lambda *arrays, axis: np.concatenate(arrays, axis=axis),
    "gather": lambda x, indices, axis: np.take(x, indices, axis=axis),
    "cast": cast,
    "conv": conv,
    "matmul": matmul,
    "maxpool": max_pool,
    "averagepool": average_pool,
    "unary": unary,
    "binary": binary,
    "softmax": softmax,
    "reduce": reduce,
}
"""Host operator -> its kernel: (*arrays, **attributes) -> array."""

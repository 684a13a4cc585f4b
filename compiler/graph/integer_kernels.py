"""What the accelerator's operators compute, in NumPy: the integer reference.

Arrays are int8[N, H, W, C]. Accumulation is exact: products are summed by BLAS in float32 where no
partial sum can reach 2**24, in float64 otherwise, so a whole network takes milliseconds.
"""

from collections.abc import Callable

import numpy as np

from ...errors import CompileError
from ...isa.numbers import EXACT_LIMIT, quantise_output
from . import operators as ops
from .operator import Pair
from .windows import surround, windows

MAX_PATCH_ELEMENTS = 1 << 24
"""Most elements of the unfolded input held at once; larger batches are cut."""


def _patches(
    x: np.ndarray, kernel: Pair, operator: ops.QConv | ops.QAvgPool | ops.QMaxPool, padding: int
) -> np.ndarray:
    """View [N, H, W, C], padded with `padding`, as its windows [N, OH, OW, KH, KW, C]."""
    dilations = (1, 1) if isinstance(operator, ops.QAvgPool) else operator.dilations
    padded = surround(x, operator.pads, padding, first=1)
    view = windows(padded, kernel, operator.strides, dilations, first=1)
    return view.transpose(0, 1, 2, 4, 5, 3)


def accumulate(x: np.ndarray, w: np.ndarray, bias: np.ndarray, operator: ops.QConv) -> np.ndarray:
    """Return a convolution's accumulators.

    Parameters
    ----------
    x : int8[N, H, W, Ci]
        Not yet padded.
    w : int8[KH, KW, Ci / groups, Co]
        Weights.
    bias : int32[Co]
        Added to the sums.
    operator : QConv
        Window, padding value, groups.

    Returns
    -------
    int32[N, OH, OW, Co]

    Raises
    ------
    CompileError
        If an accumulator leaves int32.
    """
    height, width, depth, channels = w.shape
    patches = _patches(x, (height, width), operator, operator.zero_point_x)
    samples, rows, columns = patches.shape[:3]
    bound = int(np.abs(w.astype(np.int64)).sum(axis=(0, 1, 2)).max(initial=0)) * 128
    sums = np.empty((samples, rows, columns, channels), dtype=np.int64)
    part = channels // operator.groups
    elements = rows * columns * height * width * depth * operator.groups
    step = max(1, MAX_PATCH_ELEMENTS // max(1, elements))
    for first in range(0, samples, step):
        chosen = slice(first, first + step)
        if depth == 1 and bound < 2**31:
            sums[chosen] = _depthwise(patches[chosen], w)
            continue
        for group in range(operator.groups):
            inputs = slice(group * depth, (group + 1) * depth)
            outputs = slice(group * part, (group + 1) * part)
            exact = np.float32 if bound < EXACT_LIMIT else np.float64
            matrix = w[..., outputs].reshape(-1, part).astype(exact)
            rows_of_taps = np.ascontiguousarray(patches[chosen][..., inputs], dtype=exact)
            product = rows_of_taps.reshape(-1, matrix.shape[0]) @ matrix
            sums[chosen, ..., outputs] = product.reshape(-1, rows, columns, part)
    sums += bias
    if sums.size and (sums.max() >= 2**31 or sums.min() < -(2**31)):
        raise CompileError(
            "`qconv`: expected accumulators within int32, got "
            f"`{sums.min()}` to `{sums.max()}`; use smaller weights or fewer input channels"
        )
    return sums.astype(np.int32)


def _depthwise(patches: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sum taps channel by channel: int8[N, OH, OW, KH, KW, C] -> int32[N, OH, OW, Co]."""
    height, width, _, channels = w.shape
    depth = patches.shape[-1]
    factors = w.reshape(height, width, depth, channels // depth).astype(np.int32)
    sums = np.zeros((*patches.shape[:3], depth, channels // depth), dtype=np.int32)
    for y in range(height):
        for x in range(width):
            sums += patches[:, :, :, y, x, :, None] * factors[y, x]
    return sums.reshape(*patches.shape[:3], channels)


def convolve(
    operator: ops.QConv, x: np.ndarray, w: np.ndarray, bias: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return int8[N, OH, OW, Co]; see `QConv`."""
    totals = accumulate(x, w, bias, operator)
    return quantise_output(totals, scale, operator.zero_point_y, operator.low, operator.high)


def add(operator: ops.QAdd, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return int8 of the operands' shape; see `QAdd`."""
    first, second = operator.multipliers
    totals = a.astype(np.int32) * first + b.astype(np.int32) * second + np.int32(operator.constant)
    scale = np.float32(operator.scale)
    return quantise_output(totals, scale, operator.zero_point_y, operator.low, operator.high)


def average_pool(operator: ops.QAvgPool, x: np.ndarray) -> np.ndarray:
    """Return int8[N, OH, OW, C]; see `QAvgPool`."""
    patches = _patches(x, operator.kernel, operator, operator.zero_point_x)
    totals = patches.sum(axis=(3, 4), dtype=np.int32) + np.int32(operator.constant)
    scale = np.float32(operator.scale)
    return quantise_output(totals, scale, operator.zero_point_y, operator.low, operator.high)


def max_pool(operator: ops.QMaxPool, x: np.ndarray) -> np.ndarray:
    """Return int8[N, OH, OW, C]; see `QMaxPool`."""
    largest = _patches(x, operator.kernel, operator, -128).max(axis=(3, 4))
    return np.clip(largest, operator.low, operator.high).astype(np.int8)


def look_up(operator: ops.QLut, x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return int8 of the input's shape; see `QLut`."""
    return table[x.astype(np.int16) + 128]


def multiply(operator: ops.QMatMul, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return int8[N, heads, M, L], or [N, 1, M, heads * L] if joined; see `QMatMul`."""
    a, b = (
        split_heads(x, operator.heads) if joined else x
        for x, joined in zip((a, b), operator.joined, strict=False)
    )
    if operator.transposed:
        b = b.swapaxes(2, 3)
    # Sums stay below 2**53 by far, so that binary64 adds them exactly.
    left, right = a.astype(np.float64), b.astype(np.float64)
    totals = (left - operator.zero_point_a) @ (right - operator.zero_point_b)
    if totals.size and np.abs(totals).max() >= 2**31:
        raise CompileError(
            f"`qmatmul`: expected accumulators within int32, got `{np.abs(totals).max():.0f}`; "
            "multiply fewer than 33,000 elements at a time"
        )
    scale = np.float32(operator.scale)
    low, high = operator.low, operator.high
    y = quantise_output(totals.astype(np.int32), scale, operator.zero_point_y, low, high)
    return join_heads(y) if operator.joined[2] else y


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[N, 1, M, heads * C] -> [N, heads, M, C]."""
    n, _, rows, channels = x.shape
    return x.reshape(n, rows, heads, channels // heads).swapaxes(1, 2)


def join_heads(x: np.ndarray) -> np.ndarray:
    """[N, heads, M, C] -> [N, 1, M, heads * C]."""
    n, heads, rows, channels = x.shape
    return x.swapaxes(1, 2).reshape(n, 1, rows, heads * channels)


def concatenate(operator: ops.QConcat, *parts: np.ndarray) -> np.ndarray:
    """Return int8 of all parts, one behind the other; see `QConcat`."""
    return np.concatenate(parts, axis=operator.axis)


def resize(operator: ops.QResize, x: np.ndarray) -> np.ndarray:
    """Return int8[N, H * factors[0], W * factors[1], C]; see `QResize`."""
    rows, columns = operator.factors
    return x.repeat(rows, axis=1).repeat(columns, axis=2)


def cut(operator: ops.QSlice, x: np.ndarray) -> np.ndarray:
    """Return int8 of the elements that are picked; see `QSlice`."""
    return x[tuple(map(slice, operator.starts, operator.stops, operator.steps))]


INTEGER_KERNELS: dict[type[ops.Operator], Callable[..., np.ndarray]] = {
    ops.QConv: convolve,
    ops.QAdd: add,
    ops.QAvgPool: average_pool,
    ops.QMaxPool: max_pool,
    ops.QLut: look_up,
    ops.QMatMul: multiply,
    ops.QConcat: concatenate,
    ops.QResize: resize,
    ops.QSlice: cut,
}
"""Integer operator -> its definition: (operator, *arrays) -> array."""

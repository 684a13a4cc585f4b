"""The steps of integer meanings: each one is one stage of hardware, with the widths it has there.

The wide result, the tables and the sums work on all lanes of VECTOR; the reciprocals work once a
row. Everything that is not listed here (products, biases, requantising) is VECTOR as it stands.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import IsaError
from ..laws import ARRAYS, evaluate
from ..numbers import EXACT_LIMIT, SATURATED, check_scale
from ..vector_operations import Operation

FRACTION_BITS = 8
"""Fraction bits of a wide result's magnitude."""

WIDE_LIMIT = (SATURATED << FRACTION_BITS) - 1
"""Largest magnitude of a wide result before the odd bit is appended: 16 bits."""

INDEX_BITS = 10
"""A table has 2**INDEX_BITS entries of 16 bits."""

INDEX_SHIFT = 8
"""Bits of a wide result below its index: 18 bits less INDEX_BITS."""

_HALF = 1 << (INDEX_BITS - 1)

Table = npt.NDArray[np.int16 | np.uint16]
"""1024 entries; an instruction says whether they have a sign."""

SIGNIFICANT_BITS = 18
"""Of the scales that are computed from a row's statistics; of the multipliers that do so."""

CELL_BITS, INTERPOLATION_BITS = 6, 10
"""Bits below the leading one that select an entry of the reciprocals, and those that interpolate:
192 entries for one octave of 1/x and two of 1/sqrt(x)."""

SUM_BITS, SPREAD_BITS = 32, 40
"""Unsigned widths of a sum for `reciprocal_scale`, and of `spread`."""


# On all lanes -----------------------------------------------------------------------------------


def wide(totals: npt.ArrayLike, scale: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Scale totals to an odd number of 18 bits: 9 integer bits, 8 fraction bits and a one.

    The magnitude is truncated to 16 bits, saturated, and followed by a one: the result is the
    middle of the interval of values that it stands for, so that its error is that of rounding. The
    aligner of the requantiser holds these bits already, and negating an odd number inverts all bits
    but the last: neither an adder nor a carry is needed.

    Parameters
    ----------
    totals : int32[...]
        Sums, bias included; +-2**24 and beyond saturate as they do in `requantise`.
    scale : float32[...]
        Multipliers, broadcast against `totals`.

    Returns
    -------
    int32[...]
        `+-(2 * min(floor(|totals * scale| * 256), 65535) + 1)`, in units of 1/512.
    """
    values = np.asarray(totals, np.int32).astype(np.int64)
    pattern = np.asarray(scale, np.float32).view(np.uint32).astype(np.int64)
    values, pattern = np.broadcast_arrays(values, pattern)
    magnitude = np.abs(values)
    product = (magnitude & (EXACT_LIMIT - 1)) * ((1 << 23) | (pattern & 0x7FFFFF))
    shift = 150 - FRACTION_BITS - ((pattern >> 23) & 0xFF)
    aligned = product >> np.clip(shift, 0, 63)
    saturates = (magnitude >= EXACT_LIMIT) | ((shift < 0) & (magnitude != 0))
    limited = np.where(saturates, WIDE_LIMIT, np.minimum(aligned, WIDE_LIMIT))
    negative = (values < 0) ^ (pattern >> 31 == 1)
    return np.where(negative, -(2 * limited + 1), 2 * limited + 1).astype(np.int32)


def look_up(wides: npt.ArrayLike, table: Table) -> npt.NDArray[np.int32]:
    """Map wide results through a table of 1024 entries: the index is their 10 upper bits.

    Parameters
    ----------
    wides : int32[...]
        Results of `wide`. An interval of the table is 1/2 in the units of `totals * scale`.
    table : int16[1024] or uint16[1024]
        Entry `i + 512` is for the interval from i/2 to (i + 1)/2; see `make_table`.
    """
    return table[(np.asarray(wides) >> INDEX_SHIFT) + _HALF].astype(np.int32)


def make_table(
    function: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    span: float,
    unit: float,
) -> Table:
    """Build a table for `look_up` of `wide(totals, 256 * scale_of_totals / span)`.

    Parameters
    ----------
    function
        Is taken in the middle of each interval.
    span : float
        The intervals reach from -span to span; beyond them the outermost ones count.
    unit : float
        The function's value that an entry of 1 stands for.
    """
    middles = (np.arange(-_HALF, _HALF) + 0.5) * (span / _HALF)
    return _entry(function(middles) / unit, np.int16)


def integer_table(
    function: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating]],
    kind: type[np.int16 | np.uint16],
) -> Table:
    """Build a table for `look_up` of `wide(x, 1)` with integers x of -255 to 255: it is exact.

    Each of these integers has an interval of its own.
    """
    x = np.arange(-255, 256)
    table = np.zeros(1 << INDEX_BITS, kind)
    table[(wide(x, 1) >> INDEX_SHIFT) + _HALF] = _entry(function(x), kind)
    return table


def _entry(values: npt.NDArray[np.floating], kind: type[np.int16 | np.uint16]) -> Table:
    limits = np.iinfo(kind)
    return np.clip(np.rint(values), limits.min, limits.max).astype(kind)


PRODUCT = Operation("product", "wrap(a, 18) * wrap(b + b_multiplier, 9)")
"""An int8 less its zero point, by up to 18 bits from ACC."""

STATE_PRODUCT = Operation("state_product", "wrap(a + 2 >> 2, 17) * wrap(b + b_multiplier, 9)")
"""A wide result rounded to its 16 upper bits, so that two products by 255 stay below 2**24."""


def sum_of_products(
    operation: Operation, pairs: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], offset: int
) -> npt.NDArray[np.int32]:
    """Sum an operation's law over the steps of a reduce loop, `offset` being `b_multiplier`."""
    totals = np.int32(0)
    for a, b in pairs:
        values: dict[str, Any] = {"a": np.asarray(a, np.int32), "b": np.asarray(b, np.int32)}
        values["b_multiplier"] = np.int32(offset)
        totals = totals + evaluate(operation.tree, values, ARRAYS)
    return np.asarray(totals, np.int32)


# On a row ---------------------------------------------------------------------------------------


def row_maximum(x: npt.NDArray[np.int8], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Maximum of the last axis where `valid`; -128 where nothing is."""
    return np.where(valid, x, -128).max(-1, keepdims=True).astype(np.int32)


def row_sum(x: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Sum of the last axis."""
    return np.asarray(x, np.int64).sum(-1, keepdims=True)


def row_squares(x: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Sum of squares of the last axis."""
    return np.square(x.astype(np.int64)).sum(-1, keepdims=True)


def spread(
    squares: npt.NDArray[np.int64],
    sums: npt.NDArray[np.int64],
    centre: npt.NDArray[np.int64],
    length: int,
    epsilon: int,
) -> npt.NDArray[np.int64]:
    """Compute `length**2` times the mean square about `centre / length`, plus `epsilon`.

    It is at least 1 and has SPREAD_BITS bits for rows of up to 4096 bytes.
    """
    return np.maximum(length * squares - centre * (2 * sums - centre) + epsilon, 1)


def reciprocal_scale(sums: npt.ArrayLike, factor: float) -> npt.NDArray[np.float32]:
    """Compute `factor / sums` as a binary32 number of 18 significant bits, with integers only.

    Parameters
    ----------
    sums : int64[...]
        Positive, at most SUM_BITS bits.
    factor : float
        Positive constant; its 18 upper significant bits count.
    """
    return _scale(_looked_up(sums, SUM_BITS, 1), factor)


def inverse_root_scale(spreads: npt.ArrayLike, factor: float) -> npt.NDArray[np.float32]:
    """Compute `factor / sqrt(spreads)` likewise, from positive values of SPREAD_BITS bits."""
    return _scale(_looked_up(spreads, SPREAD_BITS, 2), factor)


def _looked_up(
    values: npt.ArrayLike, bits: int, octaves: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read `_entries(octaves)` for positive integers `v * 2**(octaves * e)`, 1 <= v < 2**octaves.

    Returns
    -------
    int64[...], int64[...]
        Significands of SIGNIFICANT_BITS bits, the leading one included, and `e`.
    """
    whole = np.asarray(values, np.int64)
    if np.any((whole < 1) | (whole >> bits != 0)):
        raise IsaError(f"row statistics: expected integers from 1 to 2**{bits} - 1")
    leading = np.sum([whole >> bit != 0 for bit in range(1, bits)], axis=0)
    left = CELL_BITS + INTERPOLATION_BITS - leading
    fraction = np.where(left >= 0, whole << np.maximum(left, 0), whole >> np.maximum(-left, 0))
    fraction &= (1 << (CELL_BITS + INTERPOLATION_BITS)) - 1
    cell = (leading % octaves << CELL_BITS) + (fraction >> INTERPOLATION_BITS)
    rest = fraction & ((1 << INTERPOLATION_BITS) - 1)
    entries = _entries(octaves)
    fall = (entries[cell] - entries[cell + 1]) * rest >> INTERPOLATION_BITS
    return (1 << (SIGNIFICANT_BITS - 1)) + entries[cell] - fall, leading // octaves


@cache
def _entries(octaves: int) -> npt.NDArray[np.int64]:
    """Significands of 2/v (one octave) or 2/sqrt(v) (two) without their leading one."""
    cells = 1 << CELL_BITS
    position = np.arange(octaves * cells + 1)
    points = (1 + position % cells / cells) * 2.0 ** (position // cells)
    fractions = np.rint((2 * points ** (-1 / octaves) - 1) * 2.0 ** (SIGNIFICANT_BITS - 1))
    return np.minimum(fractions, (1 << (SIGNIFICANT_BITS - 1)) - 1).astype(np.int64)


def _scale(
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], factor: float
) -> npt.NDArray[np.float32]:
    """Multiply the reciprocals of `_looked_up` by a constant and pack them as binary32."""
    significand, exponent = found
    fraction, power = math.frexp(factor)
    product = significand * round(fraction * (1 << SIGNIFICANT_BITS))
    double = product >> (2 * SIGNIFICANT_BITS - 1)
    kept = product >> (SIGNIFICANT_BITS - 1 + double)
    scale = np.ldexp(kept.astype(np.float64), power - exponent + double - SIGNIFICANT_BITS - 1)
    narrow = scale.astype(np.float32)
    check_scale(narrow, "scale of a row")
    return narrow

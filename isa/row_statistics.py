"""Numbers of `row_statistics`: wide results, 16-bit entries, and the parameters of a row.

The integer meanings of norms and softmax (`isa.meanings`) are made of these functions too, so that
a machine computes them to the letter.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from ..errors import IsaError
from .expressions import Op
from .numbers import EXACT_LIMIT, EXPONENT_BIAS, SATURATED, quantise_output, requantise
from .statistics import Statistic

FRACTION_BITS = 8
"""Fraction bits of a wide result's magnitude."""

WIDE_LIMIT = (SATURATED << FRACTION_BITS) - 1
"""Largest magnitude of a wide result before the odd bit is appended: 16 bits."""

SIGNIFICANT_BITS = 18
"""Of the scales that are computed from a row's statistics; of the multipliers that do so."""

CELL_BITS, INTERPOLATION_BITS = 6, 10
"""Bits below the leading one that select an entry of the reciprocals, and those that interpolate:
192 entries for one octave of 1/x and two of 1/sqrt(x)."""

SUM_BITS, SPREAD_BITS = 32, 40
"""Unsigned widths of a sum of entries, and of a spread."""

_DROPPED_BITS = 24 - SIGNIFICANT_BITS
"""Low bits of a binary32 fraction that are 0 in a scale, and ignored in a factor."""

ENTRIES_BYTES = 512
"""Bytes of a table of 256 entries of 16 bits, which takes two tables of LUT."""

BYTE_MIDDLE = 127
"""Added to the distance from a row's maximum, 0 or less, so that it is a signed byte."""

Bits = npt.NDArray[np.int64]


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


def entries_of(tables: npt.NDArray[np.int8], table: int) -> npt.NDArray[np.int32]:
    """The 256 unsigned 16-bit entries that two tables of LUT hold, low byte first: int32[256]."""
    pair = np.ascontiguousarray(tables[table : table + 2])
    return pair.reshape(-1).view(np.uint16).astype(np.int32)


def row_parameters(
    statistic: Statistic,
    values: npt.NDArray[np.integer],
    entries: npt.NDArray[np.integer],
    centre: int,
    constants: tuple[int, int],
) -> tuple[int | None, int | None]:
    """Bias and pattern of the scale that a row gives to PARAM; None where it keeps the old one.

    Parameters
    ----------
    values, entries : int[elements]
        The valid elements of the row, and the entries of the table for them.
    centre
        An int8 that `Statistic.POWER` subtracts.
    constants
        E, and the pattern of F, whose sign does not count.
    """
    epsilon, factor = constants[0], constants[1] & 0x7FFFFFFF
    if statistic is Statistic.NONE:
        return None, None
    if statistic is Statistic.MAXIMUM:
        return -int(values.max(initial=-128)), None
    total = int(entries.sum(dtype=np.int64))
    if statistic is Statistic.SUM:
        return None, int(reciprocal(np.clip(total, 1, (1 << SUM_BITS) - 1), factor)) & 0x7FFFFFFF
    length = values.size
    if statistic is Statistic.POWER:
        middle, spread = length * centre, length * total + epsilon
    else:
        middle = int(values.sum(dtype=np.int64))
        spread = length * total - middle * middle + epsilon
    scale = inverse_root(np.clip(spread, 1, (1 << SPREAD_BITS) - 1), factor)
    return -middle, int(scale) & 0x7FFFFFFF


def row_values(
    op: Op,
    row: npt.NDArray[np.integer],
    table: npt.NDArray[np.int8],
    epsilon: int,
    factor: float,
    bound: int,
    centre: int = 0,
) -> npt.NDArray[np.int32]:
    """Apply an operation of `ROW_OPS` to a row.

    Parameters
    ----------
    row : int[elements]
        Values of int8, at least `bound` of them, which count.
    table : int8[512]
        256 unsigned entries of 16 bits, low byte first.
    epsilon, factor
        The constants E and F.
    centre
        The value about which NORMALISE takes squares.

    Returns
    -------
    int32[elements]
        SOFTMAX: requantised entries. STANDARDISE, NORMALISE: wide results.
    """
    entries = np.ascontiguousarray(table).view(np.uint16).astype(np.int32)
    constants = epsilon, int(np.float32(factor).view(np.int32))
    values, valid = row.astype(np.int32), np.arange(row.size) < bound
    if op is Op.SOFTMAX:
        bias, _ = row_parameters(Statistic.MAXIMUM, values[valid], values, 0, constants)
        places = quantise_output(values + np.int32(bias or 0), None, BYTE_MIDDLE)
        found = np.where(valid, entries[places.astype(np.int32) + 128], 0)
        _, pattern = row_parameters(Statistic.SUM, values[valid], found[valid], 0, constants)
        scale = np.uint32(pattern or 0).view(np.float32)
        return requantise(found, scale)
    statistic = Statistic.VARIANCE if op is Op.STANDARDISE else Statistic.POWER
    squares = entries[values[valid] + 128]
    bias, pattern = row_parameters(statistic, values[valid], squares, centre, constants)
    return wide(bound * values + np.int32(bias or 0), np.uint32(pattern or 0).view(np.float32))


# Reciprocals ------------------------------------------------------------------------------------


def reciprocal(values: npt.ArrayLike, factor: int) -> Bits:
    """`factor / values` as the pattern of a binary32 number; its exponent may leave 8 bits.

    Parameters
    ----------
    values : int64[...]
        From 1, at most SUM_BITS bits.
    factor
        Pattern of a positive binary32 number, of which the upper SIGNIFICANT_BITS bits count.
    """
    return _scaled(_looked_up(values, SUM_BITS, 1), factor)


def inverse_root(values: npt.ArrayLike, factor: int) -> Bits:
    """`factor / sqrt(values)` likewise, from positive values of SPREAD_BITS bits."""
    return _scaled(_looked_up(values, SPREAD_BITS, 2), factor)


def factor_pattern(factor: float) -> int:
    """Round a positive factor to SIGNIFICANT_BITS bits, as a binary32 pattern."""
    fraction, power = np.frexp(factor)
    significand = round(float(fraction) * (1 << SIGNIFICANT_BITS))
    carry = significand >> SIGNIFICANT_BITS  # 1 if it was rounded up to a power of two
    kept = (significand >> carry) - (1 << (SIGNIFICANT_BITS - 1))
    return int(power + carry + EXPONENT_BIAS - 1) << 23 | kept << _DROPPED_BITS


def _looked_up(values: npt.ArrayLike, bits: int, octaves: int) -> tuple[Bits, Bits]:
    """Read `entries` for positive integers `v * 2**(octaves * e)`, 1 <= v < 2**octaves.

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
    table = entries(octaves)
    fall = (table[cell] - table[cell + 1]) * rest >> INTERPOLATION_BITS
    return (1 << (SIGNIFICANT_BITS - 1)) + table[cell] - fall, leading // octaves


@cache
def entries(octaves: int) -> Bits:
    """Significands of 2/v (one octave) or 2/sqrt(v) (two) without their leading one."""
    cells = 1 << CELL_BITS
    position = np.arange(octaves * cells + 1)
    points = (1 + position % cells / cells) * 2.0 ** (position // cells)
    fractions = np.rint((2 * points ** (-1 / octaves) - 1) * 2.0 ** (SIGNIFICANT_BITS - 1))
    return np.minimum(fractions, (1 << (SIGNIFICANT_BITS - 1)) - 1).astype(np.int64)


def _scaled(found: tuple[Bits, Bits], factor: int) -> Bits:
    """Multiply the reciprocals of `_looked_up` by a constant."""
    significand, exponent = found
    leading = 1 << (SIGNIFICANT_BITS - 1)
    product = significand * (leading | (factor & 0x7FFFFF) >> _DROPPED_BITS)
    double = product >> (2 * SIGNIFICANT_BITS - 1)
    kept = product >> (SIGNIFICANT_BITS - 1 + double)
    return (factor >> 23) - 1 - exponent + double << 23 | kept - leading << _DROPPED_BITS

"""The steps of integer meanings: each one is one stage of hardware, with the widths it has there.

The wide result, the tables and the sums work on all lanes of VECTOR; the reciprocals work once a
row. Everything that is not listed here (products, biases, requantising) is VECTOR as it stands.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..numbers import EXPONENT_BIAS, check_scale
from ..row_statistics import factor_pattern, inverse_root, reciprocal, wide

INDEX_BITS = 10
"""A table has 2**INDEX_BITS entries of 16 bits."""

INDEX_SHIFT = 8
"""Bits of a wide result below its index: 18 bits less INDEX_BITS."""

_HALF = 1 << (INDEX_BITS - 1)

Table = npt.NDArray[np.int16 | np.uint16]
"""1024 entries; an instruction says whether they have a sign."""

# On all lanes -----------------------------------------------------------------------------------


def look_up(wides: npt.ArrayLike, table: Table) -> npt.NDArray[np.int32]:
    """Map wide results through a table of 1024 entries: the index is their 10 upper bits.

    Parameters
    ----------
    wides : int32[...]
        Results of `wide`. An interval of the table is 1/2 in the units of `totals * scale`.
    table : int16[1024] or uint16[1024]
        Entry `i + 512` is for the interval from i/2 to (i + 1)/2; see `integer_table`.
    """
    return table[(np.asarray(wides) >> INDEX_SHIFT) + _HALF].astype(np.int32)


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
    return _as_scale(reciprocal(sums, factor_pattern(factor)))


def inverse_root_scale(spreads: npt.ArrayLike, factor: float) -> npt.NDArray[np.float32]:
    """Compute `factor / sqrt(spreads)` likewise, from positive values of SPREAD_BITS bits."""
    return _as_scale(inverse_root(spreads, factor_pattern(factor)))


def _as_scale(pattern: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Values of binary32 patterns whose exponents may leave the range, which is refused."""
    significand = (pattern & 0x7FFFFF | 1 << 23).astype(np.float64)
    scale = np.ldexp(significand, (pattern >> 23) - EXPONENT_BIAS - 23)
    check_scale(scale, "scale of a row")
    return scale.astype(np.float32)

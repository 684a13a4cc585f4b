"""The steps of integer meanings: each one is one stage of hardware, with the widths it has there.

The wide result, the tables and the sums work on all lanes of VECTOR; the reciprocals work once a
row. Everything that is not listed here (products, biases, requantising) is VECTOR as it stands.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..laws import ARRAYS, evaluate
from ..numbers import EXPONENT_BIAS, check_scale
from ..row_statistics import factor_pattern, inverse_root, reciprocal, wide
from ..vector_operations import Operation

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

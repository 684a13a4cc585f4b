"""The machine's arithmetic: NumPy definitions of requantising, saturating and clamping.

`requantise` is ONNX's QLinear rounding, written with binary32 arithmetic; the hardware has no
floating point and computes `requantise_integer`. Both give the same value for *every* int32
accumulator and *every* 32-bit pattern of the scale, so even a program that loads garbage into the
parameter memory has one meaning. `check_scale` accepts the scales that a compiler may use.
"""

import numpy as np
import numpy.typing as npt

from ..errors import IsaError

INT8_MIN = -128
INT8_MAX = 127

SATURATED = 256
"""Largest magnitude `requantise` returns: with any int8 zero point added, it is outside int8."""

EXACT_BITS = 24
"""Bits of a binary32 significand: smaller accumulator magnitudes convert without rounding."""

EXACT_LIMIT = 1 << EXACT_BITS
"""Accumulators at or beyond +-EXACT_LIMIT saturate, whatever the scale."""

EXPONENT_BIAS = 127
"""Bias of a binary32 exponent field."""

FRACTION_BITS = 25
"""Fraction bits that decide the rounding: down to half a binary32 step of 0.5 (2**-25)."""

SATURATING_EXPONENT = 135
"""Biased scale exponent (a scale of 256) from which every accumulator but 0 saturates."""

PRODUCT_ZEROS = FRACTION_BITS + SATURATING_EXPONENT - 1 - EXPONENT_BIAS - (EXACT_BITS - 1)
"""Zero bits below the product of significands that make every alignment a right shift."""

VANISHING_SHIFT = 33
"""Alignment from which every product is below 1/2, so that it rounds to 0."""


def check_scale(scale: npt.ArrayLike, where: str = "scale") -> None:
    """Reject scales that a program may not use.

    Parameters
    ----------
    scale : float32[...]
        Requantisation scales.
    where : str
        Owner of the scales, for the message.

    Raises
    ------
    IsaError
        If a scale is not a positive, finite, normal binary32 number.
    """
    values = np.asarray(scale)
    with np.errstate(over="ignore", under="ignore"):
        narrow = values.astype(np.float32)
    smallest = np.finfo(np.float32).smallest_normal
    wrong = ~((narrow >= smallest) & np.isfinite(narrow))
    if np.any(wrong):
        position = int(np.flatnonzero(wrong.ravel())[0])
        raise IsaError(
            f"{where}: element `{position}` is `{values.ravel()[position]}`, expected a positive, "
            f"finite, normal binary32 number (at least `{smallest:.8e}`); rescale the tensor"
        )


def requantise(accumulators: npt.ArrayLike, scale: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Scale accumulators and round to integers as IEEE-754 binary32 does, saturating at +-256.

    The value is `round_half_even(float32(float32(accumulator) * scale))`, limited to
    -SATURATED..SATURATED, so that adding an int8 zero point and saturating to int8 gives what
    ONNX's QLinearConv gives. It is total:

    * accumulators of magnitude 2**24 or more give +-SATURATED by the sign of the product, which
      equals the IEEE value whenever the scale is at least 2**-16;
    * infinite and NaN scales count as +-2**127 (0 stays 0, all else saturates).

    Parameters
    ----------
    accumulators : int32[...]
        Sums, bias included.
    scale : float32[...]
        Multipliers, broadcast against `accumulators`.

    Returns
    -------
    int32[...]
        Values before the zero point is added.

    Notes
    -----
    Source: ONNX operators QLinearConv and QuantizeLinear (round half to even, saturate);
    IEEE 754-2019 sections 4.3.1 and 5.4.1 for the two roundings.
    """
    values = np.asarray(accumulators, dtype=np.int32)
    factors = np.asarray(scale, dtype=np.float32)
    finite = np.isfinite(factors)
    if not finite.all():
        factors = np.where(finite, factors, np.copysign(np.float32(2.0**127), factors))
    with np.errstate(over="ignore", under="ignore"):
        product = values.astype(np.float32) * factors
    rounded = np.clip(np.rint(product), -SATURATED, SATURATED).astype(np.int32)
    inexact = (values >= EXACT_LIMIT) | (values <= -EXACT_LIMIT)
    if inexact.any():
        negative = (values < 0) ^ np.signbit(factors)
        limit = np.where(negative, np.int32(-SATURATED), np.int32(SATURATED))
        rounded = np.where(inexact, limit, rounded)
    return rounded


def requantise_integer(accumulators: npt.ArrayLike, scale: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Compute `requantise` with integer arithmetic only; the hardware is proved equal to it.

    The exact 48-bit product of the magnitude and the significand is aligned to FRACTION_BITS
    fraction bits and rounded by `round_twice`.

    Parameters
    ----------
    accumulators : int32[...]
        Sums, bias included.
    scale : float32[...]
        Multipliers, broadcast against `accumulators`; any bit pattern.

    Returns
    -------
    int32[...]
        The same values as `requantise`.
    """
    values = np.asarray(accumulators, dtype=np.int32).astype(np.int64)
    pattern = np.asarray(scale, dtype=np.float32).view(np.uint32).astype(np.int64)
    values, pattern = np.broadcast_arrays(values, pattern)
    exponent = (pattern >> 23) & 0xFF
    significand = (1 << 23) | (pattern & 0x7FFFFF)
    magnitude = np.abs(values)

    product = (magnitude & (EXACT_LIMIT - 1)) * significand << PRODUCT_ZEROS
    shift = np.clip(SATURATING_EXPONENT - 1 - exponent, 0, VANISHING_SHIFT)
    aligned = product >> shift
    sticky = ((aligned << shift) != product).astype(np.int64)
    rounded = round_twice(aligned, sticky)
    saturates = (magnitude >= EXACT_LIMIT) | (aligned >> FRACTION_BITS >= SATURATED)
    saturates |= (exponent >= SATURATING_EXPONENT) & (magnitude != 0)
    rounded = np.where(saturates, SATURATED, rounded)
    negative = (values < 0) ^ (pattern >> 31 == 1)
    return np.where(negative, -rounded, rounded).astype(np.int32)


def round_twice(
    aligned: npt.NDArray[np.int64], sticky: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Round to the binary32 grid and the result to an integer, both half to even, in one step.

    The integer part has w significant bits, so half a binary32 step is 2**w units of the fraction.
    The first rounding moves the threshold of rounding up away from one half by that much: down to
    1/2 - 2**w for an odd integer part, where a tie goes up; to just beyond 1/2 + 2**w for an even
    one.

    Parameters
    ----------
    aligned : int64[...]
        Values below SATURATED with FRACTION_BITS fraction bits.
    sticky : int64[...]
        1 where the value lies above `aligned` by less than a unit, else 0.
    """
    whole = aligned >> FRACTION_BITS
    fraction = ((aligned & ((1 << FRACTION_BITS) - 1)) << 1) | sticky
    width = np.sum([(whole >> bit) != 0 for bit in range(SATURATED.bit_length() - 1)], axis=0)
    half = 1 << (FRACTION_BITS - 1)
    step = 1 << width
    threshold = np.where(whole & 1, (half - step) << 1, ((half + step) << 1) | 1)
    return whole + (fraction >= threshold)


def saturate8(values: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Limit integers to -128..127 and return them as int8[...] of the same shape."""
    return np.clip(np.asarray(values), INT8_MIN, INT8_MAX).astype(np.int8)


def int8_terms(numbers: npt.NDArray[np.integer]) -> list[npt.NDArray[np.int8]]:
    """Return arrays of int8 whose sum is an array of signed integers, as few as possible."""
    terms = []
    while not terms or numbers.any():
        terms.append(np.clip(numbers, INT8_MIN, INT8_MAX).astype(np.int8))
        numbers = numbers - terms[-1]
    return terms


def quantise_output(
    totals: npt.ArrayLike,
    scale: npt.ArrayLike | None,
    zero_point: int,
    low: int = INT8_MIN,
    high: int = INT8_MAX,
) -> npt.NDArray[np.int8]:
    """Turn int32 totals into int8: requantise, add the zero point, saturate, clamp.

    Parameters
    ----------
    totals : int32[...]
        Sums, bias included.
    scale : float32[...] or None
        Multipliers, broadcast against `totals`; None takes the totals as they are.
    zero_point : int
        Added to the scaled totals without wrapping, -128..127.
    low, high : int
        Clamp after saturating, each -128..127; `high` wins where `low` is above it.

    Returns
    -------
    int8[...]
        `min(max(saturate8(q + zero_point), low), high)`.
    """
    if scale is None:
        scaled = np.clip(np.asarray(totals, dtype=np.int32), -SATURATED, SATURATED)
    else:
        scaled = requantise(totals, scale)
    shifted = np.clip(scaled + np.int32(zero_point), INT8_MIN, INT8_MAX)
    return np.minimum(np.maximum(shifted, low), high).astype(np.int8)

"""Rounding as the hardware does it and as IEEE-754 says, on numbers, on terms and on hardware.

The functions are written once and mean the same on Python's integers, on z3's terms and on
Amaranth's values, so that a proof about terms is a proof about what the block is compared with.
"""

import z3
from amaranth.hdl import Const, Mux

from tilewright.isa.numbers import (
    EXACT_BITS,
    EXPONENT_BIAS,
    FRACTION_BITS,
    PRODUCT_ZEROS,
    SATURATED,
)

PRODUCT_BITS = 2 * EXACT_BITS


class Integers:
    """Python's integers; `Hardware` and `Terms` have the same operators on other values."""

    @staticmethod
    def mux(condition, one, other):
        """Choose; a condition is the result of a comparison."""
        return one if condition else other

    @staticmethod
    def const(value: int):
        """Make a number."""
        return value


class Hardware(Integers):
    """Amaranth's values."""

    mux = staticmethod(Mux)
    const = staticmethod(Const)


class Terms(Integers):
    """z3's bit vectors, wide enough that nothing overflows or is negative."""

    BITS = 64
    mux = staticmethod(z3.If)

    @staticmethod
    def const(value: int):
        """Make a number."""
        return z3.BitVecVal(value, Terms.BITS)


def round_product(kind: type[Integers], product, shift):
    """Align a product of significands and round it, as `isa.numbers.requantise_integer` does.

    Parameters
    ----------
    kind
        What the operands are.
    product
        Of the magnitude of a total below 2**24 and a significand.
    shift
        `SATURATING_EXPONENT` - 1 less the biased exponent of the scale, limited to
        0..`VANISHING_SHIFT`.

    Returns
    -------
    0..SATURATED
    """
    return round_aligned(kind, *align(kind, product, shift))


def align(kind: type[Integers], product, shift) -> tuple:
    """Return the value with `FRACTION_BITS` fraction bits, and 1 if any bit was dropped, else 0."""
    wide = product << PRODUCT_ZEROS
    dropped = wide & ((kind.const(1) << shift) - 1)
    return wide >> shift, kind.mux(dropped != 0, kind.const(1), kind.const(0))


def round_aligned(kind: type[Integers], aligned, sticky):
    """Round to the binary32 grid and to an integer at once: `isa.numbers.round_twice`."""
    one, zero = kind.const(1), kind.const(0)
    whole = aligned >> FRACTION_BITS
    fraction = ((aligned & ((1 << FRACTION_BITS) - 1)) << 1) | sticky
    width = zero
    for bit in range(SATURATED.bit_length() - 1):
        width = width + kind.mux((whole >> bit) != 0, one, zero)
    # Only of use below 256, where the width is at most 8.
    step, half = one << width, 1 << (FRACTION_BITS - 1)
    odd = (whole & 1) == 1
    threshold = kind.mux(odd, (half - step) << 1, ((half + step) << 1) + 1)
    rounded = whole + kind.mux(fraction >= threshold, one, zero)
    return kind.mux(whole >= SATURATED, kind.const(SATURATED), rounded)


def round_twice(kind: type[Integers], product, binade: int, exponent: int):
    """Round as IEEE-754 says: the product to 24 significant bits, the result to an integer.

    Parameters
    ----------
    product
        In 2**binade..2**(binade + 1) - 1.
    exponent
        Biased exponent of the scale: the value is product * 2**(exponent - 150).

    Returns
    -------
    0..SATURATED
        Saturated.
    """
    significant = round_half_even(kind, product, max(0, binade + 1 - EXACT_BITS))
    weight = exponent - EXPONENT_BIAS - (EXACT_BITS - 1)
    if weight >= 0:
        value = significant << weight
    else:
        value = round_half_even(kind, significant, -weight) >> -weight
    return kind.mux(value >= SATURATED, kind.const(SATURATED), value)


def round_half_even(kind: type[Integers], value, bits: int):
    """Round to a multiple of 2**bits. Source: IEEE 754-2019, section 4.3.1."""
    if bits == 0:
        return value
    unit, low = 1 << bits, value & ((1 << bits) - 1)
    down = value - low
    odd = (down & unit) != 0
    up = kind.mux(odd, kind.const(unit // 2), kind.const(unit // 2 + 1)) <= low
    return kind.mux(up, down + unit, down)

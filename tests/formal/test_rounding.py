"""The integer arithmetic of the requantizer is the two roundings of IEEE-754 binary32.

The proof is formal for all products of a binade, and exhaustive over the binades and the exponents
of scales. The NumPy definitions are compared with the same functions on dense samples.
"""

import numpy as np
import pytest
import z3

from tilewright.isa import numbers
from tilewright.isa.numbers import (
    EXACT_BITS,
    EXACT_LIMIT,
    EXPONENT_BIAS,
    SATURATED,
    SATURATING_EXPONENT,
    VANISHING_SHIFT,
)

from .rounding import PRODUCT_BITS, Integers, Terms, round_half_even, round_product, round_twice


def refute(*conditions) -> None:
    """Require that no product meets all conditions."""
    solver = z3.SolverFor("QF_BV")
    solver.add(any_product >= 0, any_product < 1 << PRODUCT_BITS, *conditions)
    assert solver.check() == z3.unsat, solver.model()


any_product = z3.BitVec("product", Terms.BITS)
LEAST = SATURATING_EXPONENT - 1 - VANISHING_SHIFT
"""Largest biased exponent of a scale that makes every product less than 1/2."""


@pytest.mark.parametrize("part", range(2))
def test_one_comparison_rounds_as_two_roundings_of_binary32(part):
    for exponent in range(LEAST + part, SATURATING_EXPONENT, 2):
        shift = SATURATING_EXPONENT - 1 - exponent
        ours = round_product(Terms, any_product, Terms.const(shift))
        # Both roundings are monotone: what lies below 1/2 gives 0, what lies above 256 saturates.
        point = 150 - exponent
        half, most = max(0, point - 1), min(PRODUCT_BITS, point + 8)
        refute(any_product < 1 << half, ours != 0)
        refute(any_product >= 1 << most, ours != SATURATED)
        for binade in range(half, most):
            inside = (any_product >= 1 << binade, any_product < 1 << (binade + 1))
            refute(*inside, ours != round_twice(Terms, any_product, binade, exponent))


def test_what_vanishes_is_below_a_half_and_what_saturates_is_not():
    # Below: the largest product is less than 1/2, so that both roundings give 0.
    assert (1 << PRODUCT_BITS) * 2.0 ** (LEAST - 150) <= 0.5
    refute(round_product(Terms, any_product, Terms.const(VANISHING_SHIFT)) != 0)
    # Above: the smallest product but 0 has a total of 1 and a significand of 2**23.
    assert (1 << (EXACT_BITS - 1)) * 2.0 ** (SATURATING_EXPONENT - 150) >= SATURATED


def test_a_total_that_is_not_scaled_stays_as_it_is():
    shift = Terms.const(SATURATING_EXPONENT - 1 - EXPONENT_BIAS)
    total = any_product >> (EXACT_BITS - 1)
    kept = z3.If(total >= SATURATED, Terms.const(SATURATED), total)
    refute(
        any_product == total << (EXACT_BITS - 1), round_product(Terms, any_product, shift) != kept
    )


def test_the_proof_of_rounding_can_fail():
    product = any_product
    solver = z3.Solver()
    solver.add(product >= 1 << 40, product < 1 << 41)
    once = round_half_even(Terms, product, 30) >> 30
    solver.add(once != round_twice(Terms, product, 40, 120))
    assert solver.check() == z3.sat
    found = int(str(solver.model().eval(product)))
    assert round_half_even(Integers, found, 30) >> 30 != round_twice(Integers, found, 40, 120)


@pytest.mark.parametrize("binade", range(EXACT_BITS, PRODUCT_BITS))
def test_the_first_rounding_is_the_one_of_the_floating_point_theory(binade):
    product = z3.BitVec("product", Terms.BITS)
    solver = z3.Solver()
    solver.add(product >= 1 << binade, product < 1 << (binade + 1))
    theirs = z3.fpUnsignedToFP(z3.RNE(), product, z3.Float32())
    ours = round_half_even(Terms, product, binade + 1 - EXACT_BITS)
    solver.add(z3.fpToUBV(z3.RTZ(), theirs, z3.BitVecSort(Terms.BITS)) != ours)
    assert solver.check() == z3.unsat


def test_the_numpy_definitions_are_the_same_functions():
    rng = np.random.default_rng(5)
    for exponent in range(LEAST - 1, SATURATING_EXPONENT + 1):
        totals = rng.integers(1, EXACT_LIMIT, 100) >> rng.integers(0, EXACT_BITS, 100)
        patterns = exponent << (EXACT_BITS - 1) | rng.integers(0, 1 << (EXACT_BITS - 1), 100)
        scales = patterns.astype(np.uint32).view(np.float32)
        shift = min(max(SATURATING_EXPONENT - 1 - exponent, 0), VANISHING_SHIFT)
        ours = []
        for total, pattern in zip(totals.tolist(), patterns.tolist(), strict=True):
            product = total * (pattern % (1 << (EXACT_BITS - 1)) + (1 << (EXACT_BITS - 1)))
            saturates = exponent >= SATURATING_EXPONENT and total != 0
            ours.append(SATURATED if saturates else round_product(Integers, product, shift))
            if LEAST < exponent < SATURATING_EXPONENT and total:
                binade = product.bit_length() - 1
                assert ours[-1] == round_twice(Integers, product, binade, exponent)
        np.testing.assert_array_equal(ours, numbers.requantise_integer(totals, scales))
        np.testing.assert_array_equal(ours, numbers.requantise(totals, scales))

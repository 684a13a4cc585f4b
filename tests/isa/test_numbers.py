"""The float definition, the integer model and plain big-number arithmetic agree on every value."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.isa import numbers

INT32 = st.integers(-(2**31), 2**31 - 1)
CORNER_TOTALS = np.array(
    [0, 1, 2, 3, 255, 256, 257, 2**23, 2**24 - 2, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1], np.int64
)
CORNER_FRACTIONS = np.array([0, 1, 2, 3, 2**22 - 1, 2**22, 2**22 + 1, 2**23 - 2, 2**23 - 1])


def scales_from(patterns) -> np.ndarray:
    """Reinterpret 32-bit patterns as float32."""
    return np.asarray(patterns, np.uint32).view(np.float32)


def assert_models_agree(totals: np.ndarray, scales: np.ndarray) -> int:
    """Compare both models on every pair and return how many there were."""
    totals = np.clip(totals, -(2**31), 2**31 - 1).astype(np.int32)
    defined = numbers.requantise(totals, scales)
    computed = numbers.requantise_integer(totals, scales)
    wrong = np.argwhere(defined != computed)
    if wrong.size:
        at = tuple(wrong[0])
        total, scale = (part[at] for part in np.broadcast_arrays(totals, scales))
        pytest.fail(f"{total} * {float(scale).hex()}: {defined[at]}, not {computed[at]}")
    return defined.size


def near_ties(rng: np.random.Generator, exponent: int, pairs: int):
    """Pairs whose exact product lies within a few binary32 steps of an odd multiple of 1/2."""
    target = (rng.integers(0, 300, pairs) + 0.5) * 2.0 ** (150 - exponent)
    totals = np.exp2(rng.uniform(np.log2(target) - 24, np.log2(target) - 23))
    totals = np.clip(np.rint(totals), 1, 2**24 - 1)
    significands = np.clip(np.rint(target / totals) + rng.integers(-1, 2, pairs), 2**23, 2**24 - 1)
    scales = scales_from(exponent << 23 | significands.astype(np.int64) & 0x7FFFFF)
    return (totals * rng.choice([-1, 1], pairs)).astype(np.int64), scales


def sweep(exponents, significands: int, totals: int, near: int) -> int:
    """Compare the models over scales of the given exponents; return the number of pairs."""
    rng = np.random.default_rng(20)
    pairs = 0
    for exponent in exponents:
        fractions = np.concatenate([CORNER_FRACTIONS, rng.integers(0, 2**23, significands)])
        signs = rng.integers(0, 2, fractions.size) << 31
        scales = scales_from(signs | exponent << 23 | fractions)
        sizes = rng.integers(0, 2**31, totals) >> rng.integers(0, 31, totals)
        values = np.concatenate([CORNER_TOTALS, sizes])
        values = np.concatenate([values, -values, [-(2**31)]])
        pairs += assert_models_agree(values[:, None], scales[None, :])
        if 103 <= exponent <= 135:
            pairs += assert_models_agree(*near_ties(rng, exponent, near))
    return pairs


def test_integer_model_is_the_definition_for_scales_of_every_exponent():
    assert sweep(range(256), significands=20, totals=60, near=5_000) > 1_000_000


@pytest.mark.slow
def test_integer_model_is_the_definition_for_a_dense_set_of_scales():
    pairs = sweep(range(96, 141), significands=1_000, totals=400, near=500_000)
    assert pairs > 50_000_000


def test_near_ties_come_close_enough_to_test_double_rounding():
    totals, scales = near_ties(np.random.default_rng(3), 120, 10_000)
    product = np.abs(totals.astype(np.float64) * scales)
    rounded_once = np.rint(product)
    rounded_twice = np.abs(numbers.requantise(totals, scales))
    differs = (rounded_once != rounded_twice) & (product < 256)
    assert differs.sum() > 500


def test_one_comparison_does_both_roundings_for_every_aligned_value():
    """Exhaustive: rounding is monotonic, so only the surroundings of the threshold matter.

    Values are counted in quarters of a unit of `aligned`, so that a sticky bit is one quarter.
    """
    unit, half = 4, 1 << (numbers.FRACTION_BITS - 1)
    for whole in range(numbers.SATURATED):
        width = whole.bit_length()
        offsets = np.arange(-(4 << width), (4 << width) + 1)
        fractions = np.concatenate([[0], half + offsets, [2 * half - 1]])
        aligned, sticky = np.meshgrid((2 * half * whole) + fractions, [0, 1])
        exact = aligned * unit + sticky
        step = np.full(exact.shape, unit << (width + 1))
        if whole == 0:  # 1/4..1/2 has twice as fine a grid; smaller values round to 0 anyway
            step = np.where(aligned < half, unit, 2 * unit)
        twice = nearest_even(nearest_even(exact, step) * step, unit * 2 * half)
        np.testing.assert_array_equal(numbers.round_twice(aligned, sticky), twice)


def nearest_even(values: np.ndarray, step: np.ndarray | int) -> np.ndarray:
    """Return `values / step` rounded half to even."""
    quotient, remainder = np.divmod(values, step)
    up = (2 * remainder > step) | ((2 * remainder == step) & (quotient % 2 == 1))
    return quotient + up


@given(INT32, st.integers(0, 2**32 - 1))
@example(-(2**31), 0x3F800000)
@example(2**24, 0x00000000)
@example(0, 0x7FC00000)
@example(1, 0xFF800000)
def test_models_agree_on_every_accumulator_and_bit_pattern(total, pattern):
    assert_models_agree(np.array([total]), scales_from([pattern]))


def round_half_even(value: Fraction, grid: Fraction) -> Fraction:
    """Round to a multiple of `grid`; Python's own rounding of fractions is half to even."""
    return round(value / grid) * grid


@given(st.integers(-(2**24) + 1, 2**24 - 1), st.integers(96, 140), st.integers(0, 2**23 - 1))
def test_definition_is_two_roundings_of_the_exact_product(total, exponent, fraction):
    scale = Fraction(2**23 + fraction) * Fraction(2) ** (exponent - 150)
    product = total * scale
    if product:
        binade = Fraction(1)
        while binade <= abs(product):
            binade *= 2
        while binade > abs(product):
            binade /= 2
        product = round_half_even(product, binade / 2**23)
    expected = max(-256, min(256, round(product)))
    assert numbers.requantise(total, scales_from(exponent << 23 | fraction)) == expected


@given(INT32, st.integers(-128, 127), st.integers(-128, 127), st.integers(-128, 127))
@example(2**31 - 1, 127, -128, 127)
@example(-(2**31), -128, -128, 127)
@example(200, -100, 50, -50)
def test_unscaled_output_adds_the_zero_point_without_wrapping(total, zero_point, low, high):
    expected = min(max(max(-128, min(127, total + zero_point)), low), high)
    output = numbers.quantise_output(np.int32(total), None, zero_point, low, high)
    assert output.dtype == np.int8
    assert output == expected


def test_scaled_output_is_what_quantizelinear_computes():
    rng = np.random.default_rng(5)
    totals = rng.integers(-40_000, 40_000, (64, 16), np.int32)
    scales = rng.uniform(1e-4, 1e-2, 16).astype(np.float32)
    real = np.rint(totals.astype(np.float32) * scales).astype(np.int64)
    expected = np.clip(np.clip(real - 3, -128, 127), -3, 100)
    np.testing.assert_array_equal(
        numbers.quantise_output(totals, scales, -3, -3, 100), expected.astype(np.int8)
    )


def test_unit_scale_equals_no_scale():
    totals = np.concatenate([np.arange(-300, 300), CORNER_TOTALS, -CORNER_TOTALS])
    np.testing.assert_array_equal(
        numbers.quantise_output(totals, np.float32(1), 7), numbers.quantise_output(totals, None, 7)
    )


def test_large_accumulators_saturate_as_binary32_does_from_two_to_minus_16():
    totals = np.array([2**24, 2**24 + 1, 2**31 - 1, -(2**24), -(2**31)], np.int64)
    for scale in (np.float32(2**-16), np.float32(0.3), np.float32(2**90)):
        exact = np.clip(np.rint(totals.astype(np.float32) * scale), -256, 256)
        np.testing.assert_array_equal(numbers.requantise(totals, scale), exact)


def test_saturate8_limits_to_int8():
    values = np.array([-(2**31), -129, -128, 0, 127, 128, 2**31 - 1])
    limited = numbers.saturate8(values)
    assert limited.dtype == np.int8
    assert limited.tolist() == [-128, -128, -128, 0, 127, 127, 127]


def test_usable_scales_are_accepted():
    numbers.check_scale([1e-30, 0.5, 3e38])
    numbers.check_scale(np.finfo(np.float32).smallest_normal)


@pytest.mark.parametrize("wrong", [0.0, -0.5, np.inf, -np.inf, np.nan, 1e-40, 1e39])
def test_unusable_scale_is_refused_with_its_position(wrong):
    with pytest.raises(IsaError) as refusal:
        numbers.check_scale(np.array([0.5, wrong, 0.25]), "conv `stem`: scale")
    assert str(refusal.value) == (
        f"conv `stem`: scale: element `1` is `{wrong}`, expected a positive, finite, normal "
        "binary32 number (at least `1.17549435e-38`); rescale the tensor"
    )

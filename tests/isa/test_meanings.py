"""Integer meanings stay within their widths and close to the float definitions."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.isa import meanings
from tilewright.isa.meanings import cells, steps
from tilewright.isa.numbers import EXACT_LIMIT, requantise
from tilewright.isa.row_statistics import wide

TOTALS = st.integers(-(2**31), 2**31 - 1)
PATTERNS = st.integers(0x20000000, 0x4FFFFFFF)


def scale_of(pattern: int) -> np.float32:
    return np.uint32(pattern).view(np.float32)


# Steps ------------------------------------------------------------------------------------------


@given(TOTALS, PATTERNS, st.booleans())
def test_a_wide_result_is_the_truncated_product_and_a_one(total, pattern, negative):
    scale = -scale_of(pattern) if negative else scale_of(pattern)
    exact = abs(Fraction(total) * Fraction(float(scale))) * 256
    kept = 65535 if abs(total) >= 2**24 else min(int(exact), 65535)
    expected = (2 * kept + 1) * (-1 if (total < 0) != negative else 1)
    assert int(wide(total, scale)) == expected


@given(st.integers(-(2**24) + 1, 2**24 - 1), PATTERNS)
def test_a_wide_result_is_as_near_as_rounding_would_bring_it(total, pattern):
    exact = Fraction(total) * Fraction(float(scale_of(pattern)))
    if abs(exact) < 255:
        found = Fraction(int(wide(total, scale_of(pattern))), 512)
        assert abs(found - exact) <= Fraction(1, 512)
        assert abs(found - int(requantise(total, scale_of(pattern)))) <= 1


def test_every_wide_result_has_one_of_1024_places():
    odd = np.arange(-(2**17) + 1, 2**17, 2)
    places = steps.look_up(odd, np.arange(-512, 512).astype(np.int16))
    assert np.array_equal(places, np.floor(odd / 256))
    assert np.array_equal(np.unique(places), np.arange(-512, 512))


def test_a_table_of_integers_is_exact():
    x = np.arange(-255, 256)
    table = steps.integer_table(lambda x: x * 128.0, np.int16)
    assert np.array_equal(steps.look_up(wide(x, 1), table), x * 128)


def spread_integers(bits: int) -> np.ndarray:
    """All small integers, those around powers of two, and random ones of every size."""
    generator = np.random.default_rng(4)
    powers = 2 ** np.arange(1, bits, dtype=np.int64)
    drawn = generator.integers(1, 2**bits, 200_000) >> generator.integers(0, bits - 1, 200_000)
    near = [powers - 1, powers, powers + 1, [2**bits - 1]]
    return np.unique(np.concatenate([np.arange(1, 1 << 17), *near, np.maximum(drawn, 1)]))


@pytest.mark.parametrize("factor", [1.0, 256.0, 37.123, 1 / 3])
def test_reciprocals_are_right_to_13_bits(factor):
    sums = spread_integers(32)
    error = steps.reciprocal_scale(sums, factor).astype(np.float64) * sums / factor - 1
    assert np.abs(error).max() < 8e-5


@pytest.mark.parametrize("factor", [1.0, 4729.0])
def test_inverse_roots_are_right_to_14_bits(factor):
    spreads = spread_integers(40)
    found = steps.inverse_root_scale(spreads, factor).astype(np.float64)
    assert np.abs(found * np.sqrt(spreads.astype(np.float64)) / factor - 1).max() < 4e-5


def test_scales_of_rows_have_18_significant_bits():
    sums = spread_integers(32)
    for scales in (steps.reciprocal_scale(sums, 77.7), steps.inverse_root_scale(sums, 77.7)):
        assert not np.any(scales.view(np.uint32) & 0x3F)


@pytest.mark.parametrize("sums", [0, -1, 1 << 32])
def test_statistics_beyond_their_width_are_refused(sums):
    with pytest.raises(IsaError, match=re.escape("row statistics: expected integers from 1 to ")):
        steps.reciprocal_scale(sums, 1.0)


# Softmax ----------------------------------------------------------------------------------------


def test_softmax_of_the_longest_equal_rows_fits_32_bits():
    row = np.full((1, 1 << 16), 127, np.int8)
    assert not meanings.softmax(row, 0.1, 2.0**-10, 0).any()
    assert (meanings.softmax(row, 0.1, 2.0**-22, 0) == 64).all()


def test_softmax_refuses_rows_whose_sum_may_not_fit():
    with pytest.raises(IsaError, match="softmax: 65537 keys; expected 1 to 65536"):
        meanings.softmax(np.zeros((1, (1 << 16) + 1), np.int8), 0.1, 1 / 256, -128)


def test_a_row_without_a_valid_key_is_refused():
    with pytest.raises(IsaError, match="row statistics"):
        meanings.softmax(np.zeros((2, 8), np.int8), 0.1, 1 / 256, -128, np.array([8, 0]))


def test_one_key_takes_all():
    x = np.arange(-128, 128).astype(np.int8)[:, None]
    assert (meanings.softmax(x, 0.2, 1 / 256, -128) == 127).all()


def test_masked_keys_do_not_count():
    """Whatever stands beyond the bound, rows are those of the keys before it."""
    generator = np.random.default_rng(2)
    x = generator.integers(-128, 128, (64, 64)).astype(np.int8)
    valid = np.arange(64) + 1
    found = meanings.softmax(x, 0.05, 1 / 256, -128, valid)
    for row, bound in enumerate(valid):
        alone = meanings.softmax(x[row, None, :bound], 0.05, 1 / 256, -128)
        assert np.array_equal(found[row, :bound], alone[0])
        assert (found[row, bound:] == -128).all()


# Norms ------------------------------------------------------------------------------------------


def float_norm(x, gamma, beta, epsilon, centred):
    moved = x - x.mean(-1, keepdims=True) if centred else x
    return moved / np.sqrt(np.square(moved).mean(-1, keepdims=True) + epsilon) * gamma + beta


@given(st.data())
def test_norms_are_off_by_at_most_one_for_any_gamma_and_beta(data):
    channels = data.draw(st.integers(1, 300))
    generator = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    sizes = 10.0 ** generator.uniform(-9, 2, channels)
    gamma = generator.normal(0, 1, channels) * sizes * (generator.random(channels) < 0.9)
    beta = generator.normal(0, 1, channels) * 10.0 ** generator.uniform(-4, 1, channels)
    x = generator.integers(-128, 128, (4, channels)).astype(np.int8)
    x[0] = -128
    x[1, 1:] = x[1, 0]
    x_zero, y_zero = (int(each) for each in generator.integers(-128, 128, 2))
    y_scale = 10.0 ** generator.uniform(-2, 0)
    constants = meanings.norm_constants(gamma, beta, 1e-5, 0.05, y_scale)
    values = (x.astype(np.float64) - x_zero) * 0.05
    for centred in (True, False):
        if centred:
            found = meanings.layer_norm(x, constants, y_zero)
        else:
            found = meanings.rms_norm(x, x_zero, constants, y_zero)
        y = float_norm(values, gamma, beta, 1e-5, centred)
        expected = np.clip(np.rint(y / y_scale) + y_zero, -128, 127)
        # The error of a normalised value, 2**-13 of it, counts where `y_scale` is very fine.
        fine = 1 + np.abs(gamma) * np.sqrt(channels) / y_scale * 2.0**-12
        assert (np.abs(found - expected) <= fine).all()


@pytest.mark.parametrize("channels", [1, 2, 255, 4096])
def test_the_widest_rows_stay_within_their_widths(channels):
    generator = np.random.default_rng(7)
    x = np.where(generator.random((6, channels)) < 0.5, -128, 127).astype(np.int8)
    x[0], x[1], x[2] = -128, 127, -128
    x[2, 0] = 127
    constants = meanings.norm_constants(np.ones(channels), np.zeros(channels), 1e-5, 0.05, 0.5)
    for zero in (-128, 0, 127):
        values = (x.astype(np.float64) - zero) * 0.05
        for centred in (True, False):
            y = float_norm(values, 1, 0, 1e-5, centred)
            if centred:
                found = meanings.layer_norm(x, constants, 0)
            else:
                found = meanings.rms_norm(x, zero, constants, 0)
            assert np.abs(found - np.clip(np.rint(y / 0.5), -128, 127)).max() <= 1


def test_a_norm_of_too_many_channels_is_refused():
    with pytest.raises(IsaError, match="normalisation: 4097 channels; expected 1 to 4096"):
        meanings.norm_constants(np.ones(4097), 0, 1e-5, 0.05, 0.05)


def test_rows_that_are_small_beside_epsilon_are_refused():
    message = "`epsilon` = 1e-05 is 40960000000 in integers, above 2**31 - 1; raise the scale"
    with pytest.raises(IsaError, match=re.escape(message)):
        meanings.norm_constants(np.ones(64), 0, 1e-5, 1e-6, 0.05)


# The others -------------------------------------------------------------------------------------


BYTES = st.integers(-128, 127)


def blended(high: int, low: int, gate: int, increment: int, multiplier: int, zero_point: int):
    state, gates, added = (np.array(each, np.int8) for each in ((high, low), gate, increment))
    return meanings.blend_totals((state[0], state[1]), gates, added, multiplier, zero_point)


@given(BYTES, BYTES, BYTES, BYTES, st.integers(1, cells.MAX_MULTIPLIER), BYTES)
def test_a_step_of_a_state_is_rounded_once(high, low, gate, increment, multiplier, zero_point):
    totals = blended(high, low, gate, increment, multiplier, zero_point)
    assert abs(int(totals)) < EXACT_LIMIT
    exact = Fraction((128 * high + low) * (gate + 128) + (increment - zero_point) * multiplier, 255)
    first, rest = int(meanings.high_byte(totals)), int(meanings.low_byte(totals))
    if abs(exact) < 127 * 128:
        assert abs(128 * first + rest - exact) <= Fraction(1, 2)


def test_an_open_gate_keeps_any_state():
    """A state must not drift where the forget gate is 1 and nothing is added."""
    for value in range(-16320, 16321, 7):
        high = int(np.rint(value / 128))
        totals = blended(high, value - 128 * high, 127, 5, 1000, 5)
        assert 128 * int(meanings.high_byte(totals)) + int(meanings.low_byte(totals)) == value


def test_a_state_saturates_and_recovers():
    high, low = 0, 0
    for _ in range(40):
        totals = blended(high, low, 127, 127, 20000, 0)
        high, low = int(meanings.high_byte(totals)), int(meanings.low_byte(totals))
    assert (high, low) == (127, 127)
    totals = blended(high, low, 0, 0, 20000, 0)
    assert abs(128 * int(meanings.high_byte(totals)) + int(meanings.low_byte(totals)) - 8224) <= 1


def test_the_residual_stream_keeps_16_bits():
    generator = np.random.default_rng(9)
    totals = generator.integers(-(2**20), 2**20, (24, 8, 64)).astype(np.int32)
    scale = (generator.uniform(1, 2, 64) * 2.0**-16).astype(np.float32)
    stream, exact = np.zeros((8, 64), np.int32), np.zeros((8, 64))
    for part in totals:
        stream = meanings.residual_add(stream, part, scale)
        exact += part * scale.astype(np.float64)
    assert np.abs(stream / 512 - exact).max() <= 24 / 512
    found = meanings.residual_bytes(stream, 1 / 512, 1.0, 3)
    assert np.abs(found - np.clip(np.rint(exact) + 3, -128, 127)).max() <= 1

"""Fitted integer constants give the float32 definition's results, and misses are counted."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.graph import QAdd, QAvgPool, Quantisation, evaluate_operator
from tilewright.compiler.graph.fit import (
    add_definition,
    average_definition,
    fit_add,
    fit_average,
)
from tilewright.compiler.graph.operators import Dequantize

points = st.integers(-128, 127)
uneven = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def scale(value: float) -> float:
    return float(np.float32(value))


def all_pairs() -> list[np.ndarray]:
    values = np.arange(-128, 128).astype(np.int8)
    return [
        np.repeat(values, 256).reshape(1, 256, 256, 1),
        np.tile(values, 256).reshape(1, 256, 256, 1),
    ]


@settings(max_examples=40, deadline=None)
@given(uneven, points, points, points, st.sampled_from([1, -1]))
def test_an_add_of_uneven_scales_has_no_mismatch(
    rng: np.random.Generator, za: int, zb: int, zy: int, sign: int
) -> None:
    a = Quantisation(scale(10 ** rng.uniform(-3, 1)), za)
    b = Quantisation(scale(a.scale * 10 ** rng.uniform(-1.5, 1.5)), zb)
    y = Quantisation(scale(max(a.scale, b.scale) * rng.uniform(0.3, 3)), zy)
    fit = fit_add(a, b, y, -100, 120, sign)
    operator = QAdd(fit.multipliers, fit.constant, fit.scale, zy, -100, 120, fit.mismatches)
    got = evaluate_operator(operator, all_pairs()).reshape(256, 256)
    expected = np.clip(add_definition(a, b, y, sign), -100, 120)
    assert np.count_nonzero(got != expected) == fit.mismatches == 0
    assert all(abs(factor) < 2**15 for factor in fit.multipliers)


def test_an_add_full_of_ties_counts_its_mismatches() -> None:
    # Half of all sums lie on a tie here, and float32 rounds them by the noise of its products.
    a, y = Quantisation(scale(0.0313), 3), Quantisation(scale(0.0626), 5)
    fit = fit_add(a, a, y)
    operator = QAdd(fit.multipliers, fit.constant, fit.scale, 5)
    got = evaluate_operator(operator, all_pairs()).reshape(256, 256)
    expected = np.clip(add_definition(a, a, y), -128, 127)
    assert np.count_nonzero(got != expected) == fit.mismatches > 0
    assert np.abs(got - expected).max() == 1


def test_scales_of_powers_of_two_have_no_mismatch() -> None:
    for a, b, y in ((0.5, 0.5, 0.5), (0.25, 0.5, 1.0), (0.125, 0.125, 0.25)):
        assert fit_add(Quantisation(a, 3), Quantisation(b, -7), Quantisation(y, 9)).mismatches == 0


@settings(max_examples=30, deadline=None)
@given(uneven, st.integers(1, 200), points, points)
def test_an_average_misses_as_often_as_it_says(
    rng: np.random.Generator, count: int, zx: int, zy: int
) -> None:
    x = Quantisation(scale(10 ** rng.uniform(-3, 1)), zx)
    y = Quantisation(scale(x.scale * rng.uniform(0.3, 1.5)), zy)
    fit = fit_average(count, x, y)
    sums = np.arange(-128 * count, 127 * count + 1)
    # Windows of one row whose elements add up to each sum.
    base, rest = np.divmod(sums, count)
    rows = (base[:, None] + (np.arange(count) < rest[:, None])).astype(np.int8)
    operator = QAvgPool((1, count), (1, 1), (0, 0, 0, 0), zx, -count * zx, fit.scale, zy)
    got = evaluate_operator(operator, [rows.reshape(1, len(sums), count, 1)]).ravel()
    expected = np.clip(average_definition(sums - count * zx, count, x, y), -128, 127)
    assert np.count_nonzero(got != expected) == fit.mismatches
    assert fit.mismatches <= 1 + len(sums) // 1000
    assert np.abs(got - expected).max() <= 1


@pytest.mark.parametrize("count", [3, 25, 49, 125])
def test_an_average_of_an_odd_count_in_one_scale_has_no_mismatch(count: int) -> None:
    same = Quantisation(scale(0.0802), -128)
    assert fit_average(count, same, same).mismatches == 0


def test_the_largest_scales_warn_of_nothing() -> None:
    """ONNX Runtime's quantiser gives masks of -inf such scales."""
    largest, usual = Quantisation(float(np.finfo(np.float32).max), 0), Quantisation(0.1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_add(usual, largest, largest)
        found = Dequantize((largest.scale,), (0,)).compute(np.array([-128, 0], np.int8))
    assert found.tolist() == [-np.inf, 0]

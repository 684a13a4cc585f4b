"""Streaming histograms: the same whatever the batches, and honest about what they saw."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.compiler.quantiser.histogram import Histogram, merge
from tilewright.errors import InputError

NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.integers(1, 60))
def test_batches_make_no_difference(values: list[float], cut: int) -> None:
    data = np.array(values, dtype=np.float32)
    whole, parts = Histogram("whole", 64), Histogram("parts", 64)
    whole.add(data)
    for first in range(0, len(data), cut):
        parts.add(data[first : first + cut])
    assert (whole.low, whole.high, whole.total) == (parts.low, parts.high, parts.total)
    # A first batch of one value says nothing of the width: it may end one step finer or wider.
    ratio = math.log2(whole.width / parts.width)
    assert ratio == int(ratio)
    assert np.isclose(whole.sums.sum(), parts.sums.sum(), rtol=1e-9, atol=1e-3)


@given(st.lists(NUMBERS, min_size=2, max_size=60))
@example([-4097.0, -1e-43])
@example([3968.0, -1e-43])
def test_every_value_is_in_its_bin(values: list[float]) -> None:
    data = np.array(values, dtype=np.float32)
    histogram = Histogram("x", 32)
    for value in data:
        histogram.add(value)
    assert len(histogram.counts) <= 32
    edges = (histogram.first + np.arange(len(histogram.counts) + 1)) * histogram.width
    expected, _ = np.histogram(data.astype(np.float64), bins=edges)
    # NumPy closes the last bin; here the largest value is always strictly inside.
    np.testing.assert_array_equal(histogram.counts, expected)


def test_quantiles_lie_within_a_bin_of_the_true_ones() -> None:
    data = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    histogram = Histogram("x")
    histogram.add(data)
    for share in (0.001, 0.5, 0.999):
        assert abs(histogram.quantile(share) - np.quantile(data, share)) <= 2 * histogram.width


def test_zeros_ahead_leave_the_bins_narrow() -> None:
    """The first state of a network that keeps one is zero."""
    histogram = Histogram("state", 64)
    histogram.add(np.zeros(10, np.float32))
    histogram.add(np.linspace(-0.5, 0.5, 100, dtype=np.float32))
    assert 16 <= len(histogram.counts) <= 64
    assert histogram.total == 110


def test_merging_keeps_counts_extremes_and_sums() -> None:
    random = np.random.default_rng(1)
    parts = [Histogram("a"), Histogram("b"), Histogram("nothing")]
    parts[0].add(random.uniform(-1, 1, 500))
    parts[1].add(random.uniform(0, 40, 300))
    merged = merge("all", parts)
    assert (merged.low, merged.high) == (parts[0].low, parts[1].high)
    assert merged.total == 800
    assert merged.sums.sum() == pytest.approx(parts[0].sums.sum() + parts[1].sums.sum())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"calibration: value `x`: expected finite numbers, got"):
        Histogram("x").add(np.array([1.0, value]))


def test_nothing_and_zeros_are_fine() -> None:
    histogram = Histogram("x")
    histogram.add(np.zeros((0, 3)))
    assert histogram.total == 0
    histogram.add(np.zeros(5))
    assert (histogram.total, histogram.low, histogram.high) == (5, 0.0, 0.0)

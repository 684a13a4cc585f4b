"""Ranges: zero is exact, outliers are weighed as each method says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.graph import Quantisation
from tilewright.compiler.graph.operators import Dequantize, Quantize
from tilewright.compiler.quantiser.histogram import Histogram
from tilewright.compiler.quantiser.ranges import (
    METHODS,
    centred_quantisation,
    choose_range,
    quantisation_of_range,
    range_of,
)
from tilewright.errors import CompileError


def histogram_of(data: np.ndarray) -> Histogram:
    histogram = Histogram("x")
    histogram.add(data)
    return histogram


def error_of(data: np.ndarray, method: str) -> float:
    """Mean squared error of quantising data with a method's range."""
    kind = quantisation_of_range(*choose_range(histogram_of(data), method))
    scales, points = (kind.scale,), (kind.zero_point,)
    rounded = Dequantize(scales, points).compute(Quantize(scales, points, "int8").compute(data))
    return float(np.mean((rounded - data) ** 2))


@given(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5))
def test_a_range_is_covered_and_holds_zero(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    kind = quantisation_of_range(low, high)
    assert -128 <= kind.zero_point <= 127
    assert kind.scale == float(np.float32(kind.scale))
    lowest, highest = range_of(kind)
    if kind.scale != 1.0:
        assert lowest <= min(low, 0) + kind.scale * 0.51
        assert highest >= max(high, 0) - kind.scale * 0.51


@pytest.mark.parametrize("method", METHODS)
def test_positive_values_use_all_integers(method: str) -> None:
    data = np.random.default_rng(0).uniform(0, 6, 10_000).astype(np.float32)
    low, high = choose_range(histogram_of(data), method)
    assert quantisation_of_range(low, high).zero_point == -128
    assert 5 < high <= 6


def test_one_outlier_sets_the_range_of_minmax_only() -> None:
    data = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    data[0] = 100
    reach = {name: choose_range(histogram_of(data), name)[1] for name in METHODS}
    assert reach["minmax"] == 100
    assert 2.5 < reach["percentile"] < 6
    assert reach["mse"] < 100
    assert reach["entropy"] < 50


def test_least_squares_beats_the_other_methods_at_its_own_measure() -> None:
    random = np.random.default_rng(0)
    for data in (random.laplace(size=20_000), np.maximum(random.standard_t(3, 20_000), 0)):
        values = data.astype(np.float32)
        errors = {name: error_of(values, name) for name in METHODS}
        assert errors["mse"] <= 1.01 * min(errors.values())
        assert errors["mse"] < errors["minmax"]


def test_a_centred_range_reaches_its_larger_end() -> None:
    assert centred_quantisation(-1.0, 12.7) == Quantisation(float(np.float32(0.1)), 0)
    assert centred_quantisation(-25.4, 12.7) == Quantisation(float(np.float32(0.2)), 0)
    assert centred_quantisation(0.0, 0.0).scale > 0


def test_a_tensor_of_zeros_has_a_scale() -> None:
    for method in METHODS:
        kind = quantisation_of_range(*choose_range(histogram_of(np.zeros(9)), method))
        assert kind.scale > 0
        assert choose_range(Histogram("empty"), method) == (0.0, 0.0)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(CompileError) as refusal:
        choose_range(Histogram("x"), "median")
    assert str(refusal.value) == (
        "calibration: expected one of minmax, percentile, entropy, mse, got `median`; choose one"
    )

"""Integer weights: symmetric, one scale per channel, never where the machine would saturate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.graph import Quantisation
from tilewright.compiler.graph.accumulators import accumulator_bounds
from tilewright.compiler.quantiser.weights import (
    EIGHT_BITS,
    ScaledIntegers,
    least_error_scales,
    quantise_weights,
    rows_of,
)
from tilewright.isa.numbers import EXACT_LIMIT

X, Y = Quantisation(0.05, -20), Quantisation(0.1, 10)


def quantised(
    weights: np.ndarray, bias: np.ndarray, axis: int, x: Quantisation, y: Quantisation
) -> tuple[ScaledIntegers, ScaledIntegers]:
    scales = least_error_scales(rows_of(weights, axis))
    return quantise_weights(weights, bias, axis, x, y, scales, EIGHT_BITS)


def test_each_channel_has_a_scale_of_its_own() -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((6, 4, 3, 3)) * 10.0 ** np.arange(-3, 3)[:, None, None, None]
    weights = weights.astype(np.float32)
    held, _ = quantised(weights, np.zeros(6), 0, X, Y)
    assert held.data.dtype == np.int8
    assert np.abs(held.data.astype(int)).max() == 127
    error = np.abs(held.data * held.scales[:, None, None, None] - weights).max(axis=(1, 2, 3))
    assert (error <= np.abs(weights).max(axis=(1, 2, 3)) / 127).all()


def test_a_dense_layer_has_its_channels_last() -> None:
    weights = np.array([[1, 100], [-2, 50], [0.5, 25]], dtype=np.float32)
    held, bias = quantised(weights, np.array([1.0, 2.0]), 1, X, Y)
    np.testing.assert_allclose(held.data * held.scales, weights, atol=0.5)
    np.testing.assert_allclose(bias.data * bias.scales, [1, 2], rtol=1e-2)


def test_the_scale_of_least_error_is_no_worse_than_the_largest_weight() -> None:
    rows = np.random.default_rng(1).laplace(size=(20, 200))
    scales = least_error_scales(rows)
    plain = np.abs(rows).max(axis=1) / 127

    def error(steps: np.ndarray) -> np.ndarray:
        rounded = np.clip(np.rint(rows / steps[:, None]), -127, 127) * steps[:, None]
        return ((rounded - rows) ** 2).sum(axis=1)

    assert (error(scales) <= error(plain) * (1 + 1e-6)).all()
    assert error(scales).sum() < error(plain).sum()


@given(
    st.integers(-40, 3), st.integers(-30, 6), st.integers(-12, 3), st.integers(-12, 6),
    st.integers(1, 3000),
)  # fmt: skip
def test_accumulators_always_requantise_exactly(
    weight: int, bias: int, x: int, y: int, depth: int
) -> None:
    random = np.random.default_rng(depth)
    kinds = Quantisation(2.0**x, 127), Quantisation(2.0**y, 0)
    weights = (random.uniform(-1, 1, (3, depth, 1, 1)) * 2.0**weight).astype(np.float32)
    weights[1] = 0
    real = random.uniform(-1, 1, 3) * 2.0**bias
    held, held_bias = quantised(weights, real, 0, *kinds)
    kernel = held.data.transpose(2, 3, 1, 0)
    total = held_bias.data.astype(np.int64) - 127 * kernel.astype(np.int64).sum(axis=(0, 1, 2))
    lowest, highest = accumulator_bounds(kernel, total)
    scale = np.float32(kinds[0].scale) * held.scales / np.float32(kinds[1].scale)
    assert max(highest.max(), -lowest.min()) < 2**31
    wide = np.maximum(highest, -lowest) >= EXACT_LIMIT
    assert (scale[wide] >= 2.0**-16).all()
    np.testing.assert_allclose(
        held_bias.data * held_bias.scales, real, atol=float(held_bias.scales.max()), rtol=1e-5
    )


@pytest.mark.parametrize("bias", [1e6, -1e6])
def test_a_huge_bias_coarsens_the_weights_and_not_the_other_way_round(bias: float) -> None:
    weights = np.full((1, 1, 1, 1), 1e-3, dtype=np.float32)
    _, held = quantised(weights, np.array([bias]), 0, X, Y)
    assert held.data[0] * held.scales[0] == pytest.approx(bias, rel=1e-6)

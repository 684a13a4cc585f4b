"""Softmax and layer normalisation, against binary64."""

import numpy as np
import pytest

from tilewright.compiler.cpu import LEVELS, LayerNormalisation, Softmax, compile_kernel, host

from .arrays import normal

SHAPES = [(4, 128), (3, 1000), (5, 7), (2, 70), (1, 1)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_is_within_rounding(shape: tuple[int, int], level: str) -> None:
    x = 5 * normal(*shape)
    got = compile_kernel(Softmax(*shape), host(level))(x)
    grown = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, grown / grown.sum(axis=1, keepdims=True), rtol=3e-6)


def test_softmax_does_not_overflow() -> None:
    x = np.array([[1e30, 1e30, -1e30], [-300, -301, -300]], np.float32)
    got = compile_kernel(Softmax(2, 3))(x)
    share = 1 / (2 + np.exp(-1.0))
    expected = [[0.5, 0.5, 0], [share, share * np.exp(-1.0), share]]
    np.testing.assert_allclose(got, expected, rtol=3e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_normalisation_is_within_rounding(shape: tuple[int, int], level: str) -> None:
    x, scale, bias = 3 * normal(*shape) + 10, normal(shape[1]), normal(shape[1])
    kernel = compile_kernel(LayerNormalisation(*shape, epsilon=1e-3), host(level))
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(axis=1, keepdims=True) + 1e-3)
    expected = (wide - wide.mean(axis=1, keepdims=True)) / spread * scale + bias
    np.testing.assert_allclose(kernel.bind(scale=scale, bias=bias)(x), expected, atol=3e-5)

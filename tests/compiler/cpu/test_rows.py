"""Softmax, normalisations and reductions, against binary64."""

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LayerNormalisation,
    RowReduction,
    RowSoftmax,
    compile_kernel,
)
from tilewright.errors import CompileError

from ...processor import VECTOR_LEVELS, target_at
from .arrays import normal

SHAPES = [(4, 128), (3, 1000), (5, 7), (2, 70), (1, 1)]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_is_within_rounding(shape: tuple[int, int], level: str) -> None:
    x = 5 * normal(*shape)
    got = compile_kernel(RowSoftmax(*shape), target_at(level))(x)
    grown = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, grown / grown.sum(axis=1, keepdims=True), rtol=3e-6)


def test_softmax_does_not_overflow() -> None:
    x = np.array([[1e30, 1e30, -1e30], [-300, -301, -300]], np.float32)
    got = compile_kernel(RowSoftmax(2, 3))(x)
    share = 1 / (2 + np.exp(-1.0))
    expected = [[0.5, 0.5, 0], [share, share * np.exp(-1.0), share]]
    np.testing.assert_allclose(got, expected, rtol=3e-6)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_normalisation_is_within_rounding(shape: tuple[int, int], level: str) -> None:
    x, scale, bias = 3 * normal(*shape) + 10, normal(shape[1]), normal(shape[1])
    kernel = compile_kernel(LayerNormalisation(*shape, epsilon=1e-3), target_at(level))
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(axis=1, keepdims=True) + 1e-3)
    expected = (wide - wide.mean(axis=1, keepdims=True)) / spread * scale + bias
    np.testing.assert_allclose(kernel.bind(scale=scale, bias=bias)(x), expected, atol=3e-5)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_logarithm_of_softmax_keeps_small_shares(shape: tuple[int, int], level: str) -> None:
    x = 30 * normal(*shape)
    got = compile_kernel(RowSoftmax(*shape, log=True), target_at(level))(x)
    wide = x.astype(np.float64)
    expected = wide - wide.max(axis=1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_may_stay(shape: tuple[int, int], level: str) -> None:
    x, scale, bias = normal(*shape) + 2, normal(shape[1]), normal(shape[1])
    kernel = compile_kernel(LayerNormalisation(*shape, 1e-3, centred=False), target_at(level))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-3) * scale + bias
    np.testing.assert_allclose(kernel.bind(scale=scale, bias=bias)(x), expected, atol=1e-5)


REDUCED = {
    "mean": np.mean,
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "squares": lambda x, **how: np.sum(x**2, **how),
    "length": lambda x, **how: np.sqrt(np.sum(x**2, **how)),
}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", REDUCED)
def test_rows_are_reduced(kind: str, shape: tuple[int, int], level: str) -> None:
    x = normal(*shape)
    got = compile_kernel(RowReduction(*shape, kind), target_at(level))(x)
    expected = REDUCED[kind](x.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("columns", [1, 7, 64, 70, 300])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_nans_and_infinities_are_not_lost(kind: str, columns: int, level: str) -> None:
    x = np.repeat(normal(6, 1), columns, axis=1)
    x[0], x[1] = np.inf, -np.inf
    x[2, columns // 2], x[3, columns - 1], x[4, 0] = np.nan, -np.inf, np.inf
    x[5] = np.finfo(np.float32).max * (-1 if kind == "max" else 1)
    got = compile_kernel(RowReduction(6, columns, kind), target_at(level))(x)
    np.testing.assert_array_equal(got, REDUCED[kind](x, axis=1, keepdims=True))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("columns", [5, 64, 130])
def test_softmax_of_masked_elements_is_zero_and_of_nans_is_nan(columns: int, level: str) -> None:
    x = 5 * normal(4, columns)
    x[0, 1::2], x[1, ::3], x[2, columns // 2] = -np.inf, -1e9, np.nan
    got = compile_kernel(RowSoftmax(4, columns), target_at(level))(x)
    assert not got[0, 1::2].any()
    assert not got[1, ::3].any()
    assert np.isnan(got[2]).all()
    np.testing.assert_allclose(got[[0, 1, 3]].sum(axis=1), 1, rtol=1e-5)


SIDE_BY_SIDE = [(1, 16, 33), (3, 5, 7), (2, 4, 64), (1, 1, 2), (2, 21, 100)]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SIDE_BY_SIDE)
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_rows_side_by_side(log: bool, shape: tuple, level: str) -> None:
    rows, columns, inner = shape
    x = 5 * normal(*shape)
    got = compile_kernel(RowSoftmax(rows, columns, log, inner), target_at(level), threads=2)(x)
    expected = x.astype(np.float64)
    expected -= expected.max(axis=1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(got, expected if log else np.exp(expected), rtol=4e-6, atol=1e-6)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SIDE_BY_SIDE)
@pytest.mark.parametrize("kind", REDUCED)
def test_rows_side_by_side_are_reduced(kind: str, shape: tuple, level: str) -> None:
    rows, columns, inner = shape
    x = normal(*shape)
    if kind in ("max", "min"):
        x[0, columns // 2, 0], x[0, :, 1] = np.nan, -np.inf if kind == "max" else np.inf
    got = compile_kernel(RowReduction(rows, columns, kind, inner), target_at(level), threads=2)(x)
    expected = REDUCED[kind](x.astype(np.float64), axis=1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown kind `median`; choose mean, sum, max"):
        RowReduction(1, 4, "median")

"""Products of float32 with byte weights are within half a step of each row, at every level."""

import numpy as np
import pytest

from tilewright.compiler.cpu import LEVELS, MatrixProduct, compile_kernel, per_row_epilogue
from tilewright.compiler.cpu.kernels.matrix_product import limit_of
from tilewright.errors import InputError

from ...processor import target_at

EXTENTS = [(1, 128, 512), (3, 19, 76), (50, 129, 40), (1, 1, 3), (7, 300, 5)]
WEIGHTS = {"int8": (-128, 127), "int16": (-255, 255)}
GENERATOR = np.random.default_rng(0)


def mixed(
    rows: int, inner: int, columns: int, limit: int, dtype: str = "int8", residual: bool = False
) -> MatrixProduct:
    epilogue = per_row_epilogue(residual)
    return MatrixProduct(rows, inner, columns, "float32", epilogue, dtype, limit=limit)


def constants(dtype: str, inner: int, columns: int) -> dict[str, np.ndarray]:
    return {
        "w": GENERATOR.integers(*WEIGHTS[dtype], (inner, columns), dtype, endpoint=True),
        "factor": GENERATOR.random(columns, np.float32),
        "bias": GENERATOR.standard_normal(columns, np.float32),
    }


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize("residual", [False, True])
def test_each_row_has_a_step_of_its_own(
    dtype: str, extents: tuple[int, int, int], level: str, residual: bool
) -> None:
    rows, inner, columns = extents
    held = constants(dtype, inner, columns)
    limit = limit_of(held["w"])
    x = GENERATOR.standard_normal((rows, inner), np.float32)
    x *= np.float32(10.0) ** GENERATOR.integers(-20, 20, (rows, 1))
    more = [GENERATOR.standard_normal((rows, columns), np.float32)] if residual else []
    kernel = compile_kernel(mixed(*extents, limit, dtype, residual), target_at(level))
    got = kernel(x, *held.values(), *more).astype(np.float64)
    real, w, factor = (one.astype(np.float64) for one in (x, held["w"], held["factor"]))
    expected = real @ w * factor + held["bias"] + sum(more)
    step = np.abs(real).max(axis=1, keepdims=True) / limit
    # half a step of each number, and the roundings of float32
    allowed = 0.51 * step * (np.abs(w).sum(axis=0) * factor) + 1e-6 * np.abs(expected) + 1e-6
    assert (np.abs(got - expected) <= allowed).all()


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_are_zero_or_not_finite(level: str) -> None:
    held = constants("int8", 40, 9)
    kernel = compile_kernel(mixed(5, 40, 9, limit_of(held["w"])), target_at(level))
    x = np.zeros((5, 40), np.float32)
    x[1], x[2, 3], x[3, 39], x[4] = 1e-38, np.nan, -np.inf, 2.0
    got = kernel(x, *held.values())
    np.testing.assert_array_equal(got[:2], np.stack([held["bias"]] * 2))
    assert np.isnan(got[2:4]).all()
    assert np.isfinite(got[4]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_the_largest_sums_fit(level: str) -> None:
    """2,000 weights of 127 would exceed int32 with 16 bits."""
    w = np.full((2000, 8), 127, np.int8)
    limit = limit_of(w)
    assert limit < 1 << 14
    one, none = np.ones(8, np.float32), np.zeros(8, np.float32)
    x = np.ones((1, 2000), np.float32)
    kernel = compile_kernel(mixed(1, 2000, 8, limit), target_at(level))
    np.testing.assert_allclose(kernel(x, w, one, none), x @ w.astype(np.float32), rtol=1e-6)
    larger = compile_kernel(mixed(1, 2000, 8, limit + 1), target_at(level))
    with pytest.raises(InputError, match=f"the limit is at most {limit}, not {limit + 1}"):
        larger(x, w, one, none)

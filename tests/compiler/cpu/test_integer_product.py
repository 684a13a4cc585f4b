"""Products of bytes less a row, with factors of the run: bit-exact at every level."""

import numpy as np
import pytest

from tilewright.compiler.cpu import LEVELS, Extent, MatrixProduct, compile_kernel, dequantised
from tilewright.errors import InputError

from ...processor import target_at

EXTENTS = [(16, 64, 128), (1, 30, 5), (48, 32, 95), (7, 100, 16), (33, 17, 3)]
GENERATOR = np.random.default_rng(0)


def row_of(w: np.ndarray, zero: int) -> np.ndarray:
    return w.sum(axis=0, dtype=np.int32) * np.int32(zero)


def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_sum_is_exact_and_each_operation_on_it_rounds(
    dtype: str, extents: tuple[int, int, int], level: str
) -> None:
    rows, inner, columns = extents
    x, w = drawn(dtype, (rows, inner)), drawn("int8", (inner, columns))
    zero = int(drawn(dtype, (1,))[0])
    factor = GENERATOR.random(columns, np.float32)
    addend = GENERATOR.standard_normal(columns, np.float32)
    total = ((x.astype(np.int64) - zero) @ w.astype(np.int64)).astype(np.int32)
    scaled, scaled_by_one = total.astype(np.float32) * factor, total.astype(np.float32) * factor[:1]
    none, row = np.zeros(columns, np.int32), row_of(w, zero)
    for epilogue, more, expected in (
        (dequantised(has_row=True), (), total),
        (dequantised(True, Extent.ONE), (factor[:1],), scaled_by_one),
        (dequantised(True, Extent.COLUMNS, True), (factor, addend), scaled + addend),
    ):
        kernel = compile_kernel(MatrixProduct(*extents, dtype, epilogue), target_at(level))
        np.testing.assert_array_equal(kernel(x, w, none, row, *more), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_known_zero_point_is_folded_into_the_bias(dtype: str, level: str) -> None:
    x, w = drawn(dtype, (7, 100)), drawn("int8", (100, 16))
    factor, addend = GENERATOR.random(1, np.float32), GENERATOR.standard_normal(16, np.float32)
    known = MatrixProduct(7, 100, 16, dtype, dequantised(False, Extent.ONE, has_addend=True))
    kernel = compile_kernel(known, target_at(level))
    for zero in (0, 77, np.iinfo(dtype).min, np.iinfo(dtype).max):
        total = ((x.astype(np.int64) - int(zero)) @ w.astype(np.int64)).astype(np.float32)
        got = kernel(x, w, -row_of(w, int(zero)), factor, addend)
        np.testing.assert_array_equal(got, total * factor + addend)


@pytest.mark.parametrize("level", LEVELS)
def test_small_pairs_are_used_only_where_they_hold(level: str) -> None:
    small = MatrixProduct(8, 64, 16, "uint8", dequantised(has_row=True), small_pairs=True)
    x, zero = drawn("uint8", (8, 64)), int(drawn("uint8", (1,))[0])
    kernel = compile_kernel(small, target_at(level))
    w = GENERATOR.integers(-64, 65, (64, 16), np.int8)
    expected = (x.astype(np.int64) - zero) @ w.astype(np.int64)
    none = np.zeros(16, np.int32)
    np.testing.assert_array_equal(kernel(x, w, none, row_of(w, zero)), expected)
    with pytest.raises(InputError, match="too large for `small_pairs`"):
        kernel(x, np.full((64, 16), 100, np.int8), none, none)

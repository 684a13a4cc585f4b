"""Products of bytes with a zero point and factors of the run: bit-exact at every level."""

import numpy as np
import pytest

from tilewright.compiler.cpu import LEVELS, Extent, MatrixProduct, compile_kernel, dequantised
from tilewright.errors import InputError

from ...processor import target_at

EXTENTS = [(16, 64, 128), (1, 30, 5), (48, 32, 95), (7, 100, 16), (33, 17, 3)]
GENERATOR = np.random.default_rng(0)


def sums_of(w: np.ndarray) -> np.ndarray:
    return w.sum(axis=0, dtype=np.int32)


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
    x, w, zero = drawn(dtype, (rows, inner)), drawn("int8", (inner, columns)), drawn(dtype, (1,))
    factor = GENERATOR.random(columns, np.float32)
    addend = GENERATOR.standard_normal(columns, np.float32)
    total = ((x.astype(np.int64) - int(zero[0])) @ w.astype(np.int64)).astype(np.int32)
    scaled, scaled_by_one = total.astype(np.float32) * factor, total.astype(np.float32) * factor[:1]
    none, sums = np.zeros(columns, np.int32), sums_of(w)
    for epilogue, more, expected in (
        (dequantised(dtype), (), total),
        (dequantised(dtype, Extent.ONE), (factor[:1],), scaled_by_one),
        (dequantised(dtype, Extent.COLUMNS, True), (factor, addend), scaled + addend),
    ):
        kernel = compile_kernel(MatrixProduct(*extents, dtype, epilogue), target_at(level))
        np.testing.assert_array_equal(kernel(x, w, none, sums, zero, *more), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_known_zero_point_is_folded_into_the_bias(dtype: str, level: str) -> None:
    x, w = drawn(dtype, (7, 100)), drawn("int8", (100, 16))
    factor, addend = GENERATOR.random(1, np.float32), GENERATOR.standard_normal(16, np.float32)
    known = MatrixProduct(7, 100, 16, dtype, dequantised(None, Extent.ONE, has_addend=True))
    kernel = compile_kernel(known, target_at(level))
    for zero in (0, 77, np.iinfo(dtype).min, np.iinfo(dtype).max):
        total = ((x.astype(np.int64) - int(zero)) @ w.astype(np.int64)).astype(np.float32)
        got = kernel(x, w, sums_of(w) * -np.int32(zero), factor, addend)
        np.testing.assert_array_equal(got, total * factor + addend)


@pytest.mark.parametrize("level", LEVELS)
def test_small_pairs_are_used_only_where_they_hold(level: str) -> None:
    small = MatrixProduct(8, 64, 16, "uint8", dequantised("uint8"), small_pairs=True)
    x, zero = drawn("uint8", (8, 64)), drawn("uint8", (1,))
    kernel = compile_kernel(small, target_at(level))
    w = GENERATOR.integers(-64, 65, (64, 16), np.int8)
    expected = (x.astype(np.int64) - int(zero[0])) @ w.astype(np.int64)
    none = np.zeros(16, np.int32)
    np.testing.assert_array_equal(kernel(x, w, none, sums_of(w), zero), expected)
    with pytest.raises(InputError, match="too large for `small_pairs`"):
        kernel(x, np.full((64, 16), 100, np.int8), none, none, zero)


@pytest.mark.parametrize("level", LEVELS)
def test_larger_weights_have_as_many_parts_as_described(level: str) -> None:
    x, zero = drawn("uint8", (5, 40)), drawn("uint8", (1,))
    w = GENERATOR.integers(-255, 255, (40, 9), np.int16)
    product = MatrixProduct(5, 40, 9, "uint8", dequantised("uint8"), "int16", parts=2)
    kernel, none = compile_kernel(product, target_at(level)), np.zeros(9, np.int32)
    expected = (x.astype(np.int64) - int(zero[0])) @ w.astype(np.int64)
    np.testing.assert_array_equal(kernel(x, w, none, sums_of(w), zero), expected)
    few = np.clip(w, -100, 100)  # one part
    expected = (x.astype(np.int64) - int(zero[0])) @ few.astype(np.int64)
    np.testing.assert_array_equal(kernel(x, few, none, sums_of(few), zero), expected)
    with pytest.raises(InputError, match="expected weights of 2 parts, got 3"):
        kernel(x, np.full((40, 9), 255, np.int16), none, none, zero)

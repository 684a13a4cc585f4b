"""Products of two activations on every feature set, wherever their heads lie."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    BatchedProduct,
    ByteProduct,
    Requantisation,
    compile_kernel,
    generic,
)
from tilewright.compiler.cpu.kernels.tiles import panel_of

from ...processor import VECTOR_LEVELS, target_at
from .arrays import normal, whole

SHAPES = {
    "whole tiles": (2, 3, 28, 16, 64),
    "tails everywhere": (2, 2, 31, 9, 37),
    "one product": (1, 1, 29, 12, 50),
    "few rows": (1, 4, 2, 33, 40),
    "few columns": (3, 1, 20, 16, 5),
    "one of each": (1, 1, 1, 1, 1),
    "rows a page apart": (1, 1, 9, 1024, 33),
    "panels larger than the stack": (1, 2, 6, 9000, 17),
}


def expected(product: BatchedProduct | ByteProduct, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In binary64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    a = a.swapaxes(1, 2) if product.joined[0] else a
    b = b.swapaxes(1, 2) if product.joined[1] else b
    found = a @ (b.swapaxes(2, 3) if product.transposed else b) * product.scale
    return found.swapaxes(1, 2) if product.joined[2] else found


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_for_each_head(shape: str, transposed: bool, level: str) -> None:
    product = BatchedProduct(*SHAPES[shape], transposed, 0.5)
    a, b = (normal(*array.shape) for array in product.operands.values())
    got = compile_kernel(product, target_at(level), threads=2)(a, b)
    sizes = expected(product, np.abs(a), np.abs(b))
    allowed = 4e-7 * np.sqrt(product.inner) * sizes
    assert np.all(np.abs(got - expected(product, a, b)) <= allowed)


@pytest.mark.parametrize("joined", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("transposed", [False, True])
def test_heads_lie_where_they_are_said_to(joined: tuple, transposed: bool) -> None:
    product = BatchedProduct(2, 3, 17, 11, 35, transposed, joined=joined)
    a, b = (normal(*array.shape) for array in product.operands.values())
    got = compile_kernel(product)(a, b)
    np.testing.assert_allclose(got, expected(product, a, b), rtol=1e-5, atol=1e-5)


def test_a_bound_operand_is_given_once() -> None:
    product = BatchedProduct(1, 2, 5, 8, 9, bound=("b",))
    a, b = (normal(*array.shape) for array in product.operands.values())
    layer = compile_kernel(product).bind(b=b)
    np.testing.assert_allclose(layer(a), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_no_lane_multiplies_what_was_never_written(level: str) -> None:
    """What lies on the stack may be subnormal, and products of that are a hundred times as slow."""
    target = generic(level)
    program = BatchedProduct(1, 3, 20, 64, 57, transposed=True).plan(target).schedule.program()
    *_, (_, columns) = program.domains["packed"]
    assert columns % panel_of(57, target) == 0


BYTES = {
    "whole tiles": (2, 2, 64, 64, 64),
    "tails everywhere": (1, 2, 97, 37, 70),
    "several steps, few columns": (1, 3, 66, 197, 9),
    "few rows": (2, 1, 5, 33, 40),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", BYTES)
@pytest.mark.parametrize("points", [(0, 0), (3, 0), (-7, 5)])
def test_products_of_bytes_are_exact(shape: str, points: tuple[int, int], level: str) -> None:
    number = list(BYTES).index(shape) + sum(points)
    joined = (bool(number & 1), bool(number & 2), bool(number & 4))
    quantised = Requantisation("int8", "int8", 0, -4)
    transposed = number % 3 == 0
    product = ByteProduct(*BYTES[shape], points, 0.001, quantised, transposed, joined)
    a, b = (whole("int8", *array.shape) for array in product.operands.values())
    got = compile_kernel(product, target_at(level), threads=2)(a, b)
    moved = (array.astype(np.int64) - point for array, point in zip((a, b), points, strict=True))
    sums = expected(replace(product, scale=1), *moved)
    rounded = np.rint(sums.astype(np.float32) * np.float32(product.scale))
    np.testing.assert_array_equal(got, np.clip(rounded - 4, -128, 127))
    assert len(np.unique(got)) > 50

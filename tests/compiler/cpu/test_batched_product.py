"""Products of two activations on every feature set, wherever their heads lie."""

import itertools

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Epilogue,
    HeadProduct,
    Requantisation,
    compile_kernel,
    generic,
    real_epilogue,
)
from tilewright.compiler.cpu.kernels.tiles import panel_of
from tilewright.errors import CompileError

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


HALVED = Epilogue(("mul", "sum", 0.5), "float32")


def expected(product: HeadProduct, a: np.ndarray, b: np.ndarray, factor: float = 1) -> np.ndarray:
    """In binary64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    a = a.swapaxes(1, 2) if product.joined[0] else a
    b = b.swapaxes(1, 2) if product.joined[1] else b
    found = a @ (b.swapaxes(2, 3) if product.transposed else b) * factor
    return found.swapaxes(1, 2) if product.joined[2] else found


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_for_each_head(shape: str, transposed: bool, level: str) -> None:
    product = HeadProduct(*SHAPES[shape], transposed, epilogue=HALVED)
    a, b = (normal(*array.shape) for array in product.operands.values())
    got = compile_kernel(product, target_at(level), threads=2)(a, b)
    sizes = expected(product, np.abs(a), np.abs(b), 0.5)
    allowed = 4e-7 * np.sqrt(product.inner) * sizes
    assert np.all(np.abs(got - expected(product, a, b, 0.5)) <= allowed)


@pytest.mark.parametrize("joined", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("transposed", [False, True])
def test_heads_lie_where_they_are_said_to(joined: tuple, transposed: bool) -> None:
    product = HeadProduct(2, 3, 17, 11, 35, transposed, joined)
    a, b = (normal(*array.shape) for array in product.operands.values())
    got = compile_kernel(product)(a, b)
    np.testing.assert_allclose(got, expected(product, a, b), rtol=1e-5, atol=1e-5)


def test_a_bound_operand_is_given_once() -> None:
    product = HeadProduct(1, 2, 5, 8, 9, bound=("b",))
    a, b = (normal(*array.shape) for array in product.operands.values())
    layer = compile_kernel(product).bind(b=b)
    np.testing.assert_allclose(layer(a), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_no_lane_multiplies_what_was_never_written(level: str) -> None:
    """What lies on the stack may be subnormal, and products of that are a hundred times as slow."""
    target = generic(level)
    program = HeadProduct(1, 3, 20, 64, 57, transposed=True).plan(target).schedule.program()
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
    rounded = Requantisation("int8", -4).requantised("sum", 0.001)
    epilogue = Epilogue(rounded, "int8")
    transposed = number % 3 == 0
    product = HeadProduct(*BYTES[shape], transposed, joined, "int8", points, epilogue)
    a, b = (whole("int8", *array.shape) for array in product.operands.values())
    got = compile_kernel(product, target_at(level), threads=2)(a, b)
    moved = [array.astype(np.int64) - point for array, point in zip((a, b), points, strict=True)]
    sums = expected(product, moved[0], moved[1]).astype(np.float32)
    whole_numbers = np.rint(sums * np.float32(0.001))
    np.testing.assert_array_equal(got, np.clip(whole_numbers - 4, -128, 127))
    assert len(np.unique(got)) > 50


def test_heads_have_no_operands_beside_their_factors() -> None:
    with pytest.raises(CompileError, match="got one that reads `bias`"):
        HeadProduct(1, 1, 2, 2, 2, epilogue=real_epilogue())

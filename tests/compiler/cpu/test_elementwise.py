"""Chains of elementwise operations on every feature set and element type."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu import (
    LEVELS,
    ByteTable,
    Declared,
    Elementwise,
    compile_kernel,
    host,
)
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError
from tilewright.flows.verify.programs.random_configurations import EXTRA_OPERATIONS
from tilewright.isa.vector_operations import operations_with

from ...processor import VECTOR_LEVELS, target_at
from .arrays import normal, whole


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", [(3, 100), (1, 1), (1, 20001)])
def test_a_chain_of_float32_is_one_pass(shape: tuple[int, int], level: str) -> None:
    formula = ("max", ("sub", ("mul", "x", 2.0), ("div", "y", 3.0)), 0.0)
    chain = Elementwise(shape, (("x", "float32"), ("y", "float32")), formula)
    x, y = normal(*shape), normal(*shape)
    got = compile_kernel(chain, target_at(level), threads=2)(x, y)
    np.testing.assert_allclose(got, np.maximum(x * 2 - y / 3, 0), atol=1e-6)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_an_operand_of_one_row_is_read_by_all(level: str) -> None:
    chain = Elementwise(
        (7, 37),
        (("x", "float32"), ("b", "float32")),
        ("add", "x", "b"),
        broadcast=(("b", (1, 37)),),
    )
    x, b = normal(7, 37), normal(1, 37)
    np.testing.assert_array_equal(compile_kernel(chain, target_at(level))(x, b), x + b)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_wrap_and_widen(dtype: str, level: str) -> None:
    chain = Elementwise(
        (2, 45), (("a", dtype), ("b", dtype)), ("sub", ("mul", "a", "b"), ("min", "a", 3)), dtype
    )
    a, b = whole(dtype, 2, 45), whole(dtype, 2, 45)
    with np.errstate(over="ignore"):
        expected = a * b - np.minimum(a, np.array(3, dtype))
    np.testing.assert_array_equal(compile_kernel(chain, target_at(level))(a, b), expected)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_comparisons_give_truth_values_that_choose(level: str) -> None:
    inputs = (("x", "float32"), ("y", "float32"))
    x, y = normal(3, 21), normal(3, 21)
    y[0] = x[0]
    target = target_at(level)
    smaller = compile_kernel(Elementwise((3, 21), inputs, ("less", "x", "y"), "bool"), target)(x, y)
    assert smaller.dtype == np.bool_
    np.testing.assert_array_equal(smaller, x < y)
    same = Elementwise((3, 21), inputs, ("equal", "x", "y"), "bool")
    np.testing.assert_array_equal(compile_kernel(same, target)(x, y), x == y)
    choice = Elementwise(
        (3, 21), (("c", "bool"), *inputs), ("select", "c", "x", ("mul", "y", -1.0))
    )
    expected = np.where(smaller, x, -y)
    np.testing.assert_array_equal(compile_kernel(choice, target)(smaller, x, y), expected)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_conversions_round_halves_to_even(level: str) -> None:
    x = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 1e6, 3.49]], np.float32)
    chain = Elementwise((1, 7), (("x", "float32"),), ("rounded", "x"), "int32")
    np.testing.assert_array_equal(compile_kernel(chain, target_at(level))(x), np.rint(x))
    n = whole("int32", 1, 33)
    back = Elementwise((1, 33), (("n", "int32"),), ("real", "n"))
    np.testing.assert_array_equal(compile_kernel(back, target_at(level))(n), n.astype(np.float32))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("steps", ["", "vectorise(out, c)"])
@pytest.mark.parametrize("operation", operations_with(EXTRA_OPERATIONS), ids=lambda each: each.name)
def test_an_operation_of_vector_gives_the_same_here(operation, steps: str, level: str) -> None:
    y, c = te.axes(y=3, c=20)
    left, right = (te.tensor(name, "int8", (3, 20)) for name in ("left", "right"))
    value = te.apply(operation, left[y, c], right[y, c], a_multiplier=7, b_multiplier=-3)
    kernel = te.kernel("each", te.compute("out", "int32", (y, c), value))
    inputs = {name: whole("int8", 3, 20) for name in kernel.inputs}
    got = compile_kernel(Declared(kernel, steps), target_at(level))(*inputs.values())
    np.testing.assert_array_equal(got, evaluate(kernel, inputs))


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown operation `cbrt`; choose add, sub"):
        compile_kernel(Elementwise((1, 4), (("x", "float32"),), ("cbrt", "x")))


def test_an_unknown_operand_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown operand `y`; operands are x"):
        compile_kernel(Elementwise((1, 4), (("x", "float32"),), ("exp", "y")))


def test_an_operand_of_another_shape_is_refused() -> None:
    with pytest.raises(CompileError, match=r"`b` of \[4\] does not broadcast to \[3, 4\]"):
        Elementwise((3, 4), (("b", "float32"),), ("exp", "b"), broadcast=(("b", (4,)),))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("sizes", [(1, 5, 1, 1), (4, 1, 6, 1), (1, 1, 1, 7), (4, 1, 1, 7)])
def test_an_operand_is_broadcast_along_any_axes(sizes: tuple[int, ...], level: str) -> None:
    chain = Elementwise(
        (4, 5, 6, 7),
        (("x", "float32"), ("b", "float32")),
        ("sub", "x", "b"),
        broadcast=(("b", sizes),),
        bound=("b",),
    )
    x, b = normal(4, 5, 6, 7), normal(*sizes)
    got = compile_kernel(chain, target_at(level), threads=2).bind(b=b)(x)
    np.testing.assert_array_equal(got, x - b)


def test_a_product_is_rounded_before_a_sum() -> None:
    x, y = (np.full((1, 40), number, np.float32) for number in (1 + 2**-12, -1 - 2**-11))
    chain = Elementwise(
        (1, 40), (("x", "float32"), ("y", "float32")), ("add", ("mul", "x", "x"), "y")
    )
    np.testing.assert_array_equal(compile_kernel(chain)(x, y), x * x + y)
    assert not (x * x + y).any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 63, 64, 256, 1000, 70001])
def test_every_byte_finds_its_place_in_a_table(size: int, level: str) -> None:
    x = np.resize(np.arange(-128, 128).astype(np.int8), size)
    table = whole("int8", 256)
    got = compile_kernel(ByteTable(size), target_at(level), threads=2)(x, table)
    np.testing.assert_array_equal(got, table[x.astype(int) + 128])


def test_tables_are_looked_up_without_permutations_of_bytes_too() -> None:
    """A processor with AVX512-VNNI may lack VBMI."""
    target = host()
    without = replace(target, features=target.features.replace("+avx512vbmi,", "-avx512vbmi,"))
    assert without.lookup is None
    x, table = whole("int8", 500), whole("int8", 256)
    got = compile_kernel(ByteTable(500), without)(x, table)
    np.testing.assert_array_equal(got, table[x.astype(int) + 128])

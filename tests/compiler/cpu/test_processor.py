"""Schedules for a general processor: float32 kernels, registers, and dot products."""

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu.instructions import dot_product, matrix_product
from tilewright.compiler.cpu.processor import Processor
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError

PROCESSOR = Processor("small", (dot_product("dot4", 4, 2, (("uint8", "int8"),)),))


def product(a: str = "uint8", columns: int = 8, inner: int = 6) -> te.Schedule:
    """A product of bytes with a bias, cut into lanes and taps."""
    m, n = te.axes(m=3, n=columns)
    (k,) = te.reduce_axes(k=inner)
    left, right = te.tensor("left", a, (3, inner)), te.tensor("right", "int8", (inner, columns))
    bias = te.tensor("bias", "int32", (columns,))
    total = te.sum(left[m, k] * right[k, n], over=k) + bias[n]
    s = te.Schedule(te.kernel("product", te.compute("out", "int32", (m, n), total)), PROCESSOR)
    s.split("out", "n", 4)
    s.split("out", "k", 2)
    s.reorder("out", "m", "n.o", "k.o", "n.i", "k.i")
    return s


def test_two_loops_become_a_dot_product() -> None:
    s = product()
    s.tensorise("out", "n.i")
    s.vectorise("out", "n.i")
    assert "instruction dot4:\n          vectorised for n.i in range(4):" in str(s.program())
    generator = np.random.default_rng(0)
    inputs = {
        "left": generator.integers(0, 256, (3, 6)).astype(np.uint8),
        "right": generator.integers(-128, 128, (6, 8)).astype(np.int8),
        "bias": generator.integers(-99, 99, 8).astype(np.int32),
    }
    expected = inputs["left"].astype(int) @ inputs["right"] + inputs["bias"]
    np.testing.assert_array_equal(evaluate(s.kernel, inputs), expected)
    np.testing.assert_array_equal(te.interpret(s.program(), inputs), expected)
    again = te.Schedule.parse(s.kernel, str(s), PROCESSOR)
    assert again.program() == s.program()


@pytest.mark.parametrize(
    ("s", "extents"),
    [(product("int8"), "4 x 2"), (product(inner=7), "4 x 2"), (product(columns=3), "3 x 2")],
    ids=["other types", "taps with a rest", "fewer lanes"],
)
def test_what_is_no_instruction_is_refused(s: te.Schedule, extents: str) -> None:
    with pytest.raises(te.ScheduleError) as error:
        s.tensorise("out", "n.i")
    assert str(error.value) == (
        f"tensorise(out, n.i): the loops n.i, k.i of {extents} match no instruction of `small` "
        "(dot4 takes 4 lanes and 2 taps of uint8 * int8); split a data loop by the lanes and a "
        "reduction loop by the taps, and for matrices by rows and groups, without a remainder, and "
        "sum a[tap] * b[lane, tap]"
    )


def test_blocks_of_lanes_in_memory_are_whole() -> None:
    """A smaller first block would write lanes of its neighbour."""
    m, n = te.axes(m=3, n=8)
    (k,) = te.reduce_axes(k=6)
    left, right = te.tensor("left", "uint8", (3, 6)), te.tensor("right", "int8", (6, 8))
    sums = te.compute("out", "int32", (m, n), te.sum(left[m, k] * right[k, n], over=k))
    for first, taken in ((4, True), (2, False)):
        s = te.Schedule(te.kernel("product", sums), PROCESSOR)
        s.split_first("out", "n", 4, first)
        s.split("out", "k", 2)
        s.reorder("out", "m", "n.o", "k.o", "n.i", "k.i")
        if taken:
            s.tensorise("out", "n.i")
            continue
        with pytest.raises(te.ScheduleError, match="without a remainder"):
            s.tensorise("out", "n.i")


MATRICES = Processor("tiles", (matrix_product("tiles4", (3, 2, 4, 2), (("uint8", "int8"),)),))


def matrices(rows: int = 3, columns: int = 8) -> te.Schedule:
    """A product of bytes, tiled to the loops of a matrix instruction."""
    m, n = te.axes(m=6, n=columns)
    (k,) = te.reduce_axes(k=8)
    left, right = te.tensor("left", "uint8", (6, 8)), te.tensor("right", "int8", (8, columns))
    out = te.compute("out", "int32", (m, n), te.sum(left[m, k] * right[k, n], over=k) + 1)
    s = te.Schedule(te.kernel("product", out), MATRICES)
    for loop, size in (("m", rows), ("n", 4), ("k", 4), ("k.i", 2)):
        s.split("out", loop, size)
    s.reorder("out", "m.o", "n.o", "k.o", "m.i", "k.i.o", "n.i", "k.i.i")
    return s


@pytest.mark.parametrize("rows", [2, 3])
def test_four_loops_become_a_product_of_matrices(rows: int) -> None:
    s = matrices(rows)
    s.tensorise("out", "m.i")
    s.vectorise("out", "n.i")
    assert "instruction tiles4:" in str(s.program())
    generator = np.random.default_rng(2)
    inputs = {
        "left": generator.integers(0, 256, (6, 8)).astype(np.uint8),
        "right": generator.integers(-128, 128, (8, 8)).astype(np.int8),
    }
    expected = inputs["left"].astype(int) @ inputs["right"] + 1
    np.testing.assert_array_equal(te.interpret(s.program(), inputs), expected)


def test_more_rows_than_the_instruction_has_are_refused() -> None:
    with pytest.raises(te.ScheduleError) as error:
        matrices(rows=6).tensorise("out", "m.i")
    assert str(error.value).startswith(
        "tensorise(out, m.i): the loops m.i, k.i.o, n.i, k.i.i of 6 x 2 x 4 x 2 match no "
        "instruction of `tiles` (tiles4 takes up to 3 rows, 2 groups, 4 lanes and 2 taps of "
        "uint8 * int8);"
    )


def test_only_the_lanes_of_an_instruction_are_vectorised() -> None:
    s = matrices()
    s.tensorise("out", "m.i")
    with pytest.raises(te.ScheduleError, match=r"`m\.i` lies inside the instruction of `out`"):
        s.vectorise("out", "m.i")


def test_an_instruction_needs_a_reduction_loop_around_it() -> None:
    s = product(inner=2)
    s.reorder("out", "m", "n.o", "n.i", "k.o", "k.i")
    s = te.Schedule(s.kernel, PROCESSOR)
    s.split("out", "n", 4)
    s.reorder("out", "m", "n.o", "n.i", "k")
    with pytest.raises(te.ScheduleError, match=r"at `n\.i` has all loops of the reduction; split"):
        s.tensorise("out", "n.i")


def test_buffers_lie_in_memory_or_registers() -> None:
    with pytest.raises(
        te.ScheduleError, match="`small` has no scope `ACT`; its scopes are DRAM, REGISTER"
    ):
        product().set_scope("out", "ACT")
    y, x = te.axes(y=4, x=4)
    image = te.tensor("image", "float32", (4, 4))
    out = te.compute("out", "float32", (y, x), image[y, x] * 2.0)
    s = te.Schedule(te.kernel("k", out), PROCESSOR)
    assert s.cache_write("out", "REGISTER") == "out.REGISTER"


def test_float32_numbers_mean_the_same_under_a_schedule() -> None:
    y, x = te.axes(y=4, x=6)
    (k,) = te.reduce_axes(k=3)
    image = te.tensor("image", "float32", (4, 6), pad=2)
    mean = te.sum(image[y + k - 1, x], over=k) / 3.0
    chosen = te.select(te.less(mean, 0.0), te.exp(mean), te.sqrt(mean) + te.sigmoid(mean))
    s = te.Schedule(te.kernel("k", te.compute("out", "float32", (y, x), chosen)))
    s.split("out", "x", 4)
    s.reorder("out", "y", "x.o", "k", "x.i")
    values = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    padded = np.pad(values.astype(float), ((1, 1), (0, 0)), constant_values=2)
    means = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    with np.errstate(invalid="ignore"):
        positive = np.sqrt(means) + 1 / (1 + np.exp(-means))
    expected = np.where(means < 0, np.exp(means), positive)
    np.testing.assert_allclose(evaluate(s.kernel, {"image": values}), expected, rtol=1e-6)
    np.testing.assert_allclose(te.interpret(s.program(), {"image": values}), expected, rtol=1e-5)


def test_integers_and_float32_numbers_do_not_mix() -> None:
    (x,) = te.axes(x=4)
    a, b = te.tensor("a", "float32", (4,)), te.tensor("b", "int32", (4,))
    with pytest.raises(CompileError, match="`exp` takes a float32 value, not `b"):
        te.exp(b[x])
    with pytest.raises(CompileError, match="`real` takes an integer value, not `a"):
        te.real(a[x])
    with pytest.raises(CompileError, match="`single` takes a float32 value, not `b"):
        te.single(b[x])
    with pytest.raises(CompileError, match="one of them float32"):
        te.select(te.less(a[x], 0.0), a[x], b[x])


def test_a_stage_inside_a_dot_product_is_refused() -> None:
    s = product()
    s.cache_read("right", "DRAM", "out")
    s.compute_at("right.DRAM", "out", "k.i")
    with pytest.raises(te.ScheduleError) as error:
        s.tensorise("out", "n.i")
    assert str(error.value) == (
        "tensorise(out, n.i): `right.DRAM` is computed at `k.i`, inside the instruction; compute "
        "it further out"
    )


@pytest.mark.parametrize(("columns", "apart"), [(1024, True), (1025, False)])
def test_a_sum_alone_is_formed_apart_from_the_output(columns: int, apart: bool) -> None:
    """Unless the tile of sums is too large for registers."""
    m, n = te.axes(m=3, n=columns)
    (k,) = te.reduce_axes(k=4)
    x = te.tensor("x", "float32", (3, 4, columns))
    out = te.compute("out", "float32", (m, n), te.sum(x[m, k, n], over=k))
    s = te.Schedule(te.kernel("sums", out), PROCESSOR)
    s.reorder("out", "m", "k", "n")
    assert (f"allocate out.sum: float32[1, {columns}]" in str(s.program())) is apart
    inputs = {"x": np.random.default_rng(0).standard_normal((3, 4, columns)).astype(np.float32)}
    found = te.interpret(s.program(), inputs)
    np.testing.assert_allclose(found, inputs["x"].sum(axis=1), atol=1e-5)

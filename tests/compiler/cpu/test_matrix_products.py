"""Sums in the tiles of AMX: their number, their shapes, and schedules that do not fit them."""

import re

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu import Declared, compile_kernel, generic
from tilewright.compiler.cpu.codegen.matrix_products import SumTiles, whole_tiles
from tilewright.compiler.cpu.execution.kernel import lower_description
from tilewright.compiler.cpu.kernels.tiles import MatrixTile, schedule_matrix_tiles
from tilewright.compiler.cpu.x86 import AMX as TILES
from tilewright.errors import CompileError

from ...processor import target_at
from .arrays import whole
from .assembly import assembly_of

AMX = generic("amx")


def product(high: int, row: int, panel: int, inner: int = 128) -> te.Schedule:
    """The sums of a product of bytes, in tiles of `high` rows by `panel` columns."""
    m, n = te.axes(m=2 * high, n=64)
    g, t = over = te.reduce_axes(g=inner // 4, t=4)
    left = te.tensor("left", "int8", (2 * high, inner))
    right = te.tensor("right", "int8", (inner // 4, 64, 4))
    out = te.compute("out", "int32", (m, n), te.sum(left[m, 4 * g + t] * right[g, n, t], over=over))
    s = te.Schedule(te.kernel("product", out), AMX.processor)
    s.split("out", "g", 16)
    order = "m.o n.o g.o"
    schedule_matrix_tiles(
        s, "out", (("m", MatrixTile(row, high // row)), ("n", panel)), order, 16, ("g.i", "t")
    )
    return s


@pytest.mark.parametrize(("high", "row", "panel"), [(16, 16, 32), (14, 7, 32), (48, 16, 16)])
def test_sums_are_those_of_the_definition(high: int, row: int, panel: int) -> None:
    s = product(high, row, panel)
    left, right = whole("int8", 2 * high, 128), whole("int8", 32, 64, 4)
    got = compile_kernel(Declared(s.kernel, str(s)), target_at("amx"))(left, right)
    matrix = right.swapaxes(1, 2).reshape(128, 64)
    np.testing.assert_array_equal(got, left.astype(np.int32) @ matrix)


def test_operands_are_loaded_once_per_step() -> None:
    s = product(32, 16, 32)
    _, lowered = lower_description(Declared(s.kernel, str(s)), AMX)
    text = assembly_of(lowered.text, AMX)
    assert len(re.findall(r"\ttileloadd\t", text)) == len(re.findall(r"\ttdpbssd\t", text)) == 4


@pytest.mark.parametrize(
    ("high", "row", "panel", "sums"),
    [
        (8, 4, 64, "8 x 64"),
        (14, 2, 32, "14 x 32"),
        (64, 16, 32, "128 x 64"),
        (48, 16, 32, "96 x 64"),
    ],
)
def test_more_sums_than_tiles_hold_are_refused(high: int, row: int, panel: int, sums: str) -> None:
    s = product(high, row, panel)
    with pytest.raises(CompileError, match=f"has {sums} sums, more than the tiles hold"):
        lower_description(Declared(s.kernel, str(s)), AMX)


def test_sums_in_another_order_are_refused() -> None:
    """The output is transposed, so lanes are not side by side."""
    m, n = te.axes(n=16, m=16)[::-1]
    g, t = over = te.reduce_axes(g=32, t=4)
    left, right = te.tensor("left", "int8", (16, 128)), te.tensor("right", "int8", (32, 16, 4))
    out = te.compute("out", "int32", (n, m), te.sum(left[m, 4 * g + t] * right[g, n, t], over=over))
    s = te.Schedule(te.kernel("product", out), AMX.processor)
    s.split("out", "g", 16)
    sizes = ("m", MatrixTile(16, 1)), ("n", 16)
    schedule_matrix_tiles(s, "out", sizes, "m.o n.o g.o", 16, ("g.i", "t"))
    with pytest.raises(CompileError, match=r"rows and lanes of `out.*` must be the last two"):
        lower_description(Declared(s.kernel, str(s)), AMX)


def test_products_of_products_have_their_own_sums() -> None:
    """A stage may be computed in a loop of its reader, but not inside its reader's reduction."""
    m, k = te.axes(m=32, k=64)
    g, t = over = te.reduce_axes(g=32, t=4)
    first, second = te.tensor("a", "int8", (32, 128)), te.tensor("b", "int8", (32, 64, 4))
    sums = te.sum(first[m, 4 * g + t] * second[g, k, t], over=over)
    hidden = te.compute("hidden", "int8", (m, k), te.maximum(te.minimum(sums, 127), -128))
    m, n = te.axes(m=32, n=32)
    g, t = over = te.reduce_axes(g=16, t=4)
    third = te.tensor("c", "int8", (16, 32, 4))
    out = te.compute(
        "out", "int32", (m, n), te.sum(hidden[m, 4 * g + t] * third[g, n, t], over=over)
    )
    kernel = te.kernel("products", out)

    def schedule(place: str) -> te.Schedule:
        s = te.Schedule(kernel, AMX.processor)
        for stage, rows, columns in (("hidden", "m", "k"), ("out", "m", "n")):
            s.split(stage, "g", 16)
            sizes, order = (
                ((rows, MatrixTile(16, 1)), (columns, 32)),
                f"m.o {columns}.o g.o",
            )
            schedule_matrix_tiles(s, stage, sizes, order, 16, ("g.i", "t"))
        s.compute_at("hidden", "out", place)
        return s

    a, b, c = whole("int8", 32, 128), whole("int8", 32, 64, 4), whole("int8", 16, 32, 4)
    middle = np.clip(a.astype(np.int64) @ b.swapaxes(1, 2).reshape(128, 64), -128, 127)
    expected = middle @ c.swapaxes(1, 2).reshape(64, 32)
    s = schedule("m.o")
    got = compile_kernel(Declared(kernel, str(s)), target_at("amx"))(a, b, c)
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(CompileError, match=r"`hidden\.sum` is computed while the sums of"):
        lower_description(Declared(kernel, str(schedule("g.o"))), AMX)


def test_a_tile_that_is_known_only_at_run_time_is_refused() -> None:
    s = product(32, 16, 32)
    steps = [line for line in str(s).splitlines() if line != "unroll(out, m.i.o)"]
    with pytest.raises(CompileError, match=r"tdpbssd: the tile of `out.*` is known only at run"):
        lower_description(Declared(s.kernel, "\n".join(steps)), AMX)


def test_shapes_are_those_of_the_operand_of_ldtilecfg() -> None:
    """Table 3-10 of Intel's manual: palette, start row, 14 bytes of 0, widths, 16 bytes, rows."""
    shapes = SumTiles(TILES, rows=13, down=2, across=2).shapes
    assert len(shapes) == 64
    assert shapes[:16] == bytes([1] + [0] * 15)
    assert shapes[16:32] == bytes([64, 0] * 8)
    assert shapes[48:56] == bytes([13] * 6 + [16] * 2)
    assert not any(shapes[32:48] + shapes[56:])


@pytest.mark.parametrize(
    ("shape", "rows", "expected"),
    [
        ((1, 1, 17, 21), 9, (1, 1, 18, 32)),
        ((1, 2, 7, 32), 7, (1, 2, 7, 32)),
        ((1, 25, 1, 16), 13, (1, 26, 1, 16)),
        ((1, 1, 1, 5), 4, (1, 1, 4, 16)),
    ],
)
def test_sums_take_whole_tiles(shape: tuple, rows: int, expected: tuple) -> None:
    assert whole_tiles(shape, rows, TILES) == expected

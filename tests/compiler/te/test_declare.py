"""Declarations become the compiler's kernels, and mistakes are named where they are made."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.tensor import Axis, evaluate
from tilewright.errors import CompileError
from tilewright.isa.expressions import Affine, Call, Literal, Op, Reduction

N, Y, X, C = te.axes(n=1, y=6, x=5, o=4)
KY, KX, K = te.reduce_axes(ky=3, kx=2, i=4)
IMAGE = te.tensor("image", "int8", (1, 6, 5, 4), pad=3)
WEIGHTS = te.tensor("w", "int8", (3, 2, 4, 4))
SCALE = te.tensor("scale", "float32", (4,))
ROW: Any = Y
ELEMENT: Any = IMAGE[N, Y, X, C]


def test_a_convolution_is_the_kernel_that_its_formula_says():
    total = te.sum(
        IMAGE[N, Y * 2 + KY - 1, X + 2 * KX, K] * WEIGHTS[KY, KX, K, C], over=(KY, KX, K)
    )
    y = te.axes(y=3)[0]
    acc = te.compute(
        "acc",
        "int32",
        (N, y, X, C),
        te.sum(IMAGE[N, y * 2 + KY - 1, X + 2 * KX, K] * WEIGHTS[KY, KX, K, C], over=(KY, KX, K)),
    )
    out = te.compute("out", "int32", (N, y, X, C), acc[N, y, X, C] + 1)
    kernel = te.kernel("conv", out, {"w": np.ones((3, 2, 4, 4), dtype=np.int8)})
    assert str(total).startswith("sum((image[n, ky + 2*y - 1, 2*kx + x, i] * w[ky, kx, i, o]))")
    assert [stage.output.name for stage in kernel.stages] == ["acc", "out"]
    assert kernel.stages[0].reductions == (Axis("ky", 3), Axis("kx", 2), Axis("i", 4))
    assert kernel.inputs == ("image",)
    assert kernel.macs == 3 * 5 * 4 * 24

    image = np.arange(120, dtype=np.int8).reshape(1, 6, 5, 4)
    padded = np.pad(image, ((0, 0), (1, 1), (0, 4), (0, 0)), constant_values=3).astype(np.int32)
    expected = np.zeros((1, 3, 5), dtype=np.int32)
    for ky in range(3):
        for kx in range(2):
            expected += padded[:, ky : ky + 5 : 2, 2 * kx : 2 * kx + 5].sum(axis=3)
    got = evaluate(kernel, {"image": image})
    np.testing.assert_array_equal(got, np.repeat(expected[..., None], 4, axis=3) + 1)


def test_numbers_stand_where_the_instructions_expect_them():
    element = IMAGE[N, Y, X, C]
    assert (3 * element).tree == Call(Op.MULTIPLY, (element.tree, Literal(3)))
    assert (5 - element).tree == Call(
        Op.ADD, (Call(Op.MULTIPLY, (element.tree, Literal(-1))), Literal(5))
    )
    largest = te.max(te.minimum(IMAGE[N, Y, X + KX, C], 7), over=KX)
    assert isinstance(largest.tree, Reduction)
    assert largest.tree.op is Op.MAXIMUM
    assert (1 - (Y - 2)).affine == Affine.of(3, y=-1)


def test_two_readers_of_a_stage_share_it():
    first = te.compute("first", "int32", (Y,), IMAGE[0, Y, 0, 0] * 2)
    second = te.compute("second", "int32", (Y,), first[Y] + 1)
    kernel = te.kernel("diamond", te.compute("out", "int32", (Y,), first[Y] + second[Y]))
    assert [stage.output.name for stage in kernel.stages] == ["first", "second", "out"]


def declared(value, axes=(N, Y, X, C), dtype="int32"):
    return te.compute("out", dtype, axes, value)


MISTAKES = {
    "too few indices": (
        lambda: IMAGE[N, Y, X],
        "tensor `image` has 4 dimensions, indexed with 3",
    ),
    "a product of axes": (
        lambda: IMAGE[N, ROW * X, X, C],
        "index `y * x` is not affine; an index is a sum of axes times whole numbers, plus a whole "
        "number",
    ),
    "a quotient of an axis": (
        lambda: IMAGE[N, ROW // 2, X, C],
        "index `y // 2` is not affine; an index is a sum of axes times whole numbers, plus a whole "
        "number",
    ),
    "a fraction": (
        lambda: IMAGE[N, ROW * 0.5, X, C],
        "index `y * 0.5` is not affine; an index is a sum of axes times whole numbers, plus a "
        "whole number",
    ),
    "an element as an index": (
        lambda: IMAGE[N, ELEMENT, X, C],
        "tensor `image` is indexed with `image[n, y, x, o]`; an index is a sum of axes times "
        "whole numbers, plus a whole number",
    ),
    "an index as an element": (
        lambda: ELEMENT + Y,
        "`+` takes tensor elements; `y` is an index",
    ),
    "an axis without extent": (
        lambda: te.axes(y=-1),
        "axis `y` must have a whole extent, 0 or more, not -1",
    ),
    "an unknown axis": (
        lambda: declared(IMAGE[N, Y, X, C], axes=(N, Y, X)),
        "compute `out`: axis `o` in `image[n, y, x, o]` is unknown; the axes of `out` are n, y, x",
    ),
    "a reduction axis that is not reduced over": (
        lambda: declared(IMAGE[N, Y + KY, X, C]),
        "compute `out`: axis `ky` in `image[n, ky + y, x, o]` is unknown; reduce over it with "
        "`sum` or `max`",
    ),
    "a reduction axis outside the reduction": (
        lambda: declared(te.sum(IMAGE[N, Y, X, K], over=K) + IMAGE[N, Y, X, K]),
        "compute `out`: reduction axis `i` also occurs outside the reduction in "
        "`(sum(image[n, y, x, i]) + image[n, y, x, i])`",
    ),
    "a data axis that is reduced over": (
        lambda: te.sum(IMAGE[N, Y, X, C], over=C),
        "`sum` over `o`, which is a data axis; make it with `reduce_axes`",
    ),
    "a reduction axis as a data axis": (
        lambda: declared(IMAGE[N, Y, X, K], axes=(N, Y, X, K)),
        "compute `out`: `i` is a reduction axis; make data axes with `axes`",
    ),
    "one name for a data axis and a reduction axis": (
        lambda: declared(te.sum(IMAGE[N, Y, X, K], over=K), axes=(N, Y, X, *te.axes(i=4))),
        "axis `i` is used as a data axis and as a reduction axis; give one of them another name",
    ),
    "one name with two extents": (
        lambda: declared(IMAGE[N, Y, X, C], axes=(N, Y, X, *te.axes(o=8))),
        "axis `o` has extents 8 and 4 in one expression; give one of them another name",
    ),
    "an index where an axis is needed": (
        lambda: declared(IMAGE[N, Y, X, C], axes=(N, Y + 1, X, C)),
        "compute `out` takes axes themselves, not `y + 1`",
    ),
    "an axis twice": (
        lambda: declared(IMAGE[N, Y, X, 0], axes=(N, Y, Y)),
        "compute `out`: its axes n, y, y must differ",
    ),
    "two reductions in one stage": (
        lambda: te.sum(IMAGE[N, Y, X, K], over=K) + te.sum(IMAGE[N, KY, X, C], over=KY),
        "`+` of two reductions, `sum(image[n, y, x, i])` and `sum(image[n, ky, x, o])`; make a "
        "stage of one",
    ),
    "a reduction of a reduction": (
        lambda: te.max(te.sum(IMAGE[N, Y + KY, X, K], over=K), over=KY),
        "`max` of `sum(image[n, ky + y, x, i])`, which already contains a reduction; make it "
        "a stage",
    ),
    "a reduction over nothing": (
        lambda: te.sum(IMAGE[N, Y, X, C], over=()),
        "`sum` of `image[n, y, x, o]` needs reduction axes, each once",
    ),
    "an unknown type": (
        lambda: te.tensor("x", "uint4", (4,)),
        "tensor `x`: dtype must be int8, uint8, int16, int32, int64, bool, bfloat16, float16 or "
        "float32, not 'uint4'",
    ),
    "a shape without dimensions": (
        lambda: te.tensor("x", "int8", ()),
        "tensor `x`: shape must be whole numbers, 0 or more, and not empty, not ()",
    ),
    "a pad that does not fit": (
        lambda: te.tensor("x", "int8", (4,), pad=200),
        "tensor `x`: pad 200 does not fit int8 (-128..127)",
    ),
    "arithmetic on a scale": (
        lambda: IMAGE[N, Y, X, C] * SCALE[C],
        "`*` of float32 numbers and the integer `image[n, y, x, o]`; convert that with `real`",
    ),
    "a whole number as a scale": (
        lambda: te.requantise(IMAGE[N, Y, X, C], WEIGHTS[0, 0, 0, C]),
        "requantise takes its scale from a float32 tensor, not `w[0, 0, 0, o]`",
    ),
    "a scale beyond its tensor": (
        lambda: declared(te.requantise(IMAGE[N, Y, X, C], SCALE[C + 1])),
        "compute `out`: `scale[o + 1]` reaches 1..4 of 4 elements; scales have no padding",
    ),
    "a stage of floats": (
        lambda: declared(IMAGE[N, Y, X, C], dtype="float32"),
        "compute `out`: the stage is float32 and `image[n, y, x, o]` is an integer; convert it "
        "with `real`",
    ),
    "bounds of a clamp": (
        lambda: te.clamp(IMAGE[N, Y, X, C], 0, 255),
        "clamp of `image[n, y, x, o]`: bounds 0..255 must be ordered and lie in -128..127",
    ),
    "a table of another size": (
        lambda: te.lookup(SCALE, IMAGE[N, Y, X, C]),
        "lookup takes a table of int8[256]; `scale` is float32[4]",
    ),
    "a constant beyond 32 bits": (
        lambda: IMAGE[N, Y, X, C] + (1 << 31),
        "constant 2147483648 does not fit int32",
    ),
    "a kernel that computes nothing": (
        lambda: te.kernel("k", IMAGE),
        "kernel `k`: `image` is given, not computed",
    ),
    "a constant of no tensor": (
        lambda: te.kernel("k", declared(IMAGE[N, Y, X, C]), {"w": np.zeros(4)}),
        "kernel `k`: constant `w` is not one of its tensors",
    ),
    "a constant of another shape": (
        lambda: te.kernel("k", declared(IMAGE[N, Y, X, C]), {"image": np.zeros(4)}),
        "kernel `k`: constant `image` is float64[4], declared as int8[1, 6, 5, 4]",
    ),
    "two tensors of one name": (
        lambda: te.kernel(
            "k",
            declared(IMAGE[N, Y, X, C] + te.tensor("image", "int8", (1, 6, 5, 4))[N, Y, X, C]),
        ),
        "kernel `k`: two tensors are named `image`; rename one",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    make, message = MISTAKES[mistake]
    with pytest.raises(CompileError) as caught:
        make()
    assert str(caught.value) == message


def test_a_tensor_may_be_taken_from_a_value() -> None:
    """Two heads in the channels of an activation, and its pixels of every other row."""
    view = te.View(((0, 1), (3, 4), (2, 1), (3, 1)))
    heads = te.tensor("heads", "int8", (1, 2, 5, 4), of="x", by=view).tensor
    image = np.arange(1 * 1 * 5 * 8, dtype=np.int8).reshape(1, 1, 5, 8)
    assert heads.view is not None
    taken = heads.view.take(image, heads.shape)
    np.testing.assert_array_equal(taken[0, 1], image[0, 0, :, 4:])
    patches = te.Patches(rows=1, run=8, pixels=1, row_step=2, column_step=1, dilation=1)
    rows = te.tensor("rows", "int8", (1, 3, 5, 8), of="x", by=patches).tensor
    assert (rows.value, rows.patches, rows.view) == ("x", patches, None)

"""Loops become the instruction whose law they match; what matches none is refused by name."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.matching import MatchedInstruction, find_pattern, lane_axes
from tilewright.compiler.accelerator.tensorise import Tensoriser
from tilewright.compiler.accelerator.tile_layout import Buffer, TileLayout, dense_layout
from tilewright.compiler.tensor import Axis, Compute, Kernel, Tensor, evaluate
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.expressions import Affine, Call, Op, Reduction
from tilewright.isa.instructions import Gemm, Loop, Vector
from tilewright.isa.semantics import Machine

CONFIGURATION = PRESETS["4x4"]


def axis(name: str) -> Affine:
    return Affine.of(**{name: 1})


def dense(extents):
    return dict(zip(extents, dense_layout(tuple(extents.values())), strict=True))


def tensorise(compute, tile, buffers, configuration, accumulate=False):
    memories = {name: buffer.memory for name, buffer in buffers.items()}
    pattern, found = find_pattern(compute, {name: (at,) for name, at in memories.items()})
    axes = lane_axes(pattern, compute, found)
    lanes = {one: (pattern.lanes[lane],) for lane, one in axes.items() if one is not None}
    matched = MatchedInstruction(pattern, found, None, lanes, ())
    made = Tensoriser(matched, compute, memories, configuration)
    (form,) = made.forms(tile, buffers, accumulate)
    return form.at(buffers)


def matrix_product(rows: int, depth: int, columns: int) -> tuple[Compute, dict[str, Tensor]]:
    """`c[m, o] = sum(a[m, i] * b[i, o])`."""
    a, b = Tensor("a", "int8", (rows, depth)), Tensor("b", "int8", (depth, columns))
    c = Tensor("c", "int32", (rows, columns))
    product = Call(Op.MULTIPLY, (a[(axis("m"), axis("i"))], b[(axis("i"), axis("o"))]))
    axes = (Axis("m", rows), Axis("o", columns))
    compute = Compute(c, axes, (Axis("i", depth),), Reduction(Op.ADD, product))
    return compute, {"a": a, "b": b, "c": c}


def test_a_matrix_product_written_by_hand_runs_as_gemm():
    """A user's operator: written as an expression, placed in buffers, and executed."""
    compute, tensors = matrix_product(6, 8, 12)
    buffers = {
        "a": Buffer(Memory.ACT, 0, dense({"m": 6, "i": 8})),
        "b": Buffer(Memory.WGT, 0, {"i": TileLayout(4, 4, 16), "o": TileLayout(1, 4, 32)}),
        "c": Buffer(Memory.ACC, 0, {"m": TileLayout(12), "o": TileLayout(1)}),
    }
    (gemm,) = tensorise(compute, {"m": 6, "i": 8, "o": 12}, buffers, CONFIGURATION)
    assert isinstance(gemm, Gemm)
    assert gemm.row_loops == (Loop(6, (2, 3)),)
    assert gemm.tile_loops == (Loop(3, (0, 2, 1)), Loop(2, (1, 1, 0)))

    generator = np.random.default_rng(0)
    a = generator.integers(-128, 128, (6, 8)).astype(np.int8)
    b = generator.integers(-128, 128, (8, 12)).astype(np.int8)
    machine = Machine(CONFIGURATION, np.zeros(1, dtype=np.uint8))
    machine.memories[Memory.ACT][:48] = a.reshape(-1).view(np.uint8)
    tiles = b.reshape(2, 4, 3, 4).transpose(2, 0, 1, 3)
    machine.memories[Memory.WGT][:96] = np.ascontiguousarray(tiles).reshape(-1).view(np.uint8)
    machine.execute(gemm)
    got = machine.view(Memory.ACC)[:18].reshape(6, 12)
    kernel = Kernel("product", (compute,), tensors)
    np.testing.assert_array_equal(got, evaluate(kernel, {"a": a, "b": b}))
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def test_later_chunks_of_a_reduction_accumulate():
    compute, _ = matrix_product(6, 4, 4)
    buffers = {
        "a": Buffer(Memory.ACT, 0, dense({"m": 6, "i": 4})),
        "b": Buffer(Memory.WGT, 0, {"i": TileLayout(4), "o": TileLayout(1)}),
        "c": Buffer(Memory.ACC, 0, dense({"m": 6, "o": 4})),
    }
    tile = {"m": 6, "i": 4, "o": 4}
    (gemm,) = tensorise(compute, tile, buffers, CONFIGURATION, accumulate=True)
    assert isinstance(gemm, Gemm)
    assert gemm.accumulate


def test_contiguous_loops_are_fused():
    x, out = Tensor("x", "int8", (3, 5, 8)), Tensor("out", "int8", (3, 5, 8))
    index = (axis("y"), axis("x"), axis("c"))
    compute = Compute(out, (Axis("y", 3), Axis("x", 5), Axis("c", 8)), (), x[index])
    extents = {"y": 3, "x": 5, "c": 8}
    buffers = {
        "x": Buffer(Memory.ACT, 0, dense(extents)),
        "out": Buffer(Memory.ACT, 4096, dense(extents)),
    }
    (vector,) = tensorise(compute, extents, buffers, CONFIGURATION)
    assert isinstance(vector, Vector)
    assert vector.map_loops == (Loop(30, (1, 1, 0, 0)),)


def test_an_expression_that_no_instruction_computes_is_refused():
    x, out = Tensor("x", "int8", (8,)), Tensor("out", "int8", (8,))
    cube = Call(Op.MULTIPLY, (Call(Op.MULTIPLY, (x[(axis("c"),)],) * 2), x[(axis("c"),)]))
    with pytest.raises(CompileError) as caught:
        find_pattern(Compute(out, (Axis("c", 8),), (), cube))
    assert str(caught.value) == (
        "compute `out`: no instruction matches `((x[c] * x[c]) * x[c])`; "
        "split it into stages that one instruction each can do"
    )


def test_an_operand_in_the_wrong_memory_is_refused():
    compute, _ = matrix_product(6, 4, 4)
    buffers = {
        "a": Buffer(Memory.WGT, 0, dense({"m": 6, "i": 4})),
        "b": Buffer(Memory.WGT, 0, {"i": TileLayout(4), "o": TileLayout(1)}),
        "c": Buffer(Memory.ACC, 0, dense({"m": 6, "o": 4})),
    }
    with pytest.raises(CompileError) as caught:
        tensorise(compute, {"m": 6, "i": 4, "o": 4}, buffers, CONFIGURATION)
    assert str(caught.value) == ("compute `c`: tensor `a` lies in WGT; gemm takes `act` from ACT")

"""Bytes that are moved, or converted on the way, bit for bit what the definition says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.cpu import LEVELS, host
from tilewright.compiler.graph import Builder, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import (
    Dequantize,
    QConcat,
    QMaxPool,
    QResize,
    QSlice,
    Quantize,
    Transpose,
)
from tilewright.compiler.host import HostScope
from tilewright.compiler.host.integer_movements import match_transpose

from ...processor import levels, target_at
from .agreement import run_kernels, selected
from .integer_graphs import assert_same, of_layer, seeds, small


@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), levels, seeds)
@settings(max_examples=20)
def test_parts_are_joined(channels: list[int], level: str, seed: int) -> None:
    assert_same(of_layer(QConcat(3), [(1, 4, 5, depth) for depth in channels]), level, seed)


def test_long_pieces_are_left_to_the_definition() -> None:
    for axis, shape in ((1, (1, 8, 8, 16)), (3, (1, 8, 8, 3000))):
        assert selected(of_layer(QConcat(axis), [shape] * 2)) == ()


@given(st.tuples(small, small), st.integers(1, 90), levels, seeds)
@settings(max_examples=10)
def test_pixels_are_repeated(factors: tuple[int, int], channels: int, level: str, seed) -> None:
    assert_same(of_layer(QResize(factors), [(2, 3, 4, channels)]), level, seed)


@given(st.data())
@settings(max_examples=20)
def test_slices_are_cut(data) -> None:
    shape = (2, 6, 7, data.draw(st.integers(1, 90)))
    starts = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    stops = tuple(
        data.draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)
    )
    layer = QSlice(starts, stops, (1, data.draw(small), data.draw(small), 1))
    assert_same(of_layer(layer, [shape]), data.draw(levels), data.draw(seeds))


@given(st.permutations(range(4)), st.integers(1, 70), levels, seeds)
@settings(max_examples=15)
def test_bytes_are_transposed(order: list[int], channels: int, level: str, seed: int) -> None:
    assert_same(of_layer(Transpose(tuple(order)), [(2, 5, 3, channels)]), level, seed)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1, 3, 9, 35), (2, 40, 3, 3)])
def test_images_are_quantised_and_transposed_in_one_kernel(shape, level: str) -> None:
    builder = Builder("border", [Value("a", TensorType("float32", shape))])
    made = builder.emit(Quantize((0.02,), (-7,), "int8"), ["a"])
    made = builder.emit(Transpose((0, 2, 3, 1)), [made])
    middle = builder.emit(QMaxPool((1, 1), (1, 1), (0, 0, 0, 0)), [made])
    made = builder.emit(Transpose((0, 3, 1, 2)), [middle])
    made = builder.emit(Dequantize((0.02,), (-7,)), [made])
    graph = builder.graph([Output("out", made)])
    image = np.random.default_rng(1).normal(0, 1.5, shape).astype(np.float32)
    image.reshape(-1)[:7] = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.05, -0.05]
    inputs, target = {"a": image}, target_at(level)
    assert [len(kernel.nodes) for kernel in selected(graph, target)] == [2, 1, 2]
    got, expected = run_kernels(graph, inputs, target), evaluate(graph, inputs, [middle])
    np.testing.assert_array_equal(got[middle], expected[middle])
    np.testing.assert_array_equal(got[made], expected["out"])


def test_scales_along_an_axis_and_other_types_are_left_to_others() -> None:
    builder = Builder("border", [Value("a", TensorType("float32", (1, 2, 3, 4)))])
    made = builder.emit(Quantize((0.1, 0.2), (0, 1), "int8", 1), ["a"])
    node = builder.producer(made)
    moved = builder.emit(Transpose((0, 2, 3, 1)), [made])
    graph = builder.graph([Output("out", moved)])
    assert node is not None
    assert match_transpose(HostScope(graph, frozenset([made, moved]), host()), node) is None

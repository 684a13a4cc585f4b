"""Taps that meet only padding go, and results keep their bits."""

import tracemalloc

import numpy as np
import pytest

from tilewright.compiler import passes
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.compiler.graph import operators as ops

WINDOWS = {
    "far": ((14, 14), (3, 3), (1, 1), (14, 14, 14, 14), (14, 14), (1, 1)),
    "far along rows": ((20, 4), (3, 3), (1, 1), (2, 5, 2, 5), (2, 5), (3, 1)),
    "near": ((14, 14), (3, 3), (1, 1), (12, 12, 12, 12), (12, 12), (3, 3)),
    "with steps": ((6, 7), (5, 3), (2, 3), (8, 9, 8, 9), (4, 9), (3, 1)),
    "a side": ((5, 5), (4, 2), (1, 1), (6, 0, 0, 1), (2, 1), (3, 2)),
    "first taps": ((3, 6), (3, 3), (9, 1), (6, 1, 0, 1), (3, 1), (1, 3)),
}
"""Extents, window, strides, pads, dilations, and the window that is left."""


def random_image(kind: TensorType) -> np.ndarray:
    random = np.random.default_rng(3)
    if kind.dtype == "int8":
        return random.integers(-128, 128, kind.shape).astype(np.int8)
    return random.standard_normal(kind.shape).astype(np.float32)


def trimmed(graph: Graph) -> Graph:
    """The graph after the pass, with equal results."""
    after = verify(passes.trim_windows(graph))
    inputs = {value.name: random_image(value.type) for value in graph.inputs}
    np.testing.assert_array_equal(evaluate(after, inputs)["y"], evaluate(graph, inputs)["y"])
    return after


def float_graph(
    size: tuple[int, ...], w: np.ndarray, steps: tuple, pads: tuple, dilations: tuple
) -> Graph:
    builder = Builder("window", (Value("x", TensorType("float32", (2, w.shape[1], *size))),))
    conv = ops.Conv(steps, pads, dilations, 1)
    return builder.graph([Output("y", builder.emit(conv, ["x", builder.constant(w, "w")]))])


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_float_windows_lose_taps_on_padding(window) -> None:
    size, kernel, steps, pads, dilations, left = window
    w = np.random.default_rng(1).standard_normal((4, 3, *kernel)).astype(np.float32)
    graph = float_graph(size, w, steps, pads, dilations)
    after = trimmed(graph)
    assert after.data(after.nodes[0].inputs[1]).shape[2:] == left
    assert (after == graph) is (left == kernel)


@pytest.mark.parametrize("zero", [0, -128, 77])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_quantised_windows_pad_with_the_zero_point(window, zero: int) -> None:
    size, kernel, steps, pads, dilations, left = window
    random = np.random.default_rng(2)
    w = random.integers(-128, 128, (*kernel, 3, 5)).astype(np.int8)
    bias = random.integers(-999, 999, 5) - zero * w.sum(axis=(0, 1, 2), dtype=np.int64)
    builder = Builder(
        "window", (Value("x", TensorType("int8", (2, *size, 3), Quantisation(0.1, zero))),)
    )
    constants = {"w": w, "b": bias.astype(np.int32), "s": np.full(5, 0.004, np.float32)}
    operands = [builder.constant(array, name) for name, array in constants.items()]
    conv = ops.QConv("conv", steps, pads, dilations, 1, zero, 3)
    made = builder.emit(conv, ["x", *operands], quantisation=Quantisation(0.05, 3))
    graph = builder.graph([Output("y", made)])
    after = trimmed(graph)
    assert after.data(after.nodes[0].inputs[1]).shape[:2] == left


def test_lines_and_volumes_lose_taps() -> None:
    w = np.ones((2, 1, 3), np.float32)
    after = trimmed(float_graph((4,), w, (1,), (9, 9), (9,)))
    assert after.nodes[0].attributes == ops.Conv((1,), (0, 0), (1,), 1)
    w = np.ones((2, 1, 1, 1, 3), np.float32)
    after = trimmed(float_graph((2, 3, 4), w, (1, 1, 1), (0, 0, 9, 0, 0, 9), (1, 1, 9)))
    assert after.data(after.nodes[0].inputs[1]).shape[2:] == (1, 1, 1)


def test_long_windows_over_long_lines_take_little_memory() -> None:
    graph = float_graph((1 << 20,), np.ones((1, 1, 4096), np.float32), (1,), (4095, 0), (1,))
    tracemalloc.start()
    after = passes.trim_windows(graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after == graph
    assert peak < 1 << 20


def test_taps_that_are_not_finite_stay() -> None:
    """Padding times infinity is NaN."""
    w = np.ones((2, 1, 3), np.float32)
    w[0, 0, 0] = np.inf
    graph = float_graph((4,), w, (1,), (9, 9), (9,))
    assert verify(passes.trim_windows(graph)) == graph

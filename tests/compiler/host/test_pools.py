"""Float pooling as kernels: every divisor, border and layout of channels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tilewright.compiler.cpu import compile_kernel
from tilewright.compiler.cpu.kernels.pooling import Pooling
from tilewright.compiler.frontend import recognise_layers
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.errors import CompileError

from ...processor import VECTOR_LEVELS, target_at
from ..onnx_models import model as onnx_model
from ..onnx_models import run_onnxruntime
from ..onnx_models import value as onnx_value
from .agreement import assert_agrees, run_kernels, selected

NO_PADS = (0, 0, 0, 0)


def pooled(operator: ops.Operator, *shape: int, dtype: str = "float32") -> Graph:
    """A graph of one operator."""
    builder = Builder("pools", [Value("x", TensorType(dtype, shape))])
    return builder.graph([Output("y", builder.emit(operator, ["x"]))])


def sample(graph: Graph) -> dict[str, np.ndarray]:
    shape = graph.inputs[0].type.shape
    return {"x": np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)}


@settings(max_examples=30)
@given(data=st.data())
def test_windows_of_any_shape(data: st.DataObject) -> None:
    draw = data.draw
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    high, wide = (st.integers(0, extent - 1) for extent in kernel)
    pads = draw(st.tuples(high, wide, high, wide))
    size = [k + draw(st.integers(0, 9)) for k in kernel]
    average = draw(st.booleans())
    if average:
        past = [st.integers(0, k - 1 - pad) for k, pad in zip(kernel, pads[2:], strict=True)]
        overhang = draw(st.tuples(past[0], past[1]))
        operator = ops.AveragePool(
            kernel, strides, pads, draw(st.booleans()), overhang, channels_last=True
        )
    else:
        dilation = draw(st.integers(1, 2))
        size = [s + k for s, k in zip(size, kernel, strict=True)]
        operator = ops.MaxPool(kernel, strides, pads, (dilation, 1), channels_last=True)
    channels = draw(st.sampled_from([1, 3, 16, 21, 33, 64]))
    graph = pooled(operator, draw(st.integers(1, 2)), *size, channels)
    tolerance = 1e-6 if average else 0.0
    (kernel,) = assert_agrees(graph, sample(graph), absolute=tolerance)
    assert kernel.exact != average


INDEXED = {
    "2x2": ((2, 6, 8), ((2, 2), (2, 2), NO_PADS, (1, 1))),
    "3x3": ((1, 9, 7), ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))),
    "dilated": ((1, 9, 9), ((2, 3), (1, 2), (0, 2, 1, 0), (3, 2))),
}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("channels", [1, 5, 16, 37])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_are_those_of_the_first_maximum(name: str, channels: int, level: str) -> None:
    (images, rows, columns), window = INDEXED[name]
    graph = pooled(ops.MaxPoolIndices(*window, channels_last=True), images, rows, columns, channels)
    x = np.random.default_rng(channels).integers(-2, 3, (images, rows, columns, channels))
    x = x.astype(np.float32)
    x.reshape(-1)[:: 2 * channels + 9] = np.nan
    x.reshape(-1)[5 :: 3 * channels + 7] = np.inf
    (kernel,) = selected(graph, target_at(level))
    (expected,) = evaluate(graph, {"x": x}).values()
    got = run_kernels(graph, {"x": x}, target_at(level))[graph.outputs[0].value]
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, expected)
    assert kernel.exact == (window[2] == NO_PADS)


def test_an_unpooled_image_is_that_of_onnxruntime() -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 5, 8, 10)).astype(np.float32)
    window: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [2, 3], "pads": [0, 1, 0, 1]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], **window),
        helper.make_node("Neg", ["p"], ["q"]),
        helper.make_node("MaxUnpool", ["q", "i"], ["y"], **window),
    ]
    model = onnx_model(nodes, [onnx_value("x", np.float32, x.shape)], ["y", "i"], opset=11)
    graph = recognise_layers(import_onnx(model.SerializeToString()))
    assert not any(isinstance(node.attributes, ops.OnnxReference) for node in graph.nodes)
    wanted = run_onnxruntime(model, {"x": x})
    values = run_kernels(graph, {"x": x})
    for output in graph.outputs:
        np.testing.assert_array_equal(values[output.value], wanted[output.name])


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("channels", [5, 16, 70, 256])
def test_a_whole_image_on_every_feature_set(channels: int, level: str) -> None:
    layer = Pooling(2, 11, 13, channels, (11, 13), average=True)
    x = np.random.default_rng(channels).standard_normal((2, 11, 13, channels), np.float32)
    got = compile_kernel(layer, target_at(level))(x)
    expected = x.astype(np.float64).mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax"])
def test_a_reduction_over_the_pixels_is_a_pool(kind: str, keep: bool) -> None:
    graph = pooled(ops.Reduce(kind, (1, 2), keep), 2, 9, 5, 40)
    absolute = 1e-6 if kind == "ReduceMean" else 0.0
    (kernel,) = assert_agrees(graph, sample(graph), absolute=absolute)
    assert isinstance(kernel.description, Pooling)


def test_the_largest_of_negative_numbers_beside_padding() -> None:
    operator = ops.MaxPool((3, 3), (2, 2), (1, 1, 1, 1), channels_last=True)
    graph = pooled(operator, 1, 8, 8, 20)
    assert_agrees(graph, {"x": -1 - np.abs(sample(graph)["x"])})


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_a_window_with_a_nan_has_no_largest_number(level: str) -> None:
    x = np.random.default_rng(5).standard_normal((1, 9, 10, 20)).astype(np.float32)
    x[0, ::4, ::3, ::2] = np.nan
    got = compile_kernel(Pooling(1, 9, 10, 20, (2, 2), (1, 1)), target_at(level))(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2))
    np.testing.assert_array_equal(got, windows.max(axis=(4, 5)))
    assert 0.1 < np.isnan(got).mean() < 0.9


@pytest.mark.parametrize(
    "graph",
    [
        pooled(ops.MaxPool((2, 2), (2, 2), NO_PADS), 1, 8, 8, 64),
        pooled(ops.AveragePool((2, 2), (2, 2), NO_PADS), 1, 8, 8, 64),
        pooled(ops.MaxPool((2, 2), (2, 2), NO_PADS, channels_last=True), 1, 8, 8, 64, dtype="int8"),
        pooled(ops.MaxPool((2, 2), (1, 1), (2, 0, 0, 0), channels_last=True), 1, 8, 8, 64),
        pooled(ops.AveragePool((1, 1), (1, 1), (0, 0, 0, 1), channels_last=True), 1, 8, 8, 64),
        pooled(ops.Reduce("ReduceMean", (2, 3), True), 1, 8, 8, 64, dtype="float64"),
    ],
    ids=["max first", "average first", "bytes", "padding alone", "no pixel", "binary64"],
)
def test_other_pools_are_no_pools_of_this_family(graph: Graph) -> None:
    assert not any(isinstance(kernel.description, Pooling) for kernel in selected(graph))


def test_a_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match=r"pooling: the window \(5, 5\) does not fit 3x3"):
        Pooling(1, 3, 3, 8, (5, 5))

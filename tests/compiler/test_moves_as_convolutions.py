"""Windows and shuffles that movements make are convolutions that copy."""

import numpy as np
import pytest

from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes import moves_as_convolutions


def image(*shape: int) -> Builder:
    return Builder("net", [Value("x", TensorType("float32", shape))])


def unfold(builder: Builder, x: str, taps: int, stride: int, dilation: int, pad: int) -> str:
    """Windows along the columns as PyTorch's exporter writes them."""
    n, channels, rows, columns = builder.types[x].shape
    wide = builder.emit(ops.Pad((0, 0, 0, pad), (0, 0, 0, pad), 0.0), [x])
    count = (columns + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
    places = np.arange(taps)[:, None] * dilation + np.arange(count) * stride
    windows = builder.emit(ops.Gather(3), [wide, builder.constant(places)])
    turned = builder.emit(ops.Transpose((0, 1, 3, 2, 4)), [windows])
    return builder.emit(ops.Reshape((n, channels * taps, rows, count)), [turned])


def shuffle(builder: Builder, x: str, groups: int) -> str:
    n, channels, rows, columns = builder.types[x].shape
    apart = builder.emit(ops.Reshape((n, groups, channels // groups, rows, columns)), [x])
    turned = builder.emit(ops.Transpose((0, 2, 1, 3, 4)), [apart])
    return builder.emit(ops.Reshape((n, channels, rows, columns)), [turned])


def conv(builder: Builder, x: str, taps: int = 1, stride: int = 1, outputs: int = 5) -> str:
    random = np.random.default_rng(taps)
    weights = random.normal(0, 1, (outputs, builder.types[x].shape[1], 1, taps))
    held = builder.constant(weights.astype(np.float32)), builder.constant(np.ones(5, np.float32))
    pads = (0, taps // 2, 0, taps // 2)
    return builder.emit(ops.Conv((1, stride), pads, (1, 1), 1), [x, *held])


def kinds(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def check(builder: Builder, y: str) -> Graph:
    graph = builder.graph([Output("y", y)])
    made = verify(moves_as_convolutions(graph))
    x = np.random.default_rng(1).normal(0, 1, graph.inputs[0].type.shape).astype(np.float32)
    expected, found = (evaluate(each, {"x": x})["y"] for each in (graph, made))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return made


@pytest.mark.parametrize(
    ("taps", "stride", "dilation", "pad"),
    [(3, 1, 1, 1), (3, 1, 1, 0), (5, 2, 1, 2), (3, 1, 2, 2), (2, 1, 1, 0), (4, 3, 1, 1)],
)
@pytest.mark.parametrize("samples", [1, 2])
def test_windows_are_one_convolution_with_the_layer_that_reads_them(
    taps, stride, dilation, pad, samples
):
    builder = image(samples, 6, 2, 21)
    y = conv(builder, unfold(builder, "x", taps, stride, dilation, pad))
    assert kinds(check(builder, y)) == ["conv"]


def test_padded_windows_before_a_wider_window_stay_apart():
    """The outer padding is of windows, the inner one of pixels."""
    builder = image(1, 3, 1, 20)
    y = conv(builder, unfold(builder, "x", 3, 1, 1, 1), taps=5, stride=2)
    assert kinds(check(builder, y)) == ["conv", "conv"]


def test_a_shuffle_of_joined_halves_is_taken_in_by_each_layer():
    builder = image(1, 4, 1, 9)
    halves = [builder.emit(ops.Unary("Relu"), ["x"]), builder.emit(ops.Unary("Tanh"), ["x"])]
    apart = [builder.emit(ops.Reshape((1, 1, 4, 1, 9)), [each]) for each in halves]
    joined = builder.emit(ops.Concat(1), apart)
    turned = builder.emit(ops.Transpose((0, 2, 1, 3, 4)), [joined])
    mixed = builder.emit(ops.Reshape((1, 8, 1, 9)), [turned])
    y = builder.emit(ops.Binary("Add"), [conv(builder, mixed), conv(builder, mixed, taps=3)])
    assert kinds(check(builder, y)) == ["unary", "unary", "concat", "conv", "conv", "binary"]


def test_a_shuffle_that_is_returned_is_a_convolution():
    builder = image(1, 6, 3, 4)
    assert kinds(check(builder, shuffle(builder, "x", 3))) == ["conv"]


@pytest.mark.parametrize("channels", [128, 1])
def test_other_movements_stay(channels):
    """Those of many channels, whose products would cost more, and those of pixels."""
    builder = image(1, channels, 4, 4)
    if channels > 1:
        y = shuffle(builder, "x", 2)
    else:
        parts = builder.emit(ops.Reshape((1, 1, 2, 2, 4)), ["x"])
        y = builder.emit(
            ops.Reshape((1, 1, 4, 4)), [builder.emit(ops.Transpose((0, 1, 3, 2, 4)), [parts])]
        )
    assert "conv" not in kinds(check(builder, y))

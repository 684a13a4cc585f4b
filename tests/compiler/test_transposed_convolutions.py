"""Transposed convolutions are convolutions whose channels become pixels, bit for bit."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConv,
    QInterleave,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes import expand_transposed_convolutions
from tilewright.compiler.quantiser import accelerated_share, make_batches, quantise
from tilewright.errors import CompileError

from .branching_networks import Network
from .onnx_models import model, node, run_onnxruntime, value

small = st.integers(1, 4)
pairs = st.tuples(small, small)
pads = st.tuples(*[st.integers(-1, 3)] * 4)


def drawn(seed: int, *shape: int, dtype: type = np.float32) -> np.ndarray:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def kinds(graph: Graph) -> set[type]:
    return {type(node.attributes) for node in graph.nodes}


@given(pairs, pairs, pairs, pads, pairs, pairs, st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=60)
def test_a_transposed_convolution_is_a_convolution(
    image, kernel, strides, cropped, dilations, channels, groups, seed
) -> None:
    depth, part = channels
    builder = Builder("net", [Value("x", TensorType("float32", (2, groups * depth, *image)))])
    operator = ops.ConvTranspose(strides, cropped, dilations, (0, 1), groups)
    w = builder.constant(drawn(seed, groups * depth, part, *kernel))
    bias = builder.constant(drawn(seed + 1, groups * part))
    try:
        y = builder.emit(operator, ["x", w, bias])
    except CompileError:
        assume(False)
    graph = builder.graph([Output("y", y)])
    expanded = verify(expand_transposed_convolutions(graph))
    assume(ops.ConvTranspose not in kinds(expanded))  # all of the image may be cropped
    inputs = {"x": drawn(seed, 2, groups * depth, *image)}
    np.testing.assert_array_equal(evaluate(expanded, inputs)["y"], evaluate(graph, inputs)["y"])


def test_normalisation_and_clamps_join_a_transposed_convolution_in_groups() -> None:
    builder = Builder("net", [Value("x", TensorType("float32", (1, 4, 5, 5)))])
    operator = ops.ConvTranspose((2, 2), (1, 1, 1, 1), (1, 1), (0, 0), 2)
    y = builder.emit(operator, ["x", builder.constant(drawn(0, 4, 3, 3, 3))])
    for kind in ("Mul", "Add"):
        y = builder.emit(ops.Binary(kind), [y, builder.constant(drawn(1, 6, 1, 1))])
    graph = builder.graph([Output("y", builder.emit(ops.Unary("Relu"), [y]))])
    expanded = verify(expand_transposed_convolutions(graph))
    order = [node.op for node in expanded.nodes]
    assert order == ["conv", "unary", "reshape", "transpose", "reshape", "slice"]
    inputs = {"x": drawn(2, 1, 4, 5, 5)}
    np.testing.assert_array_equal(evaluate(expanded, inputs)["y"], evaluate(graph, inputs)["y"])


def quantised(
    weights: np.ndarray,
    groups: int,
    per_channel: bool,
    zero: int = 0,
    read: bool = True,
    **window,
) -> onnx.ModelProto:
    """A transposed convolution between integers, with an integer bias and a convolution behind."""
    depth, part, *kernel = weights.shape
    count = part if per_channel else 1
    scales = np.random.default_rng(3).uniform(0.01, 0.02, count).astype(np.float32)
    points = np.full(count, zero, weights.dtype)
    if not per_channel:
        scales, points = scales.reshape(()), points.reshape(())
    bias_scales = (np.tile(scales, groups) if per_channel else scales) * np.float32(0.05)
    channels = part * groups
    held = {
        "x_scale": np.float32(0.05), "x_zero": np.int8(-7), "y_scale": np.float32(0.5),
        "y_zero": np.int8(5), "w": weights, "w_scale": scales, "w_zero": points,
        "b": drawn(4, channels, dtype=np.int32), "b_scale": bias_scales,
        "k": np.eye(channels, dtype=np.int8).reshape(channels, channels, *[1] * len(kernel)),
        "one": np.float32(1), "nothing": np.int8(0),
    }  # fmt: skip
    axes: tuple[dict[str, Any], ...] = ({"axis": 1}, {"axis": 0}) if per_channel else ({}, {})
    nodes = [
        node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["xd"]),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], **axes[0]),
        node("DequantizeLinear", ["b", "b_scale"], ["bd"], **axes[1]),
        node("ConvTranspose", ["xd", "wd", "bd"], ["t"], group=groups, **window),
        node("Relu", ["t"], ["r"]),
        node("QuantizeLinear", ["r", "y_scale", "y_zero"], ["yq"]),
        node("DequantizeLinear", ["yq", "y_scale", "y_zero"], ["y"]),
    ]
    if read:
        nodes += [
            node("DequantizeLinear", ["k", "one", "nothing"], ["kd"]),
            node("Conv", ["y", "kd"], ["c"]),
            node("QuantizeLinear", ["c", "y_scale", "y_zero"], ["cq"]),
            node("DequantizeLinear", ["cq", "y_scale", "y_zero"], ["z"]),
        ]
    image = (1, depth, 5, 6)[: len(kernel) + 2]
    return model(nodes, [value("x", np.float32, image)], ["z" if read else "y"], held)


FORMS = {
    "two by two": ((4, 3, 2, 2), 1, {"strides": [2, 2]}),
    "odd kernel": ((4, 3, 3, 3), 1, {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    "one axis": ((4, 3, 5), 1, {"strides": [2], "pads": [2, 2]}),
    "grouped": ((4, 3, 1, 5), 2, {"strides": [1, 2], "pads": [0, 2, 0, 2]}),
    "depthwise": ((4, 1, 4, 4), 4, {"strides": [2, 2], "pads": [1] * 4}),
    "no stride": ((4, 3, 3, 3), 1, {"pads": [1] * 4, "dilations": [1, 2]}),
    "gaps": ((4, 3, 1, 2), 1, {"strides": [2, 3]}),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_one_becomes_integer_layers_with_the_bits_of_onnxruntime(
    form, per_channel, dtype
) -> None:
    shape, groups, window = FORMS[form]
    zero = 0 if dtype == np.int8 else 128
    weights = (np.random.default_rng(5).integers(-60, 61, shape) + zero).astype(dtype)
    proto = quantised(weights, groups, per_channel, zero=zero, **window)
    graph = import_model(proto.SerializeToString())
    assert not kinds(graph) & {ops.ConvTranspose, ops.Conv}
    assert QConv in kinds(graph)
    x = np.random.default_rng(6).normal(0, 3, graph.inputs[0].type.shape).astype(np.float32)
    (ours,) = evaluate(graph, {"x": x}).values()
    (definition,) = evaluate(import_onnx(proto.SerializeToString()), {"x": x}).values()
    np.testing.assert_array_equal(ours, definition)
    np.testing.assert_array_equal(ours, run_onnxruntime(proto, {"x": x}, optimise=False)["z"])


def test_phases_have_only_the_taps_of_the_model() -> None:
    shape, groups, window = FORMS["odd kernel"]
    proto = quantised(np.full(shape, 3, np.int8), groups, True, **window)
    graph = import_model(proto.SerializeToString())
    (woven,) = (n for n in graph.nodes if isinstance(n.attributes, QInterleave))
    parts = [graph.producer(name) for name in woven.inputs]
    windows = [graph.types[part.inputs[1]].shape[:2] for part in parts if part is not None]
    assert sorted(windows) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_the_host_moves_pixels_that_no_layer_reads() -> None:
    shape, groups, window = FORMS["two by two"]
    proto = quantised(np.full(shape, 3, np.int8), groups, True, read=False, **window)
    graph = import_model(proto.SerializeToString())
    assert QInterleave not in kinds(graph)
    assert sum(isinstance(n.attributes, QConv) for n in graph.nodes) == 1


def test_lanes_that_would_be_empty_are_left_to_the_host() -> None:
    """One convolution of 12 channels fills its lanes four times as well as four of 3."""
    counts = {}
    for size in (4, 128):
        made = Network((1, 32, size, size), even=True)
        pixels = made.shuffled(made.conv(made.x, 12), "CRD")
        graph = import_model(made.model(made.conv(pixels, 3, kernel=1)).SerializeToString())
        counts[size] = sum(isinstance(n.attributes, QConv) for n in graph.nodes)
    assert counts == {4: 4 + 1, 128: 1 + 1}


def decoder(lines: bool) -> bytes:
    """A float decoder of images or of lines: convolution, two transposed ones, convolution."""
    axes = 1 if lines else 2
    chance = np.random.default_rng(0)
    held = {
        name: (chance.normal(0, 1, shape) / np.sqrt(fan)).astype(np.float32)
        for name, shape, fan in (
            ("w0", (8, 3, *[3] * axes), 3 * 3**axes),
            ("w1", (8, 8, *[4] * axes), 8 * 2**axes),
            ("b1", (8,), 16),
            ("w2", (8, 2, *[3] * axes), 4),
            ("w3", (2, 4, *[1] * axes), 4),
        )
    }
    grown: dict[str, Any] = {"strides": [2] * axes, "pads": [1] * 2 * axes}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1] * 2 * axes),
        node("Relu", ["a"], ["b"]),
        node("ConvTranspose", ["b", "w1", "b1"], ["c"], **grown),
        node("Relu", ["c"], ["d"]),
        node("ConvTranspose", ["d", "w2"], ["e"], group=2, output_padding=[1] * axes, **grown),
        node("Conv", ["e", "w3"], ["y"]),
    ]
    shape = (1, 3, 6, 7)[: axes + 2]
    return model(nodes, [value("x", np.float32, shape)], ["y"], held).SerializeToString()


@pytest.mark.parametrize("lines", [False, True])
def test_a_float_decoder_is_quantised_as_a_whole_and_exported(lines) -> None:
    graph = import_onnx(decoder(lines))
    shape = graph.inputs[0].type.shape[1:]
    samples = np.random.default_rng(1).normal(0, 1, (16, 1, *shape)).astype(np.float32)
    result = quantise(graph, make_batches(graph, {"x": samples}))
    integer = result.integer_graph()
    assert accelerated_share(integer) == 1
    proto = export_onnx(result.graph)
    onnx.checker.check_model(proto, full_check=True)
    inputs = {"x": samples[0]}
    (ours,) = evaluate(integer, inputs).values()
    (read,) = evaluate(import_model(proto.SerializeToString()), inputs).values()
    np.testing.assert_array_equal(ours, read)
    (expected,) = evaluate(graph, inputs).values()
    assert np.square(ours - expected).sum() < 1e-2 * np.square(expected).sum()
    np.testing.assert_allclose(run_onnxruntime(proto, inputs, optimise=False)["y"], ours, atol=0.1)

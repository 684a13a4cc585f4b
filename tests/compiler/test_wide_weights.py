"""Weights of nine bits, as uint8 ones have once their zero point is subtracted."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime import quantization

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QConv, evaluate, is_accelerated
from tilewright.compiler.graph.macs import macs_of
from tilewright.compiler.graph.operators import Dequantize
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import accelerated_share
from tilewright.isa.configuration import DEFAULT
from tilewright.isa.numbers import int8_terms
from tilewright.runtime import Session, open_device

from .onnx_models import model, node, run_onnxruntime, value
from .quantiser.networks import Net

SCALES = {
    "xs": np.float32(0.02),
    "xz": np.uint8(120),
    "ws": np.float32(0.01),
    "ys": np.float32(0.2),
    "yz": np.uint8(130),
}


@given(st.lists(st.integers(-255, 255), min_size=1, max_size=8))
def test_terms_add_up(numbers):
    weights = np.array(numbers, np.int16)
    terms = int8_terms(weights)
    assert all(term.dtype == np.int8 for term in terms)
    np.testing.assert_array_equal(sum(term.astype(np.int16) for term in terms), weights)
    assert len(terms) == 1 or np.abs(weights).max() > 127
    assert len(terms) < 3 or weights.max() == 255


def convolution(zero_point: int, channels: int = 5, groups: int = 1, depth: int = 6, **attributes):
    """A QLinearConv with uint8 weights, and its input."""
    random = np.random.default_rng(zero_point)
    w = random.integers(0, 256, (channels, depth // groups, 3, 3)).astype(np.uint8)
    w[0, 0, 0, :2] = 0, 255
    held = {**SCALES, "w": w, "wz": np.uint8(zero_point)}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("QLinearConv", names, ["y"], pads=[1, 1, 2, 1], group=groups, **attributes)]
    proto = model(nodes, [value("x", np.uint8, [1, depth, 8, 9])], ["y"], held)
    return proto, random.integers(0, 256, (1, depth, 8, 9)).astype(np.uint8)


def layers_of(graph):
    return [node for node in graph.nodes if isinstance(node.attributes, QConv)]


def assert_exact_on_sim(proto, x):
    """Compare the simulator with the definition and with ONNX Runtime; return the graph."""
    graph = import_model(proto.SerializeToString())
    with open_device("sim", DEFAULT) as device:
        (ours,) = Session(compile_module(graph, DEFAULT), device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])
    np.testing.assert_array_equal(ours, run_onnxruntime(proto, {"x": x}, optimise=False)["y"])
    return graph


@pytest.mark.parametrize("zero_point", [128, 127, 150, 255, 1, 0])
def test_any_zero_point_of_weights_is_exact(zero_point):
    """The host gathers the channels of the model's input once more that need a second term."""
    proto, x = convolution(zero_point)
    graph = assert_exact_on_sim(proto, x)
    (layer,) = layers_of(graph)
    (w,) = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == "w")
    centred = np.abs(w.astype(int) - zero_point + 0.5)  # int8 is symmetric about -0.5
    further = sum((centred > most).any(axis=(0, 2, 3)).sum() for most in (128, 255))
    assert graph.types[layer.inputs[1]].shape == (3, 3, 6 + further, 5)
    assert macs_of(graph, layer) == 9 * 9 * 5 * 6 * 9, "of the model's own weights"


@pytest.mark.parametrize(
    ("groups", "attributes"),
    [
        (6, {}),
        (6, {"strides": [2, 2]}),
        (6, {"dilations": [2, 1]}),
        (6, {"dilations": [1, 2], "strides": [2, 1]}),
        (2, {}),
    ],
    ids=["depthwise", "strides", "dilated rows", "dilated columns", "groups"],
)
def test_groups_of_nine_bits_run_on_the_accelerator(groups, attributes):
    proto, x = convolution(0, channels=6, groups=groups, **attributes)
    graph = assert_exact_on_sim(proto, x)
    (layer,) = layers_of(graph)
    pixels, channels = np.prod(layer.output.type.shape[1:3]), 6
    assert macs_of(graph, layer) == pixels * channels * 9 * 6 // groups


def test_groups_that_are_dilated_both_ways_stay_on_the_host():
    proto, x = convolution(150, channels=6, groups=6, dilations=[2, 2])
    graph = import_model(proto.SerializeToString())
    assert not any(is_accelerated(node) for node in graph.nodes)
    theirs = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], theirs)
    fits, _ = convolution(128, channels=6, groups=6, dilations=[2, 2])
    assert layers_of(import_model(fits.SerializeToString())), "weights of eight bits"


def test_only_channels_with_wide_weights_are_read_twice():
    random = np.random.default_rng(4)
    first, second = (
        random.integers(100, 200, (48, 48, *k)).astype(np.uint8) for k in ([1] * 2, [3] * 2)
    )
    second[5, [3, 30], 1, 2] = 0
    held = {**SCALES, "w": first, "wz": np.uint8(128), "v": second, "vz": np.uint8(140)}
    held["ws"] = np.float32(0.001)
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["h"]),
        node("QLinearConv", ["h", "ys", "yz", "v", "ws", "vz", "ys", "yz"], ["y"], pads=[1] * 4),
    ]
    proto = model(nodes, [value("x", np.uint8, [1, 48, 6, 5])], ["y"], held)
    x = random.integers(0, 256, (1, 48, 6, 5)).astype(np.uint8)
    graph = assert_exact_on_sim(proto, x)
    before, selection, layer = layers_of(graph)
    assert selection.output.type.shape == (1, 6, 5, 2)
    assert graph.types[layer.inputs[1]].shape == (3, 3, 50, 48)
    counts = [macs_of(graph, node) for node in (before, selection, layer)]
    assert counts == [30 * 48 * 48, 0, 30 * 48 * 48 * 9]


def test_sums_that_might_not_be_exact_stay_on_the_host():
    proto, _ = convolution(0, depth=600)
    graph = import_model(proto.SerializeToString())
    assert any(is_accelerated(node) for node in graph.nodes)
    for tensor in proto.graph.initializer:
        if tensor.name == "ys":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(100, np.float32), "ys"))
    graph = import_model(proto.SerializeToString())
    assert not any(is_accelerated(node) for node in graph.nodes)


class Calibration(quantization.CalibrationDataReader):
    """Hands images to ONNX Runtime's quantiser, one by one."""

    def __init__(self, inputs: np.ndarray) -> None:
        self.batches = iter([{"x": image} for image in inputs])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def test_a_network_of_uint8_weights_runs_on_the_accelerator(tmp_path):
    """As ONNX Runtime's quantiser writes it when asked for uint8 everywhere."""
    net = Net(3, 12, 12)
    x = net.node("Relu", net.conv("x", 8, 3))
    x = net.node("Add", x, net.node("Relu", net.conv(x, 8, 8)))
    x = net.node("Flatten", net.node("GlobalAveragePool", net.conv(x, 16, 8, strides=[2, 2])))
    output = net.node("MatMul", x, net.constant(net.random.uniform(-1, 2, (16, 5))))
    onnx.save(net.model(output), tmp_path / "float.onnx")
    images = net.inputs(8)["x"]
    quantization.quantize_static(
        *(tmp_path / "float.onnx", tmp_path / "int8.onnx", Calibration(images)),
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QUInt8,
    )
    graph = import_model(tmp_path / "int8.onnx")
    assert accelerated_share(graph) == 1
    assert sum(node.op == "qconcat" for node in graph.nodes) >= 2, "weights of nine bits"
    operators = (node.attributes for node in graph.nodes)
    *_, last = (each for each in operators if isinstance(each, Dequantize))
    proto = onnx.load(tmp_path / "int8.onnx")
    for image in images[:4]:
        ours = evaluate(graph, {"x": image})[output]
        theirs = run_onnxruntime(proto, {"x": image}, optimise=False)[output]
        assert np.abs(ours - theirs).max() < 1.01 * last.scales[0]

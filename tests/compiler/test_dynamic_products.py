"""Products of bytes on the accelerator, with scales and zero points computed at run time."""

import numpy as np
import pytest
from onnx import helper

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import is_accelerated
from tilewright.compiler.graph.macs import macs_of
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device
from tilewright.sim.timing import ExactMeasure

from .onnx_models import model, node, run_onnxruntime, value

CONVOLUTIONS = {
    "padded": {"pads": [1, 1, 1, 1]},
    "not padded": {"pads": [0, 0, 0, 0]},
    "groups": {"pads": [2, 0, 1, 1], "group": 2, "strides": [2, 1]},
    "each channel": {"pads": [1, 1, 1, 1], "group": 6},
    "same": {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    "dilated": {"pads": [0, 0, 0, 0], "dilations": [2, 2]},
}
POINTS = {"of eight bits": 128, "of nine bits": 120, "without": None}
"""Kinds of weights -> their zero point."""


def dynamic(kind: str, shape: tuple[int, ...], weights: np.ndarray, point: int | None, **given):
    """A product in the form that ONNX Runtime's dynamic quantiser writes, and its samples."""
    constants = {"w": weights, "t": np.float32(0.01)}
    if point is not None:
        constants["u"] = np.array(point, np.uint8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(kind, ["q", "w", "z", *(["u"] if point is not None else [])], ["i"], **given),
        node("Cast", ["i"], ["f"], to=1),
        node("Mul", ["s", "t"], ["st"]),
        node("Mul", ["f", "st"], ["y"]),
    ]
    return model(nodes, [value("x", np.float32, shape)], ["y"], constants)


def assert_agrees(proto, shape: tuple[int, ...], sums: int, taps: int) -> None:
    x = np.random.default_rng(5).normal(0.3, 1, shape).astype(np.float32)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    graph = import_model(proto.SerializeToString())
    assert [one.op for one in graph.nodes if is_accelerated(one)] == ["qsums"] * sums
    module = compile_module(graph, PRESETS["8x8"])
    assert module.report["host_products"] == []
    assert sum(macs_of(graph, one) for one in graph.nodes) == expected.size * taps
    with open_device("sim", PRESETS["8x8"]) as device:
        got = Session(module, device).run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_has_the_bits_of_onnx_runtime(name: str, points: str) -> None:
    given = CONVOLUTIONS[name]
    depth = 6 // given.get("group", 1)
    limit = 128 if points == "without" else 256
    weights = np.random.default_rng(3).integers(0, limit, (12, depth, 3, 3)).astype(np.uint8)
    proto = dynamic("ConvInteger", (1, 6, 10, 9), weights, POINTS[points], **given)
    assert_agrees(proto, (1, 6, 10, 9), 2 if points == "of nine bits" else 1, 9 * depth)


def test_weights_of_nine_bits_take_one_more_channel() -> None:
    """Ones sum the inputs, and make up for what is taken from the weights; all ran twice before."""
    weights = np.random.default_rng(3).integers(0, 256, (64, 16, 3, 3)).astype(np.uint8)
    cycles = []
    for point in (128, 120):
        proto = dynamic("ConvInteger", (1, 16, 12, 12), weights, point)
        graph = import_model(proto.SerializeToString())
        module = compile_module(graph, PRESETS["16x16"], measure=ExactMeasure())
        cycles.append(module.report["cycles"])
    assert cycles[1] < 1.3 * cycles[0]


@pytest.mark.parametrize("shape", [(5, 24), (2, 7, 24), (1, 3, 4, 24)])
@pytest.mark.parametrize("points", POINTS)
def test_a_dense_layer_has_the_bits_of_onnx_runtime(points: str, shape: tuple[int, ...]) -> None:
    weights = np.random.default_rng(4).integers(0, 256, (24, 20)).astype(np.uint8)
    assert_agrees(dynamic("MatMulInteger", shape, weights, POINTS[points]), shape, 1, 24)

"""Nodes of several outputs in front of and behind whatever the front end recognises."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate, is_accelerated
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser import make_batches, quantise

from .onnx_models import floats, integers, model, node, run_onnxruntime, value

SHAPE = (2, 2, 2, 4)
"""Of what every source gives: all states of an LSTM, and an image as well."""

rng = np.random.default_rng(5)
HELD = {
    "k": integers([4]),
    "w": rng.normal(0, 1, (2, 16, 4)).astype(np.float32),
    "r": rng.normal(0, 1, (2, 16, 4)).astype(np.float32),
    "kernel": rng.normal(0, 1, (2, 2, 1, 1)).astype(np.float32),
    "matrix": rng.normal(0, 1, (4, 4)).astype(np.float32),
    "half": floats(0.5),
    "scale": np.float32(0.02),
    "zero": np.int8(3),
    "flat": integers([4, 8]),
    "pads": integers([0, 0, 1, 1, 0, 0, 1, 1]),
    "starts": integers([1]),
    "ends": integers([2]),
    "sizes": integers([2, 2, 4, 8]),
}

SOURCES = {
    "TopK": (SHAPE, "places", node("TopK", ["x", "k"], ["a", "places"])),
    "MaxPool": (SHAPE, "places", node("MaxPool", ["x"], ["a", "places"], kernel_shape=[1, 1])),
    "LSTM": (
        SHAPE[1:],
        "cell",
        node(
            *("LSTM", ["x", "w", "r"], ["a", "h", "cell"]),
            hidden_size=4,
            direction="bidirectional",
        ),
    ),
}
"""Shape of the input `x`, another output, and the node that gives it and `a`."""

FOLLOWERS: dict[str, list] = {
    **{
        f"Transpose {order}": [node("Transpose", ["a"], ["y"], perm=order)]
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 2, 3], [0, 1, 3, 2])
    },
    "Reshape": [node("Reshape", ["a", "flat"], ["y"])],
    "Flatten, Gemm": [
        node("Reshape", ["a", "flat"], ["b"]),
        node("Transpose", ["b"], ["y"], perm=[1, 0]),
    ],
    "Conv": [node("Conv", ["a", "kernel"], ["b"]), node("Relu", ["b"], ["y"])],
    "MatMul": [node("MatMul", ["a", "matrix"], ["y"])],
    "product of two": [
        node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2]),
        node("MatMul", ["a", "b"], ["c"]),
        node("Mul", ["c", "half"], ["y"]),
    ],
    "Add": [node("Add", ["a", "a"], ["y"])],
    "Relu": [node("Relu", ["a"], ["y"])],
    "Sigmoid": [node("Sigmoid", ["a"], ["y"])],
    "Mul": [node("Mul", ["a", "half"], ["y"])],
    "Max": [node("Max", ["a", "half"], ["y"])],
    "Softmax": [node("Softmax", ["a"], ["y"], axis=-1)],
    "MaxPool": [node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2])],
    "AveragePool": [node("AveragePool", ["a"], ["y"], kernel_shape=[2, 2])],
    "Pad": [node("Pad", ["a", "pads"], ["b"]), node("Conv", ["b", "kernel"], ["y"])],
    "Concat": [node("Concat", ["a", "a"], ["y"], axis=1)],
    "Split": [node("Split", ["a"], ["b", "c"], axis=3), node("Add", ["b", "c"], ["y"])],
    "Slice": [node("Slice", ["a", "starts", "ends"], ["y"])],
    "Resize": [node("Resize", ["a", "", "", "sizes"], ["y"], mode="nearest")],
    "TopK": [node("TopK", ["a", "k"], ["b", "c"]), node("Relu", ["b"], ["y"])],
    "Quantize": [
        node("QuantizeLinear", ["a", "scale", "zero"], ["b"]),
        node("DequantizeLinear", ["b", "scale", "zero"], ["y"]),
    ],
}


def made(source: str, follower: str) -> onnx.ModelProto:
    """A dense layer, so that there is something to quantise, the source, and what follows it."""
    shape, other, giver = SOURCES[source]
    nodes = [node("MatMul", ["image", "matrix"], ["x"]), giver, *FOLLOWERS[follower]]
    return model(nodes, [value("image", np.float32, shape)], ["y", other], HELD, opset=17)


def draw(source: str, count: int) -> np.ndarray:
    shape, _, _ = SOURCES[source]
    return np.random.default_rng(count).normal(0, 1, (count, *shape)).astype(np.float32)


FLOAT = [follower for follower in FOLLOWERS if follower != "Quantize"]


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_several_outputs_passes_the_front_end(source, follower):
    proto, inputs = made(source, follower), {"image": draw(source, 1)[0]}
    ours = evaluate(import_model(proto.SerializeToString()), inputs)
    for name, array in run_onnxruntime(proto, inputs).items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("follower", FLOAT)
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_several_outputs_passes_the_quantiser(source, follower):
    graph = import_onnx(made(source, follower).SerializeToString())
    samples = draw(source, 6)
    integer = quantise(graph, make_batches(graph, {"image": samples})).integer_graph()
    assert any(is_accelerated(node) for node in integer.nodes)
    ours, wanted = (evaluate(each, {"image": samples[0]})["y"] for each in (integer, graph))
    assert np.abs(ours - wanted).max() < 0.2 * np.abs(wanted).max()

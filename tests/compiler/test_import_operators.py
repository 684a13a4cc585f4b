"""Imported operators compute what onnxruntime computes, whatever form the model writes them in."""

import dataclasses

import numpy as np
import pytest

from tilewright.compiler.graph import evaluate, parse_graph, print_graph
from tilewright.compiler.graph.operators import OPERATORS, Operator
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.importers.onnx_operators import HANDLERS, handler_of
from tilewright.compiler.importers.onnx_rows import OperatorRow

from .onnx_models import floats, integers, model, node, run_onnxruntime, value

IMAGE = (2, 3, 7, 9)
CHANNELS = floats([[[1.5]], [[2]], [[-3]]])
CASES = {
    **{
        kind: ([node(kind, ["x"], ["y"])], IMAGE, {}, 13)
        for kind in (
            *("Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "LeakyRelu"),
            *("Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sin", "Softplus"),
            *("Softsign", "Tanh", "Identity", "Dropout", "GlobalAveragePool", "GlobalMaxPool"),
            *("Softmax", "LogSoftmax"),
        )
    },
    "HardSwish": ([node("HardSwish", ["x"], ["y"])], IMAGE, {}, 14),
    "Mish": ([node("Mish", ["x"], ["y"])], IMAGE, {}, 18),
    "Gelu": ([node("Gelu", ["x"], ["y"])], IMAGE, {}, 20),
    "Sqrt of Abs": ([node("Abs", ["x"], ["a"]), node("Sqrt", ["a"], ["y"])], IMAGE, {}, 13),
    "Log of Exp": ([node("Exp", ["x"], ["a"]), node("Log", ["a"], ["y"])], IMAGE, {}, 13),
    "LeakyRelu with alpha": ([node("LeakyRelu", ["x"], ["y"], alpha=0.3)], IMAGE, {}, 13),
    "Clip by attributes": ([node("Clip", ["x"], ["y"], min=-0.5, max=0.25)], IMAGE, {}, 7),
    "Clip by inputs": (
        [node("Clip", ["x", "", "h"], ["y"])],
        IMAGE,
        {"h": np.float32(0.25)},
        13,
    ),
    "Softmax of old": ([node("Softmax", ["x"], ["y"])], IMAGE, {}, 9),
    **{
        kind: ([node(kind, ["x", "c"], ["y"])], IMAGE, {"c": CHANNELS}, 13)
        for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum")
    },
    "Pow": ([node("Pow", ["x", "c"], ["y"])], IMAGE, {"c": np.float32(2)}, 13),
    "PRelu": (
        [node("PRelu", ["x", "c"], ["y"])],
        IMAGE,
        {"c": floats([[[0.5]], [[2]], [[-3]]])},
        13,
    ),
    "BatchNormalization": (
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])],
        IMAGE,
        {
            "s": floats([1, 2, 3]),
            "b": floats([4, 5, 6]),
            "m": floats([7, 8, 9]),
            "v": floats([1, 2, 0.5]),
        },
        13,
    ),
    "Gemm": (
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, beta=2.0)],
        (4, 3),
        {"w": floats([[1, 2, 3], [4, 5, 6]]), "b": floats([7, 8])},
        13,
    ),
    "Gemm transposed": (
        [node("Gemm", ["x", "w"], ["y"], transA=1)],
        (3, 4),
        {"w": floats([[1, 2], [3, 4], [5, 6]])},
        13,
    ),
    "MatMul of rank 3": (
        [node("MatMul", ["x", "w"], ["y"])],
        (2, 4, 3),
        {"w": floats([[1, 2], [3, 4], [5, 6]])},
        13,
    ),
    "ReduceMean of an image": (
        [node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)],
        IMAGE,
        {},
        13,
    ),
    "ReduceSum": ([node("ReduceSum", ["x", "a"], ["y"])], IMAGE, {"a": integers([1])}, 13),
    "ReduceMax": ([node("ReduceMax", ["x"], ["y"], axes=[-1])], IMAGE, {}, 13),
    "ReduceMin": ([node("ReduceMin", ["x"], ["y"])], IMAGE, {}, 13),
    "ArgMax": ([node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)], IMAGE, {}, 13),
    "Transpose": ([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], IMAGE, {}, 13),
    "Flatten": ([node("Flatten", ["x"], ["y"], axis=2)], IMAGE, {}, 13),
    "Reshape": ([node("Reshape", ["x", "s"], ["y"])], IMAGE, {"s": integers([0, -1, 7])}, 13),
    "Squeeze": ([node("Squeeze", ["x", "a"], ["y"])], (2, 1, 3, 1), {"a": integers([-1])}, 13),
    "Squeeze of old": ([node("Squeeze", ["x"], ["y"], axes=[1])], (2, 1, 3, 1), {}, 11),
    "Unsqueeze": ([node("Unsqueeze", ["x", "a"], ["y"])], (2, 3), {"a": integers([0, -1])}, 13),
    "Pad": (
        [node("Pad", ["x", "p", "v"], ["y"])],
        IMAGE,
        {"p": integers([0, 0, 1, 2, 0, 1, 3, 0]), "v": np.float32(1.5)},
        13,
    ),
    "Pad of old": (
        [node("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 1, 3, 0], value=2.0)],
        IMAGE,
        {},
        9,
    ),
    "Slice": (
        [node("Slice", ["x", "b", "e", "a", "s"], ["y"])],
        IMAGE,
        {
            "b": integers([1, -4]),
            "e": integers([7, 99]),
            "a": integers([2, 3]),
            "s": integers([2, 1]),
        },
        13,
    ),
    "Split and Concat": (
        [node("Split", ["x"], ["a", "b", "c"], axis=1), node("Concat", ["c", "a"], ["y"], axis=1)],
        IMAGE,
        {},
        11,
    ),
    "Gather": (
        [node("Gather", ["x", "i"], ["y"], axis=3)],
        IMAGE,
        {"i": integers([[-1, 0], [3, 3]])},
        13,
    ),
    "Cast": ([node("Cast", ["x"], ["i"], to=6), node("Cast", ["i"], ["y"], to=1)], IMAGE, {}, 13),
    "shape arithmetic": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "axes"], ["n1"]),
            node("Concat", ["n1", "rest"], ["target"], axis=0),
            node("Reshape", ["x", "target"], ["y"]),
        ],
        IMAGE,
        {"zero": np.int64(0), "axes": integers([0]), "rest": integers([-1])},
        13,
    ),
    "Constant": (
        [node("Constant", [], ["c"], value_float=1.5), node("Add", ["x", "c"], ["y"])],
        IMAGE,
        {},
        13,
    ),
}

POOLS = {
    "plain": {"kernel_shape": [2, 3]},
    "strided, uneven pads": {
        "kernel_shape": [3, 2],
        "strides": [2, 1],
        "pads": [1, 0, 2, 1],
    },
    "upper": {"kernel_shape": [3, 4], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "lower": {"kernel_shape": [2, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    "valid": {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "ceil, padded": {
        "kernel_shape": [2, 2],
        "strides": [3, 3],
        "pads": [1, 1, 1, 1],
        "ceil_mode": 1,
    },
}
for label, attributes in POOLS.items():
    CASES[f"MaxPool {label}"] = ([node("MaxPool", ["x"], ["y"], **attributes)], IMAGE, {}, 12)
    CASES[f"AveragePool {label}"] = (
        [node("AveragePool", ["x"], ["y"], **attributes)],
        IMAGE,
        {},
        19,
    )
    CASES[f"AveragePool {label}, padding counts"] = (
        [node("AveragePool", ["x"], ["y"], count_include_pad=1, **attributes)],
        IMAGE,
        {},
        19,
    )
CASES["MaxPool dilated"] = (
    [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], dilations=[3, 2])],
    IMAGE,
    {},
    12,
)
CASES["MaxPool of a line"] = (
    [node("MaxPool", ["x"], ["y"], kernel_shape=[3], pads=[1, 0])],
    (2, 3, 8),
    {},
    12,
)

WEIGHTS = np.random.default_rng(5).standard_normal((6, 3, 3, 2)).astype(np.float32)
CONVOLUTIONS = {
    "plain": ({}, WEIGHTS),
    "strided, uneven pads": ({"strides": [2, 1], "pads": [0, 1, 2, 0]}, WEIGHTS),
    "dilated": ({"dilations": [2, 3]}, WEIGHTS),
    "upper": ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, WEIGHTS),
    "lower": ({"auto_pad": "SAME_LOWER", "strides": [1, 2]}, WEIGHTS),
    "depthwise": ({"group": 3}, WEIGHTS[:, :1]),
}
for label, (attributes, weights) in CONVOLUTIONS.items():
    CASES[f"Conv {label}"] = (
        [node("Conv", ["x", "w", "b"], ["y"], **attributes)],
        IMAGE,
        {"w": weights, "b": np.arange(6, dtype=np.float32)},
        11,
    )
CASES["Conv of a line"] = (
    [node("Conv", ["x", "w"], ["y"], strides=[2], pads=[1, 0])],
    (2, 3, 9),
    {"w": WEIGHTS[..., 0]},
    11,
)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnxruntime_computes(name: str) -> None:
    nodes, shape, constants, opset = CASES[name]
    proto = model(nodes, [value("x", np.float32, shape)], ["y"], constants, opset)
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    graph = import_onnx(proto.SerializeToString())
    got = evaluate(graph, {"x": x})["y"]
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    text = print_graph(graph)
    assert parse_graph(text, {c.name: c.data for c in graph.constants}) == graph


def test_every_operator_says_what_its_outputs_are_and_computes_them() -> None:
    for kind in OPERATORS.values():
        assert kind.result_type is not Operator.result_type
        assert kind.compute is not Operator.compute


def test_an_open_leading_dimension_takes_the_batch() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", np.float32, ["N", 3])], ["y"])
    graph = import_onnx(proto.SerializeToString(), batch=5)
    assert graph.inputs[0].type.shape == (5, 3)
    assert graph.types[graph.outputs[0].value].shape == (5, 3)


def test_initialisers_listed_as_inputs_are_no_inputs() -> None:
    inputs = [value("x", np.float32, [2]), value("c", np.float32, [2])]
    proto = model([node("Add", ["x", "c"], ["y"])], inputs, ["y"], {"c": floats([1, 2])}, 7)
    graph = import_onnx(proto.SerializeToString())
    assert [v.name for v in graph.inputs] == ["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": floats([1, 1])})["y"], [2, 3])


def test_an_input_may_be_an_output_too() -> None:
    proto = model([node("Identity", ["x"], ["y"])], [value("x", np.float32, [2])], ["y"])
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_array_equal(evaluate(graph, {"x": floats([1, 2])})["y"], [1, 2])


def test_rows_fill_all_fields_of_their_operators() -> None:
    forms = {one.onnx.kind for one in OPERATORS.values() if one.onnx}
    handlers = [*HANDLERS.values(), *(handler_of(("", kind)) for kind in forms)]
    rows = [handler for handler in handlers if isinstance(handler, OperatorRow)]
    assert len(rows) > 10
    for one in rows:
        known = {field.name: field.default for field in dataclasses.fields(one.operator)}
        required = {name for name, default in known.items() if default is dataclasses.MISSING}
        assert required <= set(one.fields) <= set(known), one.operator.op

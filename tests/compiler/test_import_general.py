"""Operators beyond the accelerator's reach compute what onnxruntime computes.

Beside ONNX's own tests: forms, types and shapes that those do not have.
"""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.import_with_inputs import import_with_inputs
from tilewright.compiler.graph import evaluate, parse_graph, print_graph
from tilewright.compiler.importers import NeedsInputError, import_onnx
from tilewright.errors import CompileError, ImportModelError

from .onnx_models import WEIGHTS, floats, integers, model, node, run_onnxruntime, value

GENERATOR = np.random.default_rng(11)
IMAGE = (2, 4, 7, 9)
VOLUME = (1, 2, 5, 6, 4)


def random(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


CASES = {
    "Conv of a volume": (
        [node("Conv", ["x", "w", "b"], ["y"], strides=[1, 2, 1], pads=[1, 0, 1, 0, 1, 1])],
        VOLUME,
        {"w": random(3, 2, 2, 3, 2), "b": random(3)},
        11,
    ),
    "MaxPool of a volume": (
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3, 2], ceil_mode=1, strides=[2, 2, 1])],
        VOLUME,
        {},
        12,
    ),
    "AveragePool of a volume": (
        [node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3, 2], pads=[1, 1, 0, 0, 1, 1])],
        VOLUME,
        {},
        11,
    ),
    "ConvTranspose in groups": (
        [
            node(
                "ConvTranspose",
                ["x", "w", "b"],
                ["y"],
                group=2,
                strides=[2, 3],
                pads=[1, 0, 2, 1],
                output_padding=[1, 2],
                dilations=[2, 1],
            )
        ],
        IMAGE,
        {"w": random(4, 3, 3, 2), "b": random(6)},
        11,
    ),
    "LpPool": (
        [node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], p=3, strides=[2, 1])],
        IMAGE,
        {},
        11,
    ),
    "GlobalLpPool": ([node("GlobalLpPool", ["x"], ["y"], p=2)], IMAGE, {}, 11),
    "InstanceNormalization": (
        [node("InstanceNormalization", ["x", "s", "b"], ["y"])],
        IMAGE,
        {"s": random(4), "b": random(4)},
        11,
    ),
    "LRN": ([node("LRN", ["x"], ["y"], size=3, alpha=0.5, bias=2.0)], IMAGE, {}, 13),
    "LayerNormalization": (
        [node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-2)],
        IMAGE,
        {"s": random(7, 9), "b": random(7, 9)},
        17,
    ),
    "LayerNormalization of a later set": (
        [node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)],
        IMAGE,
        {"s": random(9), "b": random(9)},
        13,
    ),
    "Hardmax of old": ([node("Hardmax", ["x"], ["y"], axis=2)], IMAGE, {}, 11),
    "Einsum": (
        [node("Einsum", ["x", "w"], ["y"], equation="nc...w,wk->n...kc")],
        IMAGE,
        {"w": random(9, 3)},
        12,
    ),
    "Slice backwards": (
        [node("Slice", ["x", "b", "e", "a", "s"], ["y"])],
        IMAGE,
        {
            "b": integers([-1, 8]),
            "e": integers([-100, 0]),
            "a": integers([2, 3]),
            "s": integers([-2, -3]),
        },
        13,
    ),
    "Pad by reflection": (
        [node("Pad", ["x", "p"], ["y"], mode="reflect")],
        IMAGE,
        {"p": integers([0, 0, 2, 1, 0, 1, 3, 0])},
        13,
    ),
    "Pad and crop": (
        [node("Pad", ["x", "p"], ["y"])],
        IMAGE,
        {"p": integers([0, 0, -2, 1, 0, -1, 3, -4])},
        13,
    ),
    "TopK": (
        [node("TopK", ["x", "k"], ["v", "y"], axis=1, largest=0)],
        IMAGE,
        {"k": integers([3])},
        11,
    ),
    "CumSum": (
        [node("CumSum", ["x", "a"], ["y"], exclusive=1, reverse=1)],
        IMAGE,
        {"a": np.int64(-1)},
        14,
    ),
    "GatherND in batches": (
        [node("GatherND", ["x", "i"], ["y"], batch_dims=1)],
        IMAGE,
        {"i": integers([[[0, -1], [3, 2]], [[1, 1], [-2, 6]]])},
        13,
    ),
    "ScatterElements": (
        [node("ScatterElements", ["x", "i", "u"], ["y"], axis=3, reduction="add")],
        IMAGE,
        {"i": integers(np.arange(2 * 4 * 7 * 3).reshape(2, 4, 7, 3) % 9), "u": random(2, 4, 7, 3)},
        16,
    ),
    "OneHot on a middle axis": (
        [
            node("ArgMax", ["x"], ["i"], axis=3, keepdims=0),
            node("OneHot", ["i", "d", "v"], ["y"], axis=1),
        ],
        IMAGE,
        {"d": np.int64(9), "v": floats([-1, 2])},
        13,
    ),
    "Resize by cubics": (
        [
            node(
                "Resize",
                ["x", "", "s"],
                ["y"],
                mode="cubic",
                coordinate_transformation_mode="align_corners",
            )
        ],
        IMAGE,
        {"s": floats([1, 1, 2, 3])},
        13,
    ),
    "Resize linearly to a size": (
        [node("Resize", ["x", "", "", "t"], ["y"], mode="linear")],
        IMAGE,
        {"t": integers([2, 4, 5, 20])},
        13,
    ),
    "Upsample linearly": (
        [node("Upsample", ["x", "s"], ["y"], mode="linear")],
        IMAGE,
        {"s": floats([1, 1, 2, 2])},
        9,
    ),
    "LSTM of both directions": (
        [
            node(
                "LSTM",
                ["x", "w", "r", "b"],
                ["a", "y", "c"],
                hidden_size=3,
                direction="bidirectional",
            )
        ],
        (5, 2, 4),
        {"w": random(2, 12, 4), "r": random(2, 12, 3), "b": random(2, 24)},
        14,
    ),
    "GRU with lengths": (
        [
            node(
                "GRU",
                ["x", "w", "r", "b", "l", "h"],
                ["y", "c"],
                hidden_size=3,
                direction="reverse",
                linear_before_reset=1,
                activations=["HardSigmoid", "ScaledTanh"],
                activation_alpha=[0.25, 0.5],
                activation_beta=[0.4, 2.0],
            )
        ],
        (5, 2, 4),
        {
            "w": random(1, 9, 4),
            "r": random(1, 9, 3),
            "b": random(1, 18),
            "l": np.array([3, 5], np.int32),
            "h": random(1, 2, 3),
        },
        14,
    ),
    "LSTM whose activations have one parameter or two": (
        [
            node(
                "LSTM",
                ["x", "w", "r"],
                ["y"],
                hidden_size=3,
                activations=["ThresholdedRelu", "Affine", "LeakyRelu"],
                activation_alpha=[0.1, 0.5, 0.25],
                activation_beta=[0.75],
            )
        ],
        (3, 2, 4),
        {"w": random(1, 12, 4), "r": random(1, 12, 3)},
        14,
    ),
    "RNN clipped": (
        [node("RNN", ["x", "w", "r"], ["y"], hidden_size=3, clip=0.3)],
        (5, 2, 4),
        {"w": random(1, 3, 4), "r": random(1, 3, 3)},
        14,
    ),
    "MatMul of vectors": (
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["v", "a"], ["y"])],
        (4, 3),
        {"w": random(3), "v": random(4)},
        13,
    ),
    "Gelu by tanh": ([node("Gelu", ["x"], ["y"], approximate="tanh")], IMAGE, {}, 20),
    "Where": (
        [node("Greater", ["x", "z"], ["c"]), node("Where", ["c", "x", "w"], ["y"])],
        IMAGE,
        {"z": np.float32(0.25), "w": random(4, 1, 1)},
        16,
    ),
    "Mod of floats": ([node("Mod", ["x", "w"], ["y"], fmod=1)], IMAGE, {"w": random(9)}, 13),
    "blocked weights": (
        [
            node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=2),
            node("MatMul", ["x", "w"], ["y"]),
        ],
        (3, 4),
        {
            "q": GENERATOR.integers(0, 255, (4, 5)).astype(np.uint8),
            "s": np.abs(random(2, 5)),
            "z": GENERATOR.integers(0, 255, (2, 5)).astype(np.uint8),
        },
        21,
    ),
    "DynamicQuantizeLinear": (
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("MatMulInteger", ["q", "w", "z"], ["i"]),
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["f", "s"], ["y"]),
        ],
        (3, 4),
        {"w": GENERATOR.integers(*WEIGHTS, (4, 5)).astype(np.int8)},
        13,
    ),
}


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
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=1e-5)
    assert parse_graph(print_graph(graph), {c.name: c.data for c in graph.constants}) == graph


def test_zeros_are_quantised_dynamically_with_the_scale_of_onnxruntime() -> None:
    outputs, x = ["q", "s", "z"], np.zeros((3, 4), np.float32)
    nodes = [node("DynamicQuantizeLinear", ["x"], outputs)]
    proto = model(nodes, [value("x", np.float32, x.shape)], outputs, {}, 13)
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})
    for name in outputs:
        np.testing.assert_array_equal(got[name], expected[name])


def test_a_cast_to_the_same_type_is_no_operator() -> None:
    nodes = [node("Cast", ["x"], ["c"], to=TensorProto.FLOAT), node("Relu", ["c"], ["y"])]
    graph = import_onnx(model(nodes, [value("x", np.float32, (2, 3))], ["y"]).SerializeToString())
    assert [one.op for one in graph.nodes] == ["unary"]


def test_a_float16_network_is_computed_in_its_own_type() -> None:
    half = TensorProto.FLOAT16
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Tanh", ["m"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", half, [2, 64])]
    proto = model(nodes, inputs, ["y"], {"w": random(64, 3).astype(np.float16)})
    x = random(2, 64).astype(np.float16)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


def reshaping() -> onnx.ModelProto:
    nodes = [
        node("Add", ["s", "one"], ["t"]),
        node("Reshape", ["x", "t"], ["y"], name="reshape"),
    ]
    inputs = [value("x", np.float32, [2, 6]), value("s", np.int64, [2])]
    return model(nodes, inputs, ["y"], {"one": integers([1, 1])})


def test_an_input_that_a_shape_depends_on_is_fixed_at_its_value() -> None:
    x, s = random(2, 6), integers([3, 2])
    graph, fixed = import_with_inputs(reshaping().SerializeToString(), {"x": x, "s": s})
    assert list(fixed) == ["s"]
    assert [value.name for value in graph.inputs] == ["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], x.reshape(4, 3))


def test_an_input_that_must_be_fixed_is_named() -> None:
    with pytest.raises(NeedsInputError) as caught:
        import_with_inputs(reshaping().SerializeToString(), {"x": random(2, 6)})
    assert caught.value.inputs == ("s",)
    assert "fix the input that it depends on (`s`; `--fix NAME=VALUE`)" in str(caught.value)


def test_operators_whose_shapes_follow_from_values_take_dequantised_constants() -> None:
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        node("NonZero", ["real"], ["places"]),
        node("Gather", ["x", "places"], ["y"], axis=1),
    ]
    held = {"q": np.array([3, 1, 3, 5], np.int8), "s": np.float32(0.5), "z": np.int8(3)}
    proto = model(nodes, [value("x", np.float32, [1, 4])], ["y"], held)
    x = np.arange(4, dtype=np.float32)[None]
    (got,) = evaluate(import_onnx(proto.SerializeToString()), {"x": x}).values()
    np.testing.assert_array_equal(got, [[[1, 3]]])


def test_a_fixed_value_of_another_shape_is_refused() -> None:
    message = r"input `s`: expected int64\[2\] to fix it, got int64\[3\]"
    with pytest.raises(ImportModelError, match=message):
        import_onnx(reshaping().SerializeToString(), fixed={"s": integers([3, 2, 1])})


def test_named_dimensions_take_the_extents_given() -> None:
    inputs = [value("x", np.float32, ["N", 3, "height"])]
    proto = model([node("Relu", ["x"], ["y"])], inputs, ["y"]).SerializeToString()
    graph = import_onnx(proto, dims={"height": 5})
    assert graph.inputs[0].type.shape == (1, 3, 5)
    message = "expected an open dimension of the model, got `hight`; .* are `N`, `height`"
    with pytest.raises(ImportModelError, match=message):
        import_onnx(proto, dims={"height": 5, "hight": 5})


def states() -> bytes:
    """A model whose second input names the first one's batch."""
    inputs = [value("x", np.float32, ["batch", 4]), value("h", np.float32, [2, "batch", 4])]
    return model([node("Add", ["x", "h"], ["y"])], inputs, ["y"]).SerializeToString()


def test_a_name_of_dimensions_means_one_extent() -> None:
    for extent, dims in ((1, {}), (3, {"batch": 3})):
        x, h = import_onnx(states(), dims=dims).inputs
        assert (x.type.shape, h.type.shape) == ((extent, 4), (2, extent, 4))
    (x,) = import_onnx(states(), fixed={"h": random(2, 5, 4)}).inputs
    assert x.type.shape == (5, 4)
    message = r"input `h`: expected float32\[2, 3, 4\] to fix it, got float32\[2, 5, 4\]"
    with pytest.raises(ImportModelError, match=message):
        import_onnx(states(), fixed={"h": random(2, 5, 4)}, dims={"batch": 3})


def test_all_missing_extents_are_named_at_once() -> None:
    inputs = [
        value("x", np.float32, ["batch", "rows", "columns"]),
        value("h", np.float32, [1, "batch", None, "rows"]),
    ]
    proto = model([node("Relu", ["x"], ["y"])], inputs, ["y"]).SerializeToString()
    message = (
        "model `model`: expected the extents of all dimensions, got none for `rows` (dimension 1 "
        "of `x`), `columns` (dimension 2 of `x`), dimension 2 of `h`, which has no name; export "
        "the model with a static shape"
    )
    with pytest.raises(ImportModelError, match=f"^{re.escape(message)}$"):
        import_onnx(proto)


def test_a_fixed_value_takes_the_place_of_a_default() -> None:
    proto = reshaping()
    proto.graph.initializer.append(numpy_helper.from_array(integers([5, 1]), "s"))
    for fixed, shape in (({}, (6, 2)), ({"s": integers([2, 3])}, (3, 4))):
        graph = import_onnx(proto.SerializeToString(), fixed=fixed)
        assert [value.name for value in graph.inputs] == ["x"]
        assert graph.types[graph.outputs[0].value].shape == shape


def test_a_function_of_the_model_is_imported_in_place() -> None:
    opsets = [helper.make_opsetid("", 13)]
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
    ]
    slope = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    body[0].attribute.append(slope)
    function = helper.make_function("local", "Act", ["a", "c"], ["d"], body, opsets, ["slope"])
    nodes = [node("Act", ["x", "x"], ["y"], domain="local", slope=0.5)]
    proto = model(nodes, [value("x", np.float32, [4])], ["y"])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_array_equal(
        evaluate(graph, {"x": floats([-2, -1, 0, 3])})["y"], [-3, -1.5, 0, 6]
    )


CLASSICAL = {
    "Scaler": {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 1.0, 2.0]},
    "Normalizer": {"norm": "L2"},
    "LinearRegressor": {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.25], "targets": 1},
    "TreeEnsembleRegressor": {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.25, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [3.0, -4.0],
    },
}


@pytest.mark.parametrize("kind", CLASSICAL)
def test_classical_machine_learning_runs_by_the_reference(kind: str) -> None:
    operator = node(kind, ["x"], ["y"], domain="ai.onnx.ml", **CLASSICAL[kind])
    proto = model([operator], [value("x", np.float32, [4, 3])], ["y"])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    x = random(4, 3)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, rtol=1e-5)
    assert parse_graph(print_graph(graph), {c.name: c.data for c in graph.constants}) == graph


def test_a_sparse_initialiser_is_made_dense() -> None:
    values = numpy_helper.from_array(floats([2, 3]), "w")
    places = numpy_helper.from_array(integers([[0, 1], [2, 0]]), "places")
    sparse = helper.make_sparse_tensor(values, places, [3, 2])
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", np.float32, [1, 3])], ["y"])
    proto.graph.sparse_initializer.append(sparse)
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_array_equal(evaluate(graph, {"x": floats([[1, 10, 100]])})["y"], [[300, 2]])


def test_an_index_out_of_range_at_run_time_is_one_sentence() -> None:
    inputs = [value("x", np.float32, [4]), value("i", np.int64, [2])]
    proto = model([node("Gather", ["x", "i"], ["y"], name="pick")], inputs, ["y"])
    graph = import_onnx(proto.SerializeToString())
    message = (
        "node `pick`: `gather`: expected values that it can compute with, got `index -5 of 4 "
        "elements`; correct the operands"
    )
    with pytest.raises(CompileError, match=f"^{message}$"):
        evaluate(graph, {"x": floats([1, 2, 3, 4]), "i": integers([0, -5])})


@pytest.mark.parametrize("extents", [(8,), (8, 8), (4, 8, 8)], ids=len)
def test_a_batch_without_samples_passes_windows(extents: tuple[int, ...]) -> None:
    window = (2,) * len(extents)
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("MaxPool", ["c"], ["y", "places"], kernel_shape=window),
    ]
    held = {"w": random(3, 2, *window)}
    proto = model(nodes, [value("x", np.float32, (0, 2, *extents))], ["y", "places"], held)
    graph = import_model(proto.SerializeToString())
    found = evaluate(graph, {"x": np.zeros((0, 2, *extents), np.float32)})
    assert {array.shape for array in found.values()} == {(0, 3, *(n - 2 for n in extents))}

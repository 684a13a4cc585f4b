"""Models of operators that ONNX's own tests lack, or apply to constants only."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.helper import make_graph, make_node, make_opsetid, make_tensor_value_info

CLASSICAL, CONTRIBUTED = "ai.onnx.ml", "com.microsoft"
SETS = [("", 20), (CLASSICAL, 3), (CONTRIBUTED, 1)]

Arrays = dict[str, np.ndarray]
Model = tuple[onnx.ModelProto, Arrays]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def whole(*shape: int, dtype: str = "int8") -> np.ndarray:
    return np.random.default_rng(4).integers(0, 9, shape).astype(dtype)


def model_of(nodes: Sequence[onnx.NodeProto], fed: Arrays, outputs: Sequence[str], **held) -> Model:
    """A model with its inputs; the types of its outputs are left open."""
    inputs = [
        make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in fed.items()
    ]
    constants = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in held.items()]
    open_outputs = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = make_graph(list(nodes), "g", inputs, open_outputs, constants)
    sets = [make_opsetid(*one) for one in SETS]
    return onnx.helper.make_model(graph, opset_imports=sets, ir_version=10), fed


def of_one(
    kind: str, fed: Arrays, domain: str = "", outputs: int = 1, held: Any = (), **attributes
):
    """A model of one operator on inputs and constants."""
    names = [f"y{i}" for i in range(outputs)]
    constants: Mapping[str, np.ndarray] = dict(held)
    made = make_node(kind, [*fed, *constants], names, domain=domain, **attributes)
    return model_of([made], fed, names, **constants)


def of_sequences() -> list[Model]:
    x, z = drawn(2, 3, 4), drawn(2, 3, 4)
    body = make_graph(
        [make_node("Neg", ["e"], ["f"])],
        "body",
        [make_tensor_value_info("e", onnx.TensorProto.FLOAT, [2, 3, 4])],
        [make_tensor_value_info("f", onnx.TensorProto.FLOAT, [2, 3, 4])],
    )
    changed = [
        make_node("SequenceConstruct", ["x", "z"], ["s"]),
        make_node("SequenceInsert", ["s", "z", "zero"], ["s1"]),
        make_node("SequenceErase", ["s1", "one"], ["s2"]),
        make_node("SequenceMap", ["s2"], ["s3"], body=body),
        make_node("SequenceLength", ["s3"], ["n"]),
        make_node("Cast", ["n"], ["count"], to=onnx.TensorProto.FLOAT),
        make_node("ConcatFromSequence", ["s3"], ["c"], axis=0),
        make_node("Add", ["c", "count"], ["y"]),
    ]
    split = [
        make_node("SplitToSequence", ["x"], ["s"], axis=1),
        make_node("SequenceEmpty", [], ["none"]),
        make_node("SequenceAt", ["s", "one"], ["a"]),
        make_node("SequenceInsert", ["none", "a"], ["s1"]),
        make_node("ConcatFromSequence", ["s1"], ["y"], axis=0, new_axis=1),
    ]
    optional = [
        make_node("Optional", ["x"], ["o"]),
        make_node("OptionalGetElement", ["o"], ["a"]),
        make_node("OptionalHasElement", ["o"], ["h"]),
        make_node("Where", ["h", "a", "zero"], ["b"]),
        make_node("Neg", ["b"], ["y"]),
    ]
    zero, one = np.int64(0), np.int64(1)
    return [
        model_of(changed, {"x": x, "z": z}, ["y"], zero=zero, one=one),
        model_of(split, {"x": x}, ["y"], one=one),
        model_of(optional, {"x": x}, ["y"], zero=np.zeros(1, np.float32)),
    ]


def of_classical() -> list[Model]:
    table = {"x": drawn(2, 3)}
    machine: dict[str, Any] = {
        "coefficients": [0.5, -0.5],
        "kernel_params": [0.3, 0.0, 3.0],
        "kernel_type": "RBF",
        "rho": [0.1],
        "support_vectors": drawn(6).tolist(),
    }
    tree: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
    }
    leaves: dict[str, dict[str, Any]] = {
        kind: {"ids": [0, 1], "nodeids": [1, 2], "treeids": [0, 0], "weights": [1.0, 2.0]}
        for kind in ("class", "target")
    }
    voted, summed = (
        {f"{kind}_{name}": values for name, values in leaf.items()} for kind, leaf in leaves.items()
    )
    linear = {"coefficients": drawn(6).tolist(), "intercepts": [0.1, 0.2]}
    rows: list[tuple[str, dict[str, Any]]] = [
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": np.nan}),
        ("LinearClassifier", {**linear, "classlabels_ints": [0, 1], "post_transform": "SOFTMAX"}),
        ("LinearRegressor", {**linear, "targets": 2}),
        ("Normalizer", {"norm": "L2"}),
        ("Scaler", {"offset": [0.1, 0.2, 0.3], "scale": [1.0, 2.0, 3.0]}),
        ("SVMRegressor", {**machine, "n_supports": 2}),
        ("SVMClassifier", {**machine, "classlabels_ints": [0, 1], "vectors_per_class": [1, 1]}),
        ("TreeEnsembleRegressor", {**tree, **summed, "n_targets": 2}),
        ("TreeEnsembleClassifier", {**tree, **voted, "classlabels_int64s": [0, 1]}),
    ]
    found = [
        of_one(kind, table, CLASSICAL, 1 + kind.endswith("Classifier"), **attributes)
        for kind, attributes in rows
    ]
    pair = {"a": drawn(2, 3), "b": drawn(2, 2)}
    labels = {"x": whole(2, 2, dtype="int64") % 3}
    found.append(of_one("FeatureVectorizer", pair, CLASSICAL, inputdimensions=[3, 2]))
    found.append(of_one("OneHotEncoder", labels, CLASSICAL, cats_int64s=[0, 1, 2]))
    return found


def of_contributed() -> list[Model]:
    row, image = {"x": drawn(2, 3, 4)}, {"x": drawn(1, 2, 5, 5)}
    pair, vector = row | {"z": drawn(2, 3, 4)}, {"b": drawn(4)}
    heads = {name: drawn(1, 4, 8) for name in "qkv"}
    scale = {"s": np.float32(0.1)}
    byte_product = {"w": whole(4, 5), **scale}
    rows: list[tuple[str, Arrays, Any, dict[str, Any]]] = [
        ("BiasGelu", row, vector, {}),
        ("FastGelu", row, vector, {}),
        ("Gelu", row, {}, {}),
        ("QuickGelu", row, {}, {"alpha": 1.7}),
        ("FusedMatMul", {"x": drawn(3, 4)}, {"w": drawn(5, 4)}, {"transB": 1, "alpha": 0.5}),
        ("FusedConv", image, {"w": drawn(3, 2, 3, 3)}, {"activation": "Relu"}),
        ("SkipLayerNormalization", pair, {"g": drawn(4), **vector}, {}),
        ("SkipSimplifiedLayerNormalization", pair, {"g": drawn(4)}, {}),
        ("Attention", {"x": drawn(1, 4, 8)}, {"w": drawn(8, 24), "b": drawn(24)}, {"num_heads": 2}),
        ("MultiHeadAttention", heads, {}, {"num_heads": 2}),
        ("DynamicQuantizeMatMul", {"x": drawn(3, 4)}, byte_product, {}),
        ("MatMulIntegerToFloat", {"x": whole(3, 4)}, {**byte_product, "t": np.float32(0.2)}, {}),
        (
            "MatMulNBits",
            {"x": drawn(3, 32)},
            {"w": whole(8, 1, 16, dtype="uint8"), "s": np.abs(drawn(8))},
            {"K": 32, "N": 8, "bits": 4, "block_size": 32},
        ),
    ]
    return [of_one(kind, fed, CONTRIBUTED, 1, held, **more) for kind, fed, held, more in rows]


def more_models() -> list[Model]:
    """Return the models, each with its inputs."""
    dropped = [make_node("Dropout", ["x"], ["d"]), make_node("Neg", ["d"], ["y"])]
    return [
        of_one("GlobalLpPool", {"x": drawn(1, 2, 4, 5)}),
        model_of(dropped, {"x": drawn(2, 3)}, ["y"]),
        of_one("SimplifiedLayerNormalization", {"x": drawn(2, 3, 4)}, held={"g": drawn(4)}),
        *of_sequences(),
        *of_classical(),
        *of_contributed(),
    ]

"""Sequences, branches and loops of a model vanish at import, or are refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx, onnx_functions
from tilewright.errors import ImportModelError

from .onnx_models import floats, model, node, run_onnxruntime, value

GENERATOR = np.random.default_rng(11)


def random(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


SEQUENCES = {
    "split and joined": [
        node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        node("SequenceAt", ["s", "last"], ["tail"]),
        node("SequenceErase", ["s", "zero"], ["e"]),
        node("SequenceInsert", ["e", "tail", "one"], ["i"]),
        node("ConcatFromSequence", ["i"], ["y"], axis=1),
    ],
    "split into rows and stacked": [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ],
    "constructed and counted": [
        node("SequenceConstruct", ["x", "x", "x"], ["s"]),
        node("SequenceLength", ["s"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["x", "f"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_of_known_length_vanish(name: str) -> None:
    constants = {
        "two": np.int64(2),
        "last": np.int64(-1),
        "zero": np.int64(0),
        "one": np.int64(1),
    }
    proto = model(SEQUENCES[name], [value("x", np.float32, [2, 5])], ["y"], constants)
    x = random(2, 5)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected)


def test_a_sequence_grows_in_a_loop() -> None:
    sequence = helper.make_tensor_sequence_value_info("rows", TensorProto.FLOAT, [2])
    grown = helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, [2])
    flag = helper.make_tensor_value_info("going", TensorProto.BOOL, [])
    on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    steps = [
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["x", "f"], ["row"]),
        node("SequenceInsert", ["rows", "row"], ["more"]),
        node("Identity", ["going"], ["on"]),
    ]
    body = helper.make_graph(steps, "body", [value("i", np.int64, []), flag, sequence], [on, grown])
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["n", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    proto = model(nodes, [value("x", np.float32, [2])], ["y"], {"n": np.int64(3)})
    graph = import_onnx(proto.SerializeToString())
    got = evaluate(graph, {"x": floats([1, -2])})["y"]
    np.testing.assert_array_equal(got, [[0, 0], [1, -2], [2, -4]])


@pytest.mark.parametrize(
    ("last", "complaint"),
    [
        (node("Relu", ["s"], ["y"], name="relu"), "expected a tensor as input 0, got a sequence"),
        (node("SequenceAt", ["s", "k"], ["y"], name="at"), "expected a place among 2 elements"),
        (node("Identity", ["s"], ["y"], name="same"), "expected a tensor, got sequences"),
        (node("SequenceLength", ["x"], ["y"], name="count"), "expected a sequence, got a tensor"),
    ],
)
def test_a_sequence_at_the_wrong_place_is_refused(last: onnx.NodeProto, complaint: str) -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), last]
    proto = model(nodes, [value("x", np.float32, [2])], ["y"], {"k": np.int64(2)})
    with pytest.raises(ImportModelError, match=complaint):
        import_onnx(proto.SerializeToString())


def test_a_branch_by_a_value_computes_both_and_selects() -> None:
    def branch(kind: str) -> onnx.GraphProto:
        shown = [value("z", np.float32, [3])]
        return helper.make_graph([node(kind, ["x"], ["z"])], kind, [], shown)

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Relu")),
    ]
    proto = model(nodes, [value("x", np.float32, [3])], ["y"], {"zero": np.float32(0)})
    graph = import_onnx(proto.SerializeToString())
    for x in (floats([1, 2, -1]), floats([-3, 1, 1])):
        expected = run_onnxruntime(proto, {"x": x})["y"]
        np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], expected)


def loop(count: int, limit: float) -> onnx.ModelProto:
    """y doubles `count` times, or until it is no longer below `limit`; all its values are shown."""
    body = helper.make_graph(
        [
            node("Add", ["old", "old"], ["new"]),
            node("Identity", ["new"], ["shown"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            value("i", np.int64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            value("old", np.float32, [2]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            value("new", np.float32, [2]),
            value("shown", np.float32, [2]),
        ],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "all"], body=body)]
    return model(nodes, [value("x", np.float32, [2])], ["y", "all"], {"n": np.int64(count)})


def test_a_loop_is_unrolled() -> None:
    proto = loop(3, 100)
    graph = import_onnx(proto.SerializeToString())
    results = evaluate(graph, {"x": floats([1, 2])})
    np.testing.assert_array_equal(results["y"], [8, 16])
    np.testing.assert_array_equal(results["all"], [[2, 4], [4, 8], [8, 16]])


@pytest.mark.parametrize("counted", [True, False])
def test_an_endless_loop_is_refused(counted: bool) -> None:
    proto = loop(10**12, 100)
    if not counted:
        proto.graph.node[0].input[0] = ""
    message = "expected no long loops, got more than 10,000 iterations; shorten it"
    with pytest.raises(ImportModelError, match=message):
        import_onnx(proto.SerializeToString())


def test_functions_that_double_their_calls_are_refused(monkeypatch):
    """2**20 calls in a file of 1 kB; none is expanded, which would take seconds."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    bodies = [[helper.make_node("Identity", ["x"], ["y"])]]
    for level in range(20):
        names = ["x", "t", "y"]
        bodies.append(
            [
                helper.make_node(f"f{level}", [names[i]], [names[i + 1]], domain="own")
                for i in range(2)
            ]
        )
    functions = [
        helper.make_function("own", f"f{level}", ["x"], ["y"], body, opsets)
        for level, body in enumerate(bodies)
    ]
    call = helper.make_node("f20", ["x"], ["y"], domain="own")
    x, y = (helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
    proto = helper.make_model(
        helper.make_graph([call], "nested", [x], [y]), opset_imports=opsets, functions=functions
    )
    monkeypatch.setattr(onnx_functions, "_expand", None)
    message = "expected no long loops and deeply nested functions, got more than 100,000 nodes; "
    with pytest.raises(ImportModelError, match=message):
        import_onnx(proto.SerializeToString())


def test_sizes_of_functions_end_where_calls_do_not():
    """`a` calls `b` twice, which calls `c` once; `d` calls itself."""
    bodies = {"a": ["b", "b"], "b": ["c", "Relu"], "c": ["Relu", "Relu"], "d": ["d"]}
    functions = {
        ("own", name): helper.make_function(
            "own", name, ["x"], ["y"],
            [helper.make_node(f, ["x"], ["y"], domain="own" * (f in bodies)) for f in body], [],
        )
        for name, body in bodies.items()
    }  # fmt: skip
    sizes = onnx_functions.function_sizes(functions)
    assert sizes == {("own", name): size for name, size in zip("abcd", (10, 4, 2, 1), strict=True)}


def test_a_recurrent_layer_of_millions_of_steps_is_refused():
    steps = 1 << 22
    weights = [numpy_helper.from_array(np.ones((1, 4, 1), np.float32), name) for name in "wr"]
    x = helper.make_tensor_value_info("x", 1, [steps, 1, 1])
    y = onnx.ValueInfoProto(name="y")
    layer = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=1)
    proto = helper.make_model(
        helper.make_graph([layer], "long", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    with pytest.raises(ImportModelError, match=r"at most 65,536 steps.*got 4,194,304 steps"):
        import_onnx(proto.SerializeToString())

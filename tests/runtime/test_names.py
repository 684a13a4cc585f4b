"""Names of layers: short, unique, and of every node that a layer holds."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Constant, Graph, Node, Output, QAdd, QConv, TensorType, Value
from tilewright.compiler.graph.short_names import denotes, short_names, similar_names
from tilewright.compiler.module import Layer, Module, Segment
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.names import (
    find_layers,
    layer_names,
    layer_nodes,
    node_names,
    on_chip,
    short_name,
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"
SMALL = PRESETS["8x8"]


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_module(import_model(DIGITS), SMALL)


def chain(names: list[str], layers: list[int]) -> Module:
    """Convolutions and additions in turn, in layers that end with the nodes of these numbers."""
    kind = TensorType("int8", (1, 2, 2, 8))
    constants = (
        Constant("w", np.zeros((1, 1, 8, 8), np.int8)),
        Constant("bias", np.zeros(8, np.int32)),
        Constant("scale", np.ones(8, np.float32)),
    )
    conv = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
    nodes, value = [], "x"
    for index, name in enumerate(names):
        given = Value(f"v{index}", kind)
        if index % 2:
            nodes.append(Node(name, QAdd((1, 1), 0, 1.0, 0, 0), (value, "x"), (given,)))
        else:
            nodes.append(Node(name, conv, (value, "w", "bias", "scale"), (given,)))
        value = given.name
    graph = Graph("chain", (Value("x", kind),), (Output("y", value),), tuple(nodes), constants)
    found, first = [], 0
    for last in layers:
        joined = " + ".join(names[first : last + 1])
        found.append(Layer(joined, "conv", f"v{last}", 0, "", ()))
        first = last + 1
    segment = Segment((), (), tuple(found), (), (), (), b"", 0, 0)
    return Module("chain", SMALL, graph, (0,), (segment,), {})


def test_names_that_would_be_the_same_stay_whole():
    names = ["/layer1/conv1/Conv", "/layer2/conv1/Conv", "a;net/dense/BiasAdd/ReadVariableOp/r"]
    assert short_names(names) == [*names[:2], "dense/BiasAdd"]


def test_paths_are_cut_to_what_says_most():
    assert short_name("a/b;model/conv2d/Conv2D1") == "conv2d/Conv2D1"
    assert short_name("dense") == "dense"
    assert short_name("/Conv") == "Conv"
    assert short_name("m/conv2d_5/BiasAdd/ReadVariableOp/resource1_prequant") == "conv2d_5/BiasAdd"


def test_names_of_nodes_are_short_and_differ():
    names = ["a/first/Conv", "a/first/Add", "b/second/Conv", "c/third/Conv", "d/third/Conv"]
    assert list(node_names(chain(names, [4]).graph).values()) == [
        "first/Conv", "first/Add", "second", "c/third/Conv", "d/third/Conv",
    ]  # fmt: skip


def test_a_reshape_does_not_take_the_name_of_a_layer(module):
    names = list(node_names(module.graph).values())
    assert len(set(names)) == len(names) == len(module.graph.nodes)
    assert {"conv1", "conv2", "conv3", "residual", "pool", "dense"} <= set(names)


def test_layers_hold_every_accelerated_node_once(module):
    held = layer_nodes(module)
    names = [[node.name for node in nodes] for nodes in held.values()]
    assert [name for layer in names for name in layer] == [
        "conv1",
        "conv2",
        "conv3",
        "residual",
        "pool",
        "dense",
    ]
    assert len(names) < 6, "nothing is fused"
    hosted = [step for step in module.steps if isinstance(step, str)]
    assert len(hosted) + sum(map(len, names)) == len(module.graph.nodes)
    for output, nodes in held.items():
        assert nodes[-1].output.name == output


def test_what_stays_on_chip_has_no_place_in_memory(module):
    assert "conv3" in on_chip(module)
    placed = {binding.name for binding in module.segments[0].activations}
    for nodes in layer_nodes(module).values():
        for node in nodes[:-1]:
            assert node.output.name not in placed


def test_a_fused_layer_is_named_after_its_nodes(module):
    (segment,) = module.segments
    names = layer_names(module)
    assert " + ".join(names[layer.output] for layer in segment.layers) == (
        "conv1 + conv2 + conv3 + residual + pool + dense"
    )


def test_operators_are_left_out_where_the_rest_tells_nodes_apart():
    module = chain(["m/conv2d/Conv2D", "m/add/Add"], [1])
    assert layer_names(module) == {"v1": "conv2d + add"}
    module = chain(["m/block/Conv", "m/block/Add"], [1])
    assert layer_names(module) == {"v1": "block/Conv + block/Add"}


def test_names_of_layers_have_as_many_parts_as_tell_them_apart():
    module = chain(["a/m/conv/Conv", "a/m/add/Add", "a/n/conv/Conv", "a/n/add/Add"], [1, 3])
    assert layer_names(module) == {"v1": "m/conv + m/add", "v3": "n/conv + n/add"}
    for wanted in ("n/conv + n/add", "n/add/Add", "n/add", "a/n/conv"):
        assert [layer.output for _, layer in find_layers(module, wanted)] == ["v3"], wanted
    assert [layer.output for _, layer in find_layers(module, "add")] == ["v1", "v3"]


def test_layers_of_one_path_are_numbered():
    module = chain(["m/conv/Conv", "m/add/Add", "m/conv/Conv", "m/add/Add"], [1, 3])
    assert layer_names(module) == {"v1": "conv + add", "v3": "conv + add#2"}
    assert [layer.output for _, layer in find_layers(module, "conv + add#2")] == ["v3"]


@pytest.mark.parametrize("number", range(3))
def test_a_layer_is_found_by_its_name_and_each_of_its_nodes(number):
    module = chain(["m/conv/Conv", "m/add/Add", "m/last/Conv"], [0, 2])
    wanted = ["add + last", "m/add/Add", "last/Conv"][number]
    ((index, layer),) = find_layers(module, wanted)
    assert (index, layer.output) == (0, "v2")


def test_a_layer_of_that_name_goes_before_one_that_holds_such_a_node():
    module = chain(["m/conv/Conv", "add", "conv", "last"], [1, 2, 3])
    assert [layer.output for _, layer in find_layers(module, "conv")] == ["v2"]


def test_what_no_layer_holds_is_not_found(module):
    assert find_layers(module, "conv9") == []
    assert find_layers(module, "logits_DequantizeLinear") == []


def test_a_misspelt_or_shortened_name_is_answered_with_similar_ones():
    names = [
        "net/relu;net/conv2d/Conv2D",
        "net/bias;net/dense/BiasAdd/ReadVariableOp/r",
        "/Flatten",
    ]
    assert similar_names("dens", names) == "; did you mean `dense`?"
    assert similar_names("Dnese", names) == "; did you mean `dense`?"
    assert similar_names("conv", names) == "; did you mean `conv2d`?"
    assert similar_names("pool", names) == "; choose one of `conv2d`, `dense`, `Flatten`"
    assert similar_names("", []) == "; choose one of none"


def test_many_similar_names_are_cut():
    told = similar_names("conv", [f"net/conv_{number}/Conv" for number in range(20)])
    assert told.startswith("; did you mean `conv_0`, `conv_1`, ")
    assert told.endswith("`conv_7` and 12 more?")


def test_the_short_name_of_a_fused_layer_has_those_of_its_nodes():
    assert short_name("a;m/conv/Conv2D + b;m/add/Add") == "conv + add"
    assert short_name("m/block/Conv + m/block/Add") == "block/Conv + block/Add"
    assert denotes("conv + add", "a;m/conv/Conv2D + b;m/add/Add")


def test_the_end_of_a_path_denotes_a_node():
    name = "a;/net/block3/layer5/conv2/Conv"
    for wanted in (name, "block3/layer5/conv2/Conv", "block3/layer5/conv2", "conv2", "Conv"):
        assert denotes(wanted, name), wanted
    for wanted in ("", "onv", "lock3/layer5/conv2", "layer5", "block3/layer5", "a"):
        assert not denotes(wanted, name), wanted

"""Layers of the quantiser: the nodes they join, and activations that share a scale."""

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.quantiser.layers import find_layers
from tilewright.compiler.quantiser.macs import macs
from tilewright.compiler.quantiser.points import find_points
from tilewright.compiler.quantiser.prepare import prepare
from tilewright.errors import CompileError

from .networks import Net, attention_network, small_network


def kinds_of(net: Net, output: str, *keep_float: str) -> list[str]:
    return [layer.kind for layer in find_layers(prepare(net.graph(output)), keep_float)]


def test_a_usual_network_is_quantised_up_to_its_softmax() -> None:
    net, output = small_network()
    graph = prepare(net.graph(output))
    layers = find_layers(graph)
    assert [layer.kind for layer in layers] == ["conv", "conv", "conv", "add", "pool", "dense"]
    assert layers[3].inputs[0] == layers[2].output
    assert "softmax" not in {node.op for n in layers for node in [graph.producer(n.output)] if node}


def test_an_activation_function_is_one_table_whatever_it_consists_of() -> None:
    net = Net(3, 8, 8)
    x = net.conv("x", 4, 3)
    x = net.node("Mul", x, net.node("Sigmoid", x))
    assert kinds_of(net, net.conv(x, 4, 4)) == ["conv", "table", "conv"]


def test_functions_at_either_end_stay_in_float() -> None:
    net = Net(3, 8, 8)
    x = net.conv(net.node("Sqrt", net.node("Abs", "x")), 4, 3)
    assert kinds_of(net, net.node("Sigmoid", x)) == ["conv"]


def test_a_product_with_a_gate_for_each_channel_is_a_layer() -> None:
    net = Net(3, 8, 8)
    x = net.conv("x", 4, 3)
    gate = net.node("Sigmoid", net.conv(net.node("GlobalAveragePool", x), 4, 4, kernel=1))
    x = net.conv(net.node("Mul", x, gate), 4, 4)
    assert kinds_of(net, x) == ["conv", "pool", "conv", "table", "mul", "conv"]


def test_products_behind_each_other_and_before_sums_are_layers() -> None:
    """As of coordinate attention, residual squeeze-and-excite and FiLM."""
    net = Net(4, 8, 8)
    x = net.conv("x", 4, 4)
    rows, columns = (
        net.node("Sigmoid", net.conv(net.node("ReduceMean", x, axes=[axis]), 4, 4, kernel=1))
        for axis in (2, 3)
    )
    gated = net.node("Mul", columns, net.node("Mul", x, rows))
    x = net.conv(net.node("Add", gated, x), 4, 4)
    assert kinds_of(net, x).count("mul") == 2
    term = net.conv(net.node("GlobalAveragePool", x), 4, 4, kernel=1)
    modulated = net.node("Add", net.node("Mul", x, term), net.conv(term, 4, 4, kernel=1))
    found = kinds_of(net, net.conv(modulated, 4, 4))
    assert (found.count("mul"), found.count("add")) == (3, 2)


def test_an_average_over_uneven_windows_stays_in_float() -> None:
    net = Net(3, 8, 8)
    x = net.node("AveragePool", net.conv("x", 4, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    assert kinds_of(net, net.conv(x, 4, 4)) == ["conv", "conv"]


@pytest.mark.parametrize("name", ["conv0", "relu2"])
def test_a_layer_stays_in_float_by_the_name_of_any_of_its_nodes(name: str) -> None:
    net, output = small_network()
    assert kinds_of(net, output, name) == ["conv", "conv", "add", "pool", "dense"]


def test_a_name_that_no_layer_has_is_refused() -> None:
    net = Net(4)
    with pytest.raises(CompileError) as refusal:
        kinds_of(net, net.dense("x", 4, 2), "conv9")
    assert str(refusal.value) == (
        "graph `model`: expected a layer to keep in float, got `conv9`; choose one of `gemm0`"
    )


def test_what_is_joined_shares_a_scale() -> None:
    net = Net(3, 8, 8)
    a, b = net.conv("x", 4, 3), net.node("Relu", net.conv("x", 6, 3))
    pooled = net.node("MaxPool", b, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    joined = net.node("Concat", a, pooled, axis=1)
    graph = prepare(net.graph(net.conv(joined, 4, 10)))
    points = find_points(graph, find_layers(graph))
    (group,) = (group for group in points.groups if len(group) > 1)
    first, second, _ = points.layers
    assert set(group) == {first.output, second.output, joined}
    assert set(points.readers) == {"x"}


def test_what_only_the_host_joins_has_scales_of_its_own() -> None:
    net = Net(3, 8, 8)
    output = net.node("Concat", net.conv("x", 4, 3), net.conv("x", 6, 3), axis=1)
    graph = prepare(net.graph(output))
    points = find_points(graph, find_layers(graph))
    assert all(len(group) == 1 for group in points.groups)


def test_attention_is_products_of_activations_without_zero_points() -> None:
    net, output = attention_network()
    graph = prepare(net.graph(output))
    layers = find_layers(graph)
    assert [layer.kind for layer in layers].count("dense") == 5
    scores, context = (layer for layer in layers if layer.kind == "matmul")
    assert scores.linear != scores.head, "the factor behind the product belongs to it"
    assert context.linear == context.head
    points = find_points(graph, layers)
    dense = {layer.output for layer in layers if layer.kind == "dense"}
    assert len(points.centred & dense) == 3
    assert points.centred - dense == {context.inputs[0]}


def test_a_negative_factor_stays_behind_the_product() -> None:
    net = Net(4, 4)
    weights = net.constant(net.random.standard_normal((4, 4)))
    x = net.node("MatMul", "x", weights)
    x = net.node("MatMul", x, x)
    graph = prepare(net.graph(net.node("Mul", x, net.constant(-1))))
    (product,) = (layer for layer in find_layers(graph) if layer.kind == "matmul")
    assert product.output == product.head


def test_multiplications_are_counted() -> None:
    net = Net(4, 6, 6)
    x = net.conv("x", 8, 4, group=2)
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    graph = net.graph(net.dense(x, 8, 5))
    assert macs(graph) == (0, 36 * 8 * 2 * 9 + 8 * 5)


def named_network(*names: str) -> Graph:
    """Two layers whose names end alike, as exporters call them."""
    net = Net(3, 8, 8)
    output = net.conv(net.conv("x", 4, 3), 4, 4)
    for made, name in zip(net.nodes, names or ("/first/conv", "/second/conv"), strict=True):
        made.name = name
    return prepare(net.graph(output))


def test_the_end_of_a_name_means_the_one_layer_that_has_it() -> None:
    graph = named_network()
    assert [layer.name for layer in find_layers(graph)] == ["/first/conv", "/second/conv"]
    assert [layer.name for layer in find_layers(graph, ["first/conv"])] == ["/second/conv"]


def test_the_short_form_of_a_joined_name_means_the_layer() -> None:
    """Also where another name ends with that word."""
    names = "a/conv2d/relu;a/conv/BiasAdd/ReadVariableOp/resource1", "a/depthwise_conv/BiasAdd"
    graph = named_network(*names)
    assert [layer.name for layer in find_layers(graph, ["conv/BiasAdd"])] == [names[1]]
    assert [layer.name for layer in find_layers(graph, ["depthwise_conv/BiasAdd"])] == [names[0]]


def test_the_end_of_several_names_means_none() -> None:
    with pytest.raises(CompileError) as refusal:
        find_layers(named_network(), ["/conv"])
    assert str(refusal.value) == (
        "graph `model`: expected a layer to keep in float, got `/conv`, which is the end of 2 "
        "names; choose one of `first/conv`, `second/conv`"
    )


def test_a_product_in_float64_is_left_as_it_is() -> None:
    builder = Builder("double", [Value("x", TensorType("float64", (2, 3)))])
    weights = builder.constant(np.ones((3, 4), np.float64), "w")
    product = builder.emit(ops.MatMul(), ["x", weights])
    graph = builder.graph([Output("y", product)])
    assert [one.op for one in prepare(graph).nodes] == ["matmul"]


def test_a_product_in_float16_is_quantised_as_one_in_float32() -> None:
    builder = Builder("half", [Value("x", TensorType("float16", (2, 3)))])
    weights = builder.constant(np.ones((3, 4), np.float16), "w")
    product = builder.emit(ops.MatMul(), ["x", weights])
    graph = builder.graph([Output("y", product)])
    assert [one.op for one in prepare(graph).nodes] == ["cast", "matmul", "binary", "cast"]

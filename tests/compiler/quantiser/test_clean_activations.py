"""Clamps end up in one form next to their layer, and what the graph computes stays."""

import numpy as np
import pytest

from tilewright.compiler import passes
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph import verify

from .networks import Net, output_of


def cleaned(net: Net, output: str) -> list[ops.Operator]:
    """Clean, compare on samples, and return what is left."""
    graph = net.graph(output)
    result = verify(passes.clean_activations(graph))
    inputs = net.inputs(3)
    np.testing.assert_array_equal(output_of(result, inputs), output_of(graph, inputs))
    return [node.attributes for node in result.nodes]


def test_maximum_and_minimum_with_scalars_are_one_clip() -> None:
    net = Net(4)
    x = net.node("Min", net.constant(0.5), net.node("Max", "x", net.constant(-0.5)))
    assert cleaned(net, x) == [ops.Unary("Clip", (-0.5, 0.5))]


def test_a_maximum_with_zero_is_relu() -> None:
    net = Net(4)
    assert cleaned(net, net.node("Max", "x", net.constant(0))) == [ops.Unary("Relu")]


def test_relu_of_a_clip_keeps_what_both_let_through() -> None:
    net = Net(4)
    clip = net.node("Clip", "x", net.constant(-1), net.constant(0.75))
    assert cleaned(net, net.node("Relu", clip)) == [ops.Unary("Clip", (0.0, 0.75))]


def test_a_clip_that_lets_nothing_through_gives_its_limit() -> None:
    net = Net(4)
    first = net.node("Clip", "x", net.constant(-0.75), net.constant(-0.5))
    assert cleaned(net, net.node("Relu", first)) == [ops.Unary("Clip", (0.0, 0.0))]


def test_a_maximum_with_a_tensor_stays() -> None:
    net = Net(4)
    x = net.node("Max", "x", net.constant([0, 0.1, 0, 0]))
    assert cleaned(net, x) == [ops.Binary("Max")]


@pytest.mark.parametrize("kind", ["MaxPool", "Transpose"])
def test_relu_moves_above_what_only_moves(kind: str) -> None:
    net = Net(2, 4, 4)
    attributes = {"MaxPool": {"kernel_shape": [2, 2]}, "Transpose": {"perm": [0, 2, 3, 1]}}
    x = net.node(kind, net.conv("x", 2, 2), **attributes[kind])
    clamp = ops.Unary("Relu")
    assert cleaned(net, net.node("Relu", x))[1] == clamp


def test_relu_stays_where_the_unclamped_value_is_read_too() -> None:
    net = Net(2, 4, 4)
    x = net.node("MaxPool", "x", kernel_shape=[2, 2])
    y = net.node("Add", net.node("Relu", x), x)
    assert [type(each) for each in cleaned(net, y)] == [ops.MaxPool, ops.Unary, ops.Binary]

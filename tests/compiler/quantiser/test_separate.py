"""Concats of unlike parts stay in float; those that convolutions read do not."""

import numpy as np
import pytest

from tilewright.compiler.graph import evaluate, is_accelerated
from tilewright.compiler.quantiser import make_batches, quantise

from .networks import Net


def detecting(factor: float, reader: str) -> tuple[Net, str]:
    """Two convolutions, one times `factor`, one through a Sigmoid, joined and read together."""
    net = Net(3, 8, 8)
    coordinates = net.node("Mul", net.conv("x", 4, 3), net.constant(factor))
    scores = net.node("Sigmoid", net.conv("x", 4, 3))
    joined = net.node("Concat", coordinates, scores, axis=1)
    if reader == "conv":
        return net, net.conv(joined, 4, 8)
    return net, net.node("Add", joined, net.conv("x", 8, 3))


@pytest.mark.parametrize(
    ("factor", "reader", "joins"),
    [(1, "sum", True), (400, "sum", False), (1, "conv", True), (400, "conv", True)],
)
def test_parts_share_a_scale_unless_one_of_them_is_lost(factor, reader, joins):
    net, output = detecting(factor, reader)
    graph = net.graph(output)
    samples = net.inputs(8)
    integer = quantise(graph, make_batches(graph, samples)).integer_graph()
    assert any(node.op == "qconcat" for node in integer.nodes) == joins
    if not joins:
        inputs = {"x": samples["x"][0]}
        scores, wanted = (evaluate(each, inputs)[output][:, 4:] for each in (integer, graph))
        assert np.abs(scores - wanted).max() < 0.05


def test_a_sum_between_floats_stays_there():
    net = Net(4, 8)
    spread = net.node("Softmax", net.dense("x", 8, 8))
    total = net.node("Add", spread, net.node("Softmax", "x"))
    graph = net.graph(net.node("Softmax", total))
    integer = quantise(graph, make_batches(graph, net.inputs(8))).integer_graph()
    assert [node.op for node in integer.nodes if is_accelerated(node)] == ["qconv"]

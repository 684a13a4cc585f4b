"""Products and sums with constants vanish into weights, and what the graph computes stays."""

import numpy as np
import pytest

from tilewright.compiler import passes
from tilewright.compiler.graph import verify

from .networks import Net, output_of


def folded(net: Net, output: str) -> list[str]:
    """Fold, compare on samples, and return the operators that are left."""
    graph = net.graph(output)
    result = verify(passes.fold_batch_normalisation(graph))
    inputs = net.inputs(3)
    np.testing.assert_allclose(
        output_of(result, inputs), output_of(graph, inputs), rtol=1e-4, atol=1e-5
    )
    return [node.op for node in result.nodes]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_normalisation_behind_a_convolution_folds(groups: int) -> None:
    net = Net(4, 6, 6)
    assert folded(net, net.normalised(net.conv("x", 8, 4, group=groups), 8)) == ["conv"]


def test_a_convolution_without_bias_gets_one() -> None:
    net = Net(4, 6, 6)
    weights = net.constant(np.ones((8, 4, 3, 3)))
    x = net.node("Conv", "x", weights)
    offset = net.constant(np.arange(8).reshape(8, 1, 1))
    assert folded(net, net.node("Sub", offset, x)) == ["conv"]


def test_products_and_sums_behind_a_dense_layer_fold() -> None:
    net = Net(6)
    x = net.dense("x", 6, 4)
    x = net.node("Div", x, net.constant([1, 2, 3, 4]))
    assert folded(net, net.node("Add", x, net.constant(5))) == ["matmul", "binary"]


@pytest.mark.parametrize("groups", [1, 2])
def test_normalised_inputs_fold_into_the_first_layer(groups: int) -> None:
    net = Net(4, 6, 6)
    x = net.node("Sub", "x", net.constant(np.arange(4).reshape(4, 1, 1)))
    x = net.node("Mul", x, net.constant(np.arange(1, 5).reshape(4, 1, 1)))
    weights = net.constant(net.random.standard_normal((8, 4 // groups, 3, 3)))
    assert folded(net, net.node("Conv", x, weights, group=groups)) == ["conv"]


def test_a_sum_ahead_of_padding_stays() -> None:
    net = Net(4, 6, 6)
    x = net.node("Mul", net.node("Sub", "x", net.constant(3)), net.constant(2))
    assert folded(net, net.conv(x, 8, 4)) == ["binary", "conv"]


def test_a_normalised_input_of_a_dense_layer_folds() -> None:
    net = Net(6)
    x = net.node("Sub", net.node("Mul", "x", net.constant(2)), net.constant(np.arange(6)))
    assert folded(net, net.dense(x, 6, 4)) == ["matmul", "binary"]


def test_a_layer_that_others_read_stays() -> None:
    net = Net(4, 6, 6)
    x = net.conv("x", 4, 4)
    scaled = net.node("Mul", x, net.constant(2))
    assert folded(net, net.node("Add", scaled, x)) == ["conv", "binary", "binary"]


def test_a_constant_that_varies_over_the_image_stays() -> None:
    net = Net(4, 6, 6)
    factor = net.constant(np.arange(1, 7).reshape(1, 6))
    assert folded(net, net.node("Mul", net.conv("x", 4, 4), factor)) == ["conv", "binary"]

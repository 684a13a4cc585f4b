"""Patterns of attention and of layers on sequences, one by one."""

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConv,
    QLut,
    QMatMul,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
)
from tilewright.compiler.graph.operators import QMatMulSums, Transpose
from tilewright.compiler.passes import absorb_heads
from tilewright.compiler.passes.recognise_biases import fit_biases
from tilewright.isa.numbers import quantise_output

from .onnx_models import WEIGHTS, floats, integers, model, node, run_onnxruntime, value

CONSTANTS = {
    "sa": np.float32(0.02),
    "za": np.int8(-7),
    "sb": np.float32(0.03),
    "zb": np.int8(4),
    "sy": np.float32(0.05),
    "zy": np.int8(11),
    "quarter": np.float32(0.25),
    "four": np.float32(4),
}


def in_quantised_form(nodes: Sequence, shapes: Sequence[Sequence[int]], constants=None):
    """A model from int8 `a` and `b`, dequantised to `fa` and `fb`, to `fy`, quantised to `y`."""
    names = "ab"[: len(shapes)]
    before = [node("DequantizeLinear", [x, f"s{x}", f"z{x}"], [f"f{x}"]) for x in names]
    after = [node("QuantizeLinear", ["fy", "sy", "zy"], ["y"])]
    inputs = [value(x, np.int8, shape) for x, shape in zip(names, shapes, strict=True)]
    return model([*before, *nodes, *after], inputs, ["y"], {**CONSTANTS, **(constants or {})})


def recognised(proto) -> tuple[Graph, list]:
    """The graph, and the operators of the accelerator in it."""
    graph = import_model(proto.SerializeToString())
    return graph, [node.attributes for node in graph.nodes if is_accelerated(node)]


def assert_agrees(
    graph: Graph, proto, least: float = 0.98, limits: tuple[int, int] = (-128, 128)
) -> None:
    """Nearly all bits are ONNX Runtime's, and none is further away than a step."""
    chance = np.random.default_rng(3)
    inputs = {v.name: chance.integers(*limits, v.type.shape, np.int8) for v in graph.inputs}
    expected = run_onnxruntime(proto, inputs, optimise=False)["y"].astype(int)
    found = evaluate(graph, inputs)["y"].astype(int)
    assert len(np.unique(expected)) > 20
    assert np.abs(found - expected).max() <= 1
    assert (found == expected).mean() >= least


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([15, 8], [8, 12]),
        ([3, 5, 8], [3, 8, 6]),
        ([2, 3, 5, 8], [2, 3, 8, 6]),
        ([2, 1, 3, 5, 8], [2, 1, 3, 8, 6]),
    ],
)
def test_products_of_any_rank_are_recognised(left, right):
    proto = in_quantised_form([node("MatMul", ["fa", "fb"], ["fy"])], [left, right])
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert product.heads == (left[-3] if len(left) > 2 else 1)
    assert (product.zero_point_a, product.zero_point_b, product.zero_point_y) == (-7, 4, 11)
    assert graph.types[graph.outputs[0].value].shape == (*left[:-1], right[-1])
    assert_agrees(graph, proto)


@pytest.mark.parametrize(
    ("factor", "scale"),
    [
        (node("Mul", ["p", "quarter"], ["c"]), 0.25),
        (node("Mul", ["quarter", "p"], ["c"]), 0.25),
        (node("Div", ["p", "four"], ["c"]), 0.25),
    ],
)
def test_a_factor_and_a_clamp_behind_a_product_belong_to_it(factor, scale):
    nodes = [node("MatMul", ["fa", "fb"], ["p"]), factor, node("Relu", ["c"], ["fy"])]
    proto = in_quantised_form(nodes, [[3, 5, 40], [3, 40, 6]])
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert product.scale == pytest.approx(0.02 * 0.03 * scale / 0.05)
    assert (product.low, product.high) == (11, 127)
    assert_agrees(graph, proto)


@pytest.mark.parametrize(
    ("left", "right", "heads"),
    [
        ([3, 5, 8], [8, 6], 1),  # rows of one head
        ([2, 4, 5, 8], [1, 1, 8, 6], 1),
        ([5, 8], [3, 8, 6], 3),
        ([2, 1, 5, 8], [1, 3, 8, 6], 3),
        ([2, 4, 5, 8], [2, 1, 8, 6], 4),
        ([1, 1, 15, 8], [8, 12], 1),
    ],
)
def test_operands_that_several_images_or_heads_share(left, right, heads):
    proto = in_quantised_form([node("MatMul", ["fa", "fb"], ["fy"])], [left, right])
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert product.heads == heads
    assert_agrees(graph, proto)


def test_a_negative_factor_is_left_to_the_reader_of_the_sums():
    nodes = [node("MatMul", ["fa", "fb"], ["p"]), node("Mul", ["p", "minus"], ["fy"])]
    proto = in_quantised_form(nodes, [[15, 8], [8, 12]], {"minus": np.float32(-1)})
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMulSums)
    assert_agrees(graph, proto)


def test_what_int32_does_not_hold_stays_on_the_host():
    long = in_quantised_form([node("MatMul", ["fa", "fb"], ["fy"])], [[1, 130000], [130000, 1]])
    graph, operators = recognised(long)
    assert operators == []
    assert any(node.op == "matmul" for node in graph.nodes)


HEADS = integers([1, 6, 2, 4])


@pytest.mark.parametrize(
    ("permutation", "transposed", "joined"),
    [([0, 2, 3, 1], True, True), ([0, 2, 1, 3], False, True)],
)
def test_operands_that_are_split_into_heads_are_read_as_they_are(permutation, transposed, joined):
    rows = 4 if not transposed else 6
    nodes = [
        node("Reshape", ["fa", "first"], ["ra"]),
        node("Transpose", ["ra"], ["ta"], perm=[0, 2, 1, 3]),
        node("Reshape", ["fb", "second"], ["rb"]),
        node("Transpose", ["rb"], ["tb"], perm=permutation),
        node("MatMul", ["ta", "tb"], ["p"]),
        node("Transpose", ["p"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "flat"], ["fy"]),
    ]
    shapes = {
        "first": HEADS,
        "second": integers([1, rows, 2, 4]),
        "flat": integers([1, 6, 12 if transposed else 8]),
    }
    proto = in_quantised_form(nodes, [[1, 6, 8], [1, rows, 8]], shapes)
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert (product.transposed, product.joined) == (transposed, (True, joined, True))
    assert {node.op for node in graph.nodes} == {"reshape", "qmatmul"}
    assert_agrees(graph, proto)


@pytest.mark.parametrize(("heads", "images"), [(2, 1), (2, 3), (1, 2)])
def test_values_in_channels_first_are_read_as_they_are(heads, images):
    """Attention between convolutions, as in SqueezeBERT: the transposed result is the sum."""
    nodes = [
        node("Reshape", ["fa", "values"], ["v"]),
        node("Transpose", ["fb"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["v", "turned"], ["p"]),
        node("Reshape", ["p", "flat"], ["r"]),
        node("Transpose", ["r"], ["fy"], perm=[0, 2, 1]),
    ]
    shapes = {"values": integers([images, heads, 8, 6]), "flat": integers([images, heads * 8, 5])}
    proto = in_quantised_form(nodes, [[images, heads * 8, 6], [images, heads, 5, 6]], shapes)
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert (product.transposed, product.joined) == (True, (False, False, True))
    assert (product.zero_point_a, product.zero_point_b) == (4, -7)
    assert {node.op for node in graph.nodes} == {"reshape", "qmatmul"}
    assert_agrees(graph, proto)


def test_heads_of_tokens_in_front_are_read_as_they_are():
    """Channels split over tokens [tokens, heads, channels], as other exporters write attention."""
    nodes = [
        node("Reshape", ["fa", "heads"], ["ra"]),
        node("Transpose", ["ra"], ["ta"], perm=[1, 0, 2]),
        node("Reshape", ["fb", "heads"], ["rb"]),
        node("Transpose", ["rb"], ["tb"], perm=[1, 2, 0]),
        node("MatMul", ["ta", "tb"], ["p"]),
        node("Transpose", ["p"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "flat"], ["fy"]),
    ]
    shapes = {"heads": integers([6, 2, 4]), "flat": integers([6, 1, 12])}
    proto = in_quantised_form(nodes, [[6, 1, 8], [6, 1, 8]], shapes)
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert (product.heads, product.transposed, product.joined) == (2, True, (True, True, True))
    assert {node.op for node in graph.nodes} == {"reshape", "qmatmul"}
    assert_agrees(graph, proto)


def test_the_form_of_quantised_operators_is_recognised_too():
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    inputs = [value("a", np.int8, [3, 5, 8]), value("b", np.int8, [3, 8, 6])]
    proto = model([node("QLinearMatMul", names, ["y"])], inputs, ["y"], CONSTANTS)
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert_agrees(graph, proto, limits=WEIGHTS)


def test_an_operand_whose_last_axes_are_swapped_is_read_as_it_is():
    nodes = [
        node("Transpose", ["fb"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["fa", "t"], ["fy"]),
    ]
    proto = in_quantised_form(nodes, [[2, 3, 5, 8], [2, 3, 6, 8]])
    graph, (product,) = recognised(proto)
    assert isinstance(product, QMatMul)
    assert (product.transposed, product.joined) == (True, (False, False, False))
    assert_agrees(graph, proto)


def test_a_product_that_others_read_before_its_heads_are_joined_is_kept():
    kinds = (TensorType("int8", (1, 3, 5, 8)), TensorType("int8", (1, 3, 8, 6)))
    builder = Builder("shared", [Value(x, kind) for x, kind in zip("ab", kinds, strict=True)])
    product = builder.emit(QMatMul(3, 0.01, 0, 0, 0), ["a", "b"])
    joined = builder.emit(Transpose((0, 2, 1, 3)), [product])
    alone = builder.graph([Output("y", joined)])
    shared = builder.graph([Output("y", joined), Output("z", product)])
    assert absorb_heads(shared) == shared
    assert [node.op for node in absorb_heads(alone).nodes] == ["qmatmul", "reshape"]


def dense_on_a_sequence(*tail):
    """MatMul with constant weights of channels [8, 6], at rank 3."""
    chance = np.random.default_rng(5)
    constants = {
        "w": chance.integers(-127, 128, (8, 6)).astype(np.int8),
        "sw": floats(chance.uniform(0.005, 0.02, 6)),
        "zw": np.zeros(6, np.int8),
        "bias": floats(chance.normal(0, 0.5, 6)),
    }
    weights = node("DequantizeLinear", ["w", "sw", "zw"], ["fw"], axis=1)
    nodes = [weights, node("MatMul", ["fa", "fw"], ["p"]), *tail]
    return in_quantised_form(nodes, [[2, 7, 8]], constants)


def test_a_layer_on_a_sequence_is_a_convolution_of_its_tokens():
    proto = dense_on_a_sequence(node("Add", ["p", "bias"], ["fy"]))
    graph, (layer,) = recognised(proto)
    assert isinstance(layer, QConv)
    assert (layer.kind, layer.groups) == ("dense", 1)
    (made,) = (node.output.type for node in graph.nodes if is_accelerated(node))
    assert made.shape == (2, 1, 7, 6)
    assert_agrees(graph, proto)


def test_a_bias_behind_a_quantised_layer_is_a_layer_of_its_own():
    proto = dense_on_a_sequence(
        node("QuantizeLinear", ["p", "sa", "za"], ["q"]),
        node("DequantizeLinear", ["q", "sa", "za"], ["d"]),
        node("Add", ["bias", "d"], ["fy"]),
    )
    graph, (layer, bias) = recognised(proto)
    assert isinstance(bias, QConv)
    assert (layer.kind, bias.kind, bias.groups) == ("dense", "depthwise", 6)
    assert_agrees(graph, proto)


def test_one_number_that_is_added_makes_a_table():
    proto = in_quantised_form([node("Add", ["fa", "quarter"], ["fy"])], [[2, 70, 1]])
    graph, operators = recognised(proto)
    assert operators == [QLut()]
    assert_agrees(graph, proto, least=1)


def test_biases_equal_their_definition_for_nearly_all_inputs():
    chance = np.random.default_rng(2)
    misses = 0
    for _ in range(20):
        scales = chance.uniform(0.005, 0.05, 2).astype(np.float32)
        x, y = (Quantisation(float(one), int(chance.integers(-20, 20))) for one in scales)
        terms = floats(chance.normal(0, 0.3, 16))
        fitted = fit_biases(terms, x, y, -100, 127)
        assert fitted is not None
        weights, biases, factors = fitted
        inputs = np.arange(-128, 128)[:, None]
        real = (inputs - x.zero_point).astype(np.float32) * np.float32(x.scale) + terms
        wanted = np.clip(np.rint(real / np.float32(y.scale)) + y.zero_point, -100, 127)
        sums = (inputs * weights + biases).astype(np.int32)
        found = quantise_output(sums, factors, y.zero_point, -100, 127)
        assert np.abs(found - wanted).max() <= 1
        misses += int((found != wanted).sum())
    assert misses < 20 * 16 * 256 / 2000


def test_a_bias_that_no_weight_fits_stays_on_the_host():
    """Scales are nearly the same, and all results nearly between two integers."""
    x, y = Quantisation(0.03135174140334129, 8), Quantisation(0.031350020319223404, 7)
    assert fit_biases(floats([0.0783544]), x, y, -128, 127) is None
    assert fit_biases(floats([0.01, 1e30]), x, y, -128, 127) is None


def test_a_bias_that_would_be_off_by_more_than_one_is_left_alone():
    """Where one step of the input is a thousand of the output, few inputs differ, but by much."""
    x, y = Quantisation(1.0, 0), Quantisation(0.001, 0)
    assert fit_biases(floats([0.0037]), x, y, -128, 127) is None


def test_functions_of_one_value_are_one_table_across_reshapes_and_quantised_constants():
    """GELU as a quantiser leaves it: every operator between integers, constants too."""
    held = {"q2": np.int8(90), "s2": np.float32(2**0.5 / 90), "q1": np.int8(127)}
    held |= {"s1": np.float32(1 / 127), "zero": np.int8(0), "flat": integers([2, 21])}
    nodes = [
        node("DequantizeLinear", ["q2", "s2", "zero"], ["root"]),
        node("DequantizeLinear", ["q1", "s1", "zero"], ["one"]),
        node("Div", ["fa", "root"], ["scaled"]),
        node("Erf", ["scaled"], ["erf"]),
        node("QuantizeLinear", ["erf", "s1", "zero"], ["qe"]),
        node("DequantizeLinear", ["qe", "s1", "zero"], ["fe"]),
        node("Add", ["fe", "one"], ["raised"]),
        node("Reshape", ["raised", "flat"], ["flat_raised"]),
        node("Reshape", ["fa", "flat"], ["flat_a"]),
        node("Mul", ["flat_a", "flat_raised"], ["fy"]),
    ]
    proto = in_quantised_form(nodes, [[2, 3, 7]], held)
    graph, (table,) = recognised(proto)
    assert table == QLut()
    assert graph.types[graph.outputs[0].value].shape == (2, 21)
    assert_agrees(graph, proto)

"""Float images change to channels last once, at the network's ends, and results stay the same."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import passes
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    TensorType,
    Value,
    evaluate,
    evaluate_operator,
    parse_graph,
    print_graph,
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.operators import Interpolate, Where
from tilewright.errors import CompileError

from .onnx_models import model, node, run_onnxruntime, value

CONV = ops.Conv((2, 1), (1, 0, 2, 1), (1, 2), 2)
WINDOWS = {
    "conv": CONV,
    "max": ops.MaxPool((3, 2), (2, 1), (1, 0, 1, 1), (1, 2)),
    "average": ops.AveragePool((3, 3), (2, 2), (1, 1, 0, 1)),
    "average with padding": ops.AveragePool((3, 3), (2, 2), (1, 1, 0, 1), True, (1, 0)),
}


def to_last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


class Network:
    """A graph of images with channels first, as the importer makes it."""

    def __init__(self) -> None:
        self.builder = Builder("images")
        self.random = np.random.default_rng(4)
        self.inputs: dict[str, np.ndarray] = {}

    def image(self, name: str, *shape: int) -> str:
        self.inputs[name] = self.random.standard_normal(shape).astype(np.float32)
        return self.builder.input(Value(name, TensorType("float32", shape)))

    def constant(self, *shape: int) -> str:
        return self.builder.constant(self.random.standard_normal(shape).astype(np.float32))

    def conv(self, x: str, out: int = 6, kernel: int = 3) -> str:
        w = self.constant(out, self.builder.types[x].shape[1], kernel, kernel)
        pads = (kernel // 2,) * 4
        conv = ops.Conv((1, 1), (pads[0], pads[1], pads[2], pads[3]), (1, 1), 1)
        return self.builder.emit(conv, [x, w, self.constant(out)], "conv")

    def emit(self, operator: ops.Operator, *inputs: str) -> str:
        return self.builder.emit(operator, inputs)

    def binary(self, kind: str, a: str, b: str) -> str:
        return self.emit(ops.Binary(kind), a, b)

    def graph(self, *outputs: str) -> Graph:
        return self.builder.graph([Output(name, name) for name in outputs])

    def changed(self, *outputs: str) -> Counter[str]:
        """Operators after the pass; what they compute is compared with before."""
        before = self.graph(*outputs)
        after = verify(passes.channels_last(before), "channels_last")
        after = passes.merge_duplicates(after)
        expected, got = evaluate(before, self.inputs), evaluate(after, self.inputs)
        for name in outputs:
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5)
        for one in after.nodes:
            assert getattr(one.attributes, "channels_last", True)
        return Counter(one.op for one in after.nodes)


@pytest.mark.parametrize("operator", WINDOWS.values(), ids=WINDOWS)
def test_channels_last_has_the_bits_of_channels_first(operator) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 6, 9, 11)).astype(np.float32)
    first, last = [x], [to_last(x)]
    if operator is CONV:
        w, bias = (random.standard_normal(shape).astype(np.float32) for shape in [(4, 3, 3, 2), 4])
        first += [w, bias]
        last += [np.ascontiguousarray(w.transpose(2, 3, 1, 0)), bias]
    expected = to_last(evaluate_operator(operator, first))
    got = evaluate_operator(replace(operator, channels_last=True), last)
    np.testing.assert_array_equal(got, expected)
    assert got.flags.c_contiguous


@pytest.mark.parametrize("operator", WINDOWS.values(), ids=WINDOWS)
def test_the_attribute_is_part_of_the_text(operator) -> None:
    network = Network()
    inputs = [network.image("x", 1, 9, 11, 6)]
    if operator is CONV:
        inputs.append(network.image("w", 3, 2, 3, 4))
    graph = network.graph(network.emit(replace(operator, channels_last=True), *inputs))
    text = print_graph(graph)
    assert "channels_last=True" in text
    assert parse_graph(text, {}) == graph


def test_weights_that_do_not_fit_channels_last_are_refused() -> None:
    network = Network()
    x, w = network.image("x", 1, 8, 8, 6), network.image("w", 4, 6, 3, 3)
    conv = ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1)
    with pytest.raises(CompileError, match=r"float32 \[N,H,W,Ci\], \[KH,KW,Ci/groups,Co\] and"):
        network.emit(replace(conv, channels_last=True), x, w)


def test_a_residual_network_changes_its_input_alone() -> None:
    network = Network()
    x = network.emit(ops.Unary("Relu"), network.conv(network.image("x", 2, 3, 8, 8)))
    x = network.emit(ops.MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), x)
    y = network.conv(network.emit(ops.Unary("Relu"), network.conv(x)))
    y = network.emit(ops.Unary("Relu"), network.binary("Add", y, x))
    y = network.emit(ops.AveragePool((4, 4), (4, 4), (0, 0, 0, 0)), y)
    found = network.changed(network.emit(ops.Reshape((2, 6)), y))
    assert found["transpose"] == 1
    assert found["conv"] == 3


def test_constants_along_channels_and_numbers_do_not_stop_a_transpose() -> None:
    network = Network()
    x = network.conv(network.image("x", 1, 3, 5, 7))
    for shape in ((6, 1, 1), (1, 6, 1, 1), (), (1,), (7,), (5, 1), (6, 5, 7)):
        x = network.binary("Div", network.binary("Sub", network.constant(*shape), x), x)
        x = network.emit(ops.Unary("Tanh"), x)
    assert network.changed(network.conv(x))["transpose"] == 2


def test_a_gate_for_every_channel_does_not_stop_a_transpose() -> None:
    network = Network()
    x = network.conv(network.image("x", 2, 3, 6, 6))
    squeezed = network.emit(ops.Reduce("ReduceMean", (2, 3), keep=True), x)
    gate = network.emit(ops.Unary("Sigmoid"), network.conv(squeezed, kernel=1))
    found = network.changed(network.conv(network.binary("Mul", x, gate)))
    assert found["transpose"] == 2
    assert found["reshape"] == 0


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(1,), (2,), (3, 1), (2, 3), (0, 2, 3), (0, 1, 2, 3)])
def test_a_reduction_over_any_axes(axes: tuple[int, ...], keep: bool) -> None:
    network = Network()
    x = network.conv(network.image("x", 2, 3, 4, 5))
    found = network.changed(network.emit(ops.Reduce("ReduceSum", axes, keep), x))
    assert found["reduce"] == 1
    if sorted(axes)[-2:] == [2, 3]:
        assert found["transpose"] == 1


def test_joins_choices_and_resizes_do_not_stop_a_transpose() -> None:
    network = Network()
    x = network.image("x", 1, 3, 4, 4)
    a, b = network.conv(x), network.conv(x)
    places = network.builder.constant(np.array([[0], [0], [1], [2], [3], [3]], np.int64))
    weights = network.builder.constant(np.ones((6, 1), np.float32))
    joined = network.emit(ops.Concat(1), a, b)
    taller = network.emit(Interpolate(2), joined, places, weights)
    condition = network.emit(ops.Binary("Greater"), taller, network.constant())
    chosen = network.emit(Where(), condition, taller, network.constant())
    assert network.changed(network.conv(chosen))["transpose"] == 2


@pytest.mark.parametrize(("rows", "smallest"), [(9, 5), (3, 3)])
def test_a_transpose_stays_where_the_image_is_smallest(rows: int, smallest: int) -> None:
    network = Network()
    x = network.conv(network.image("x", 1, 3, 5, 4))
    places = network.builder.constant(np.arange(rows).reshape(rows, 1) // 2)
    weights = network.builder.constant(np.ones((rows, 1), np.float32))
    resized = network.emit(Interpolate(2), x, places, weights)
    network.changed(resized)
    changed = passes.channels_last(network.graph(resized))
    turned = [node for node in changed.nodes if isinstance(node.attributes, ops.Transpose)]
    assert turned[-1].output.type.shape == (1, 6, smallest, 4)


@pytest.mark.parametrize(
    "along",
    [*(ops.CumSum(axis, reverse=True) for axis in range(4)), ops.Softmax(1, 2), ops.Softmax(2, 4)],
    ids=str,
)
def test_operators_along_axes_do_not_stop_a_transpose(along: ops.Operator) -> None:
    network = Network()
    x = network.emit(along, network.conv(network.image("x", 2, 3, 5, 4)))
    assert network.changed(network.conv(x))["transpose"] == 2


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_picked_rows_columns_and_channels_do_not_stop_a_transpose(axis: int) -> None:
    network = Network()
    x = network.conv(network.image("x", 2, 3, 5, 4))
    picked = network.builder.constant(np.array([1, 0, 0, 1, -1]))
    x = network.emit(ops.Gather(axis), x, picked)
    assert network.changed(network.conv(x))["transpose"] == 2


@pytest.mark.parametrize("indices", [(), (2, 3)])
def test_picked_elements_that_are_no_image_stay(indices: tuple[int, ...]) -> None:
    network = Network()
    x = network.conv(network.image("x", 2, 3, 5, 4))
    picked = network.builder.constant(np.ones(indices, np.int64))
    assert network.changed(network.emit(ops.Gather(1), x, picked))["transpose"] == 2


def test_a_softmax_over_axes_that_part_stays() -> None:
    network = Network()
    x = network.emit(ops.Softmax(1, 3), network.conv(network.image("x", 2, 3, 5, 4)))
    assert network.changed(network.conv(x))["transpose"] == 4


def test_pixels_as_the_tokens_of_a_transformer() -> None:
    network = Network()
    x = network.emit(ops.Reshape((2, 6, 20)), network.conv(network.image("x", 2, 3, 4, 5)))
    found = network.changed(network.emit(ops.Transpose((0, 2, 1)), x))
    assert found["transpose"] == 1


def test_weights_that_are_computed_change_when_they_are_there() -> None:
    network = Network()
    x, w = network.image("x", 1, 4, 6, 6), network.image("w", 5, 4, 3, 3)
    found = network.changed(network.emit(ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1), x, w))
    assert found["transpose"] == 3


def test_an_image_that_is_broadcast_stays() -> None:
    network = Network()
    x = network.conv(network.image("x", 1, 3, 1, 1), kernel=1)
    network.changed(network.binary("Mul", x, network.image("z", 1, 6, 30, 30)))


def test_a_graph_without_float_images_is_left_as_it_is() -> None:
    network = Network()
    x = network.emit(ops.Transpose((0, 3, 1, 2)), network.image("x", 1, 3, 4, 5))
    graph = network.graph(network.emit(ops.Reduce("ReduceMean", (2, 3), keep=True), x))
    assert passes.channels_last(graph) is graph


def test_images_of_sums_stay_channels_last_too() -> None:
    """No window is in float, and the scales are computed at run time."""
    network = Network()
    window = "conv", (1, 1), (0, 0, 0, 0), (1, 1), 1
    weights = np.random.default_rng(2).integers(-128, 128, (1, 1, 5, 5)).astype(np.int8)
    x = network.emit(ops.Quantize((0.1,), (0,), dtype="int8"), network.image("x", 1, 3, 4, 5))
    sums = network.emit(ops.QSums(*window, 0), x, network.builder.constant(weights))
    real = network.emit(ops.Dequantize((0.01,), (0,), None), network.emit(ops.FromBytes(), sums))
    first = network.emit(ops.Transpose((0, 3, 1, 2)), real)
    scale, zero = (network.image(name) for name in ("scale", "zero"))
    known = network.binary("Mul", network.constant(1, 5, 3, 4), zero)
    less = network.binary("Sub", first, known)
    quantised = network.emit(ops.GeneralQuantize(1, 0, "int8"), less, scale)
    last = network.emit(ops.Transpose((0, 2, 3, 1)), network.emit(ops.Cast("int32"), quantised))
    assert network.changed(last)["transpose"] == 0


def test_the_front_end_folds_batch_normalisation_into_float_convolutions() -> None:
    random = np.random.default_rng(7)
    constants = {"w": random.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    for name in ("scale", "shift", "mean"):
        constants[name] = random.standard_normal(4).astype(np.float32)
    constants["variance"] = random.uniform(0.5, 2, 4).astype(np.float32)
    normalised = ["c", "scale", "shift", "mean", "variance"]
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", normalised, ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    network = model(nodes, [value("x", np.float32, [1, 3, 8, 8])], ["y"], constants)
    graph = import_model(network.SerializeToString())
    assert [one.op for one in graph.nodes] == ["transpose", "conv", "unary", "maxpool", "transpose"]
    inputs = {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    expected = run_onnxruntime(network, inputs)["y"]
    np.testing.assert_allclose(evaluate(graph, inputs)["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padded", [(1, 1), (0, 2), (3, 0)])
def test_padding_ahead_of_a_float_convolution_is_its_own(
    padded: tuple[int, int], last: bool
) -> None:
    network = Network()
    x = network.image("x", 1, 5, 7, 6) if last else network.image("x", 1, 6, 5, 7)
    sides = ((0, *padded, 0), (0, 2, 1, 0)) if last else ((0, 0, *padded), (0, 0, 2, 1))
    x = network.emit(ops.Pad(*sides, 0.0), x)
    w = network.constant(*((3, 3, 6, 4) if last else (4, 6, 3, 3)))
    conv = ops.Conv((1, 2), (0, 1, 1, 0), (1, 1), 1, channels_last=last)
    y = network.emit(conv, x, w)
    graph = network.graph(y)
    after = verify(passes.absorb_padding(graph))
    assert [one.op for one in after.nodes] == ["conv"]
    expected, got = evaluate(graph, network.inputs)[y], evaluate(after, network.inputs)[y]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("pads", "counted"), [((0,) * 4, False), ((1,) * 4, True)])
def test_padding_ahead_of_a_mean_counts(pads, counted: bool) -> None:
    network = Network()
    x = network.emit(ops.Pad((0, 0, 1, 0), (0, 0, 1, 2), 0.0), network.image("x", 1, 3, 6, 6))
    y = network.emit(ops.AveragePool((3, 3), (2, 2), pads, counted, (1, 0)), x)
    graph = network.graph(y)
    after = verify(passes.absorb_padding(graph))
    assert [one.op for one in after.nodes] == ["averagepool"]
    expected, got = evaluate(graph, network.inputs)[y], evaluate(after, network.inputs)[y]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("pad", "pads"),
    [
        (ops.Pad((0, 0, 1, 1), (0, 0, 1, 1), 1.0), (0, 0, 0, 0)),
        (ops.Pad((0, 1, 0, 0), (0, 0, 0, 0), 0.0), (0, 0, 0, 0)),
        (ops.Pad((0, 0, 1, 1), (0, 0, 1, 1), 0.0), (1, 1, 1, 1)),
    ],
    ids=["of ones", "of channels", "that counts beside padding that does not"],
)
def test_other_padding_stays(pad: ops.Pad, pads) -> None:
    network = Network()
    x = network.emit(pad, network.image("x", 1, 3, 6, 6))
    graph = network.graph(network.emit(ops.AveragePool((2, 2), (2, 2), pads), x))
    assert [one.op for one in passes.absorb_padding(graph).nodes] == ["pad", "averagepool"]


@pytest.mark.parametrize("function", ["", "Relu"])
@pytest.mark.parametrize("biased", [False, True])
def test_one_tap_of_computed_weights_multiplies_planes(biased: bool, function: str) -> None:
    network = Network()
    x, w = network.image("x", 2, 5, 4, 6), network.image("w", 7, 5, 1, 1)
    given = (x, w, network.image("b", 7)) if biased else (x, w)
    y = network.emit(ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1), *given)
    found = network.changed(network.emit(ops.Unary(function), y) if function else y)
    assert found["matmul"] == 1
    assert not found["conv"] + found["transpose"]


@pytest.mark.parametrize("window", [{"kernel": 3}, {"strides": (2, 2)}, {"groups": 5}])
def test_other_windows_of_computed_weights_and_bias_stay_convolutions(window) -> None:
    network, (kernel, groups) = Network(), (window.get("kernel", 1), window.get("groups", 1))
    x, b = network.image("x", 1, 5, 8, 6), network.image("b", 5)
    w = network.image("w", 5, 5 // groups, kernel, kernel)
    conv = ops.Conv(window.get("strides", (1, 1)), (0, 0, 0, 0), (1, 1), groups)
    found = network.changed(network.emit(conv, x, w, b))
    assert found["conv"] == found["binary"] == 1
    assert not found["matmul"]

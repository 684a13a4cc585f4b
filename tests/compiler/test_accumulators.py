"""Layers whose accumulators exceed the machine's exact range: constants, or the host's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QConv, is_accelerated
from tilewright.compiler.graph.accumulators import exact_layer
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import DEFAULT
from tilewright.isa.numbers import quantise_output
from tilewright.runtime import Session, open_device

from .onnx_models import model, node, run_onnxruntime, value

CHANNELS = 4
ONES = np.ones(CHANNELS, np.float32)


class Layers:
    """A chain of quantised convolutions on int8[1, 4, 5, 5] with scale 1 everywhere."""

    def __init__(self):
        self.nodes, self.last = [], "x"
        self.held = {"one": np.float32(1), "zero": np.int8(0)}

    def add(self, weights, scales, bias, **attributes):
        """Add a QLinearConv; a bias is int32[Co] in units of the weights' scales."""
        name = f"layer{len(self.nodes)}"
        parts = {"w": weights, "s": scales, "z": np.zeros(len(scales), np.int8), "b": bias}
        self.held |= {f"{name}.{part}": data for part, data in parts.items()}
        w, s, z, b = (f"{name}.{part}" for part in parts)
        given = [self.last, "one", "zero", w, s, z, "one", "zero", b]
        self.nodes.append(node("QLinearConv", given, [name], name=name, **attributes))
        self.last = name
        return self

    def model(self):
        image = value("x", np.int8, [1, CHANNELS, 5, 5])
        return model(self.nodes, [image], [self.last], self.held)


def square(weight):
    """Return the weights of a 1x1 convolution."""
    return np.full((CHANNELS, CHANNELS, 1, 1), weight, np.int8)


def layers_of(graph):
    return [node for node in graph.nodes if isinstance(node.attributes, QConv)]


def results(proto):
    """Return the graph, its values from the simulator and ONNX Runtime's."""
    graph = import_model(proto.SerializeToString())
    x = np.random.default_rng(1).integers(-128, 128, (1, CHANNELS, 5, 5)).astype(np.int8)
    with open_device("sim", DEFAULT) as device:
        (ours,) = Session(compile_module(graph, DEFAULT), device).run({"x": x}).outputs.values()
    (theirs,) = run_onnxruntime(proto, {"x": x}, optimise=False).values()
    return graph, ours, theirs


def test_a_dead_channel_with_a_huge_bias_becomes_a_constant():
    scales, bias = ONES / 512, np.array([7, 0, 40, -5], np.int32)
    scales[1], bias[1] = 4.6e-9, 2**30
    scales[3], bias[3] = 3e-39, -(2**31)
    graph, ours, theirs = results(Layers().add(square(9), scales, bias).model())
    (layer,) = layers_of(graph)
    weights = graph.data(layer.inputs[1])
    np.testing.assert_array_equal(weights.any(axis=(0, 1, 2)), [True, False, True, False])
    np.testing.assert_array_equal(ours, theirs)
    assert set(ours[0, 1].flat) == {5}
    assert set(ours[0, 3].flat) == {0}


def test_the_range_of_the_layer_before_proves_a_constant():
    dead = np.full(CHANNELS, 2**30, np.int32)
    again = np.full((CHANNELS, 1, 3, 3), 127, np.int8)
    some = np.full(CHANNELS, 18.4 / 7e-7, np.int32)  # with any int8 inputs, 18 or 19
    chain = Layers().add(square(9), ONES * np.float32(4.6e-9), dead)
    window = {"group": CHANNELS, "pads": [1, 1, 1, 1]}
    chain.add(again, ONES * np.float32(7e-7), some, **window)
    graph, ours, theirs = results(chain.model())
    assert len(layers_of(graph)) == 2
    assert set(ours.flat) == {18}
    np.testing.assert_array_equal(ours, theirs)
    alone = Layers().add(again, ONES * np.float32(7e-7), some, **window)
    assert not layers_of(import_model(alone.model().SerializeToString()))


def test_padding_belongs_to_the_range():
    """The layer before gives 100; beside the padding's zeros, the results are others."""
    before = np.full(CHANNELS, 100, np.int32)
    weights = np.full((CHANNELS, 1, 3, 3), 127, np.int8)
    bias = np.full(CHANNELS, 2**24, np.int32)
    for pads, layers in (([0, 0, 0, 0], 2), ([1, 1, 1, 1], 1)):
        chain = Layers().add(square(0), ONES, before)
        chain.add(weights, ONES * np.float32(7e-6), bias, group=CHANNELS, pads=pads)
        graph, ours, theirs = results(chain.model())
        assert len(layers_of(graph)) == layers
        np.testing.assert_array_equal(ours, theirs)


def test_a_layer_that_the_machine_would_round_otherwise_is_rounded_on_the_host():
    bias = np.array([0, 2**24, 3, 4], np.int32)
    proto = Layers().add(square(127), ONES * np.float32(6e-6), bias).model()
    graph, ours, theirs = results(proto)
    assert [node.op for node in graph.nodes if is_accelerated(node)] == ["qsums"]
    assert len(set(ours[0, 1].flat)) > 1
    np.testing.assert_array_equal(ours, theirs)


def dequantised(bias, weight_scale, result_scale=1.0):
    """A convolution between DequantizeLinear and QuantizeLinear with a float32 bias."""
    held = {
        **{"one": np.float32(1), "zero": np.int8(0), "ys": np.float32(result_scale)},
        **{"w": square(9), "ws": np.float32(weight_scale), "b": np.array(bias, np.float32)},
    }
    nodes = [
        node("DequantizeLinear", ["x", "one", "zero"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "zero"], ["wf"]),
        node("Conv", ["xf", "wf", "b"], ["yf"], name="layer"),
        node("QuantizeLinear", ["yf", "ys", "zero"], ["y"]),
    ]
    return model(nodes, [value("x", np.int8, [1, CHANNELS, 5, 5])], ["y"], held)


def test_a_bias_beyond_int32_becomes_a_constant():
    graph, ours, theirs = results(dequantised([5, -3.5, 1e6, -np.inf], 1e-30))
    assert len(layers_of(graph)) == 1
    np.testing.assert_array_equal(ours, theirs)
    assert [set(channel.flat) for channel in ours[0]] == [{5}, {-4}, {127}, {-128}]


def test_scales_and_biases_without_integers_stay_on_the_host():
    graph, ours, theirs = results(dequantised([1, 2, 3, 4], 1e10, 1e-38))
    assert not layers_of(graph)
    np.testing.assert_array_equal(ours, theirs)
    unknown = dequantised([1, np.nan, 3, 4], 0.01)
    assert not layers_of(import_model(unknown.SerializeToString()))


@given(
    st.lists(st.integers(-255, 255), min_size=1, max_size=4),
    st.one_of(st.integers(-(2**31), 2**31), st.integers(2**24 - 999, 2**24 + 999)),
    st.floats(-126, 4),
    st.integers(-128, 127),
    st.tuples(st.integers(-128, 0), st.integers(0, 127)),
    st.tuples(st.integers(-128, 0), st.integers(0, 127)),
    st.randoms(use_true_random=False),
)
def test_parameters_give_the_definitions_results(
    weights, bias, exponent, zero_point, limits, inputs, random
):
    kernel = np.array(weights, np.int16).reshape(1, 1, -1, 1)
    scale = np.array([np.float32(2.0**exponent)])
    bounds = np.full(kernel.shape, inputs[0]), np.full(kernel.shape, inputs[1])
    found = exact_layer(kernel, np.array([float(bias)]), scale, zero_point, limits, bounds)
    if found is None:
        assert scale < 2.0**-16 or abs(bias) + 128 * np.abs(kernel).sum() >= 2**31
        return
    new_kernel, new_bias, new_scale = found
    for _ in range(8):
        x = [random.choice((*inputs, random.randint(*inputs))) for _ in weights]
        real = np.float32(np.dot(x, weights) + bias) * scale[0]
        wanted = np.clip(np.rint(np.float64(real)) + zero_point, *limits)
        total = int(np.dot(x, new_kernel.ravel()) + new_bias[0])
        assert -(2**31) <= total < 2**31
        result = quantise_output(np.array([total]), new_scale, zero_point, *limits)
        assert result[0] == wanted

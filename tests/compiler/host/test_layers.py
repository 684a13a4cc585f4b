"""Float convolutions with what follows them become one kernel, and give what the graph says."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.cpu import Convolution, real_epilogue
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.host import HostKernel

from ...processor import VECTOR_LEVELS, target_at
from .agreement import assert_agrees, run_kernels, selected

pytestmark = pytest.mark.processor

NEAR = 4e-5
"""Largest difference allowed, for results of about 1."""


class Network:
    """A graph of float images, channels last, with its inputs."""

    def __init__(self, seed: int = 0) -> None:
        self.builder = Builder("layers")
        self.random = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}

    def image(self, name: str, *shape: int) -> str:
        self.arrays[name] = self.random.standard_normal(shape).astype(np.float32)
        return self.builder.input(Value(name, TensorType("float32", shape)))

    def draw(self, *shape: int, fan_in: int = 1) -> str:
        data = self.random.standard_normal(shape) / np.sqrt(fan_in)
        return self.builder.constant(data.astype(np.float32), "drawn")

    def conv(self, x: str, out: int, kernel=(3, 3), bias=True, groups=1, **window) -> str:
        depth = self.builder.types[x].shape[-1] // groups
        w = self.draw(*kernel, depth, out, fan_in=kernel[0] * kernel[1] * depth)
        given = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)} | window
        conv = ops.Conv(**given, groups=groups, channels_last=True)
        return self.builder.emit(conv, [x, w, *([self.draw(out)] if bias else [])], "conv")

    def unary(self, kind: str, x: str, *parameters: float) -> str:
        return self.builder.emit(ops.Unary(kind, parameters), [x])

    def binary(self, kind: str, a: str, b: str) -> str:
        return self.builder.emit(ops.Binary(kind), [a, b])

    def graph(self, *outputs: str) -> Graph:
        return self.builder.graph([Output(name, name) for name in outputs])

    def check(self, *outputs: str) -> tuple[HostKernel, ...]:
        return assert_agrees(self.graph(*outputs), self.arrays, absolute=NEAR)


def gate(network: Network, x: str) -> str:
    return network.binary("Mul", network.unary("Sigmoid", x), x)


ACTIVATIONS: dict[str, Callable[[Network, str], str]] = {
    "": lambda network, x: x,
    "relu": lambda network, x: network.unary("Relu", x),
    "relu6": lambda network, x: network.unary("Clip", x, 0.0, 6.0),
    "sigmoid": lambda network, x: network.unary("Sigmoid", x),
    "tanh": lambda network, x: network.unary("Tanh", x),
    "gelu": lambda network, x: network.unary("Gelu", x),
    "hardswish": lambda network, x: network.unary("HardSwish", x),
    "silu": gate,
}


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("groups", [1, 5, 20])
def test_an_activation_is_part_of_its_layer(activation: str, groups: int) -> None:
    network = Network()
    x = network.conv(network.image("x", 1, 6, 9, 20), 20, groups=groups)
    (kernel,) = network.check(ACTIVATIONS[activation](network, x))
    assert isinstance(kernel.description, Convolution)
    assert kernel.description.epilogue == real_epilogue(activation)


@pytest.mark.parametrize("activation", ["", "relu", "silu"])
@pytest.mark.parametrize(("swapped", "groups"), [(False, 1), (True, 1), (False, 5), (True, 40)])
def test_a_residual_is_part_of_the_layer_before_its_activation(
    activation: str, swapped: bool, groups: int
) -> None:
    network = Network()
    x = network.image("x", 2, 8, 8, 40)
    y = network.conv(x, 40, groups=groups)
    y = network.binary("Add", *((x, y) if swapped else (y, x)))
    (kernel,) = network.check(ACTIVATIONS[activation](network, y))
    assert isinstance(kernel.description, Convolution)
    assert kernel.inputs == {"x": "x", "residual": "x"}
    assert kernel.description.epilogue == real_epilogue(activation, residual=True)


def test_of_two_layers_that_are_added_one_takes_the_other() -> None:
    network = Network()
    x = network.image("x", 1, 8, 8, 12)
    y = network.conv(network.unary("Relu", network.conv(x, 24, strides=(2, 2))), 24)
    short = network.conv(x, 24, (1, 1), pads=(0, 0, 0, 0), strides=(2, 2))
    kernels = network.check(network.unary("Relu", network.binary("Add", y, short)))
    residuals = [kernel.inputs.get("residual") for kernel in kernels]
    assert len(kernels) == 3
    assert residuals.count(None) == 2


@settings(max_examples=25)
@given(data=st.data())
def test_windows_of_any_shape(data: st.DataObject) -> None:
    draw, small = data.draw, st.integers(1, 3)
    kernel, strides, dilations = (draw(st.tuples(small, small)) for _ in range(3))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [max(1, r + draw(st.integers(-2, 8))) for r in reach]
    size = [max(s, r - p - q) for s, r, p, q in zip(size, reach, pads[:2], pads[2:], strict=True)]
    kind, batch = draw(st.sampled_from(["dense", "depthwise", "grouped"])), draw(st.integers(1, 2))
    channels, out, groups = draw(st.integers(1, 40)), draw(st.integers(1, 40)), 1
    if kind == "depthwise":
        out = groups = channels
    elif kind == "grouped":
        groups = draw(st.integers(2, 5))
        channels, out = groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 20))
    network = Network(draw(st.integers(0, 99)))
    x = network.image("x", batch, *size, channels)
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    (kernel,) = network.check(network.conv(x, out, kernel, draw(st.booleans()), groups, **window))
    assert not kernel.exact


def _shown(network: Network, x: str) -> tuple[str, ...]:
    y = network.conv(x, 8)
    return y, network.unary("Relu", y)


def _two_readers(network: Network, x: str) -> tuple[str, ...]:
    y = network.conv(x, 8)
    return network.unary("Relu", y), network.unary("Abs", y)


def _doubled(network: Network, x: str) -> tuple[str, ...]:
    y = network.conv(x, 8)
    return (network.binary("Add", y, y),)


def _broadcast(network: Network, x: str) -> tuple[str, ...]:
    return (network.binary("Add", network.conv(x, 8), network.image("row", 1, 1, 5, 8)),)


def _constant(network: Network, x: str) -> tuple[str, ...]:
    return (network.binary("Add", network.conv(x, 8), network.draw(1, 5, 5, 8)),)


def _clip_to_five(network: Network, x: str) -> tuple[str, ...]:
    return (network.unary("Clip", network.conv(x, 8), 0.0, 5.0),)


def _gate_that_is_shown(network: Network, x: str) -> tuple[str, ...]:
    y = network.conv(x, 8)
    opened = network.unary("Sigmoid", y)
    return opened, network.binary("Mul", opened, y)


def _gate_of_another(network: Network, x: str) -> tuple[str, ...]:
    y = network.conv(x, 8)
    return (network.binary("Mul", network.unary("Sigmoid", y), network.image("z", 1, 5, 5, 8)), y)


@pytest.mark.parametrize(
    "build",
    [
        *(_shown, _two_readers, _doubled, _broadcast, _constant, _clip_to_five),
        *(_gate_that_is_shown, _gate_of_another),
    ],
    ids=lambda build: build.__name__,
)
def test_what_does_not_fit_a_layer_stays_outside(build) -> None:
    network = Network()
    outputs = build(network, network.image("x", 1, 5, 5, 8))
    graph = network.graph(*outputs)
    kernel = next(
        kernel for kernel in selected(graph) if isinstance(kernel.description, Convolution)
    )
    assert len(kernel.nodes) == 1
    got, expected = run_kernels(graph, network.arrays), evaluate(graph, network.arrays)
    for name in outputs:
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=NEAR)


def is_planar(kernel: HostKernel) -> bool:
    return isinstance(kernel.description, Convolution) and kernel.description.planes


def test_an_image_in_planes_takes_a_residual() -> None:
    network = Network()
    x = network.builder.emit(ops.Transpose((0, 2, 3, 1)), [network.image("x", 1, 3, 8, 8)])
    other = network.image("other", 1, 8, 8, 8)
    (kernel,) = network.check(network.binary("Add", network.conv(x, 8), other))
    assert is_planar(kernel)
    assert kernel.inputs == {"x": "x", "residual": "other"}


@settings(max_examples=12)
@given(data=st.data())
def test_an_image_in_planes_is_read_as_it_is(data: st.DataObject) -> None:
    draw, small = data.draw, st.integers(1, 3)
    kernel, strides, dilations = (draw(st.tuples(small, small)) for _ in range(3))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    channels, batch = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    network = Network(draw(st.integers(0, 99)))
    image = network.image("x", batch, channels, 7 + draw(st.integers(0, 9)), 7)
    x = network.builder.emit(ops.Transpose((0, 2, 3, 1)), [image])
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    y = network.conv(x, draw(st.integers(1, 40)), kernel, **window)
    (kernel,) = network.check(network.unary("Relu", y))
    assert is_planar(kernel)
    assert len(kernel.nodes) == 3


def test_planes_that_others_read_too_are_moved() -> None:
    network = Network()
    x = network.builder.emit(ops.Transpose((0, 2, 3, 1)), [network.image("x", 1, 3, 8, 8)])
    kernels = network.check(network.conv(x, 8), network.conv(x, 8))
    assert not any(map(is_planar, kernels))


def test_many_planes_are_moved() -> None:
    network = Network()
    x = network.builder.emit(ops.Transpose((0, 2, 3, 1)), [network.image("x", 1, 5, 8, 8)])
    kernels = network.check(network.conv(x, 8))
    assert not any(map(is_planar, kernels))


def test_a_bias_that_is_computed_stays_with_numpy() -> None:
    network = Network()
    x, b = network.image("x", 1, 6, 6, 4), network.image("b", 8)
    conv = ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1, channels_last=True)
    y = network.builder.emit(conv, [x, network.draw(3, 3, 4, 8), b])
    assert not selected(network.graph(y))


WINDOWS = {
    "3x3": ((1, 9, 11, 20), (3, 3, 20, 37), 1, {}),
    "one channel": ((2, 6, 9, 64), (6, 6, 64, 1), 1, {"pads": (0, 0, 0, 0)}),
    "1x1": ((2, 5, 7, 33), (1, 1, 33, 64), 1, {"pads": (0, 0, 0, 0)}),
    "few channels": ((1, 9, 9, 3), (3, 3, 3, 8), 1, {"strides": (2, 2)}),
    "dilated": ((1, 9, 10, 5), (3, 2, 5, 33), 1, {"dilations": (2, 2)}),
    "each channel": ((1, 11, 10, 35), (5, 5, 1, 35), 35, {"pads": (0, 1, 2, 3)}),
}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", WINDOWS)
def test_weights_may_be_computed(name: str, level: str) -> None:
    image, weights, groups, window = WINDOWS[name]
    network = Network()
    x, w, bias = (
        network.image("x", *image),
        network.image("w", *weights),
        network.draw(weights[3]),
    )
    given = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)} | window
    conv = ops.Conv(**given, groups=groups, channels_last=True)
    y = network.unary("Relu", network.builder.emit(conv, [x, w, bias], "conv"))
    graph, target = network.graph(y), target_at(level)
    (kernel,) = selected(graph, target)
    assert kernel.reads == ("x", "w")
    for _ in range(2):
        expected = evaluate(graph, network.arrays)[y]
        size = np.abs(expected).max()
        got = run_kernels(graph, network.arrays, target)[y]
        np.testing.assert_allclose(got / size, expected / size, atol=NEAR)
        network.arrays["w"] = network.arrays["w"] * 2 + 1


def test_computed_weights_of_several_groups_stay_with_numpy() -> None:
    network = Network()
    x, w = network.image("x", 1, 5, 5, 8), network.image("w", 3, 3, 4, 6)
    conv = ops.Conv((1, 1), (1, 1, 1, 1), (1, 1), groups=2, channels_last=True)
    assert not selected(network.graph(network.builder.emit(conv, [x, w], "conv")))

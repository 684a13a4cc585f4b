"""Random operators: graph definition, tensor expression and instructions agree, byte for byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.graph import (
    Constant,
    Graph,
    Node,
    Output,
    QAdd,
    QAvgPool,
    QConv,
    QLut,
    QMaxPool,
    TensorType,
    Value,
    evaluate,
)
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.tensor import evaluate as evaluate_kernel
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.semantics import Machine

CONFIGURATIONS = ["4x4", "8x8", "8x16", "16x8", "16x16"]


def single_node(attributes, inputs, out_shape, constants=()) -> Graph:
    """A graph of one accelerated node; `inputs` are shapes of int8 activations."""
    values = tuple(Value(f"in{i}", TensorType("int8", shape)) for i, shape in enumerate(inputs))
    held = tuple(Constant(f"const{i}", data) for i, data in enumerate(constants))
    out = Value("out", TensorType("int8", out_shape))
    names = tuple(v.name for v in values) + tuple(c.name for c in held)
    node = Node("node", attributes, names, (out,))
    return Graph("one", values, (Output("out", "out"),), (node,), held)


def out_extent(size, kernel, stride, dilation, before, after):
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


@st.composite
def convolutions(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    depthwise = draw(st.booleans())
    channels = draw(st.integers(1, 40))
    groups = channels if depthwise else draw(st.sampled_from([1, 1, 2]))
    if not depthwise:
        channels = channels * groups
    channels_out = channels if depthwise else draw(st.integers(1, 20)) * groups
    height = draw(st.integers(dilations[0] * (kernel[0] - 1) + 1, 14))
    width = draw(st.integers(dilations[1] * (kernel[1] - 1) + 1, 14))
    out_shape = (
        1,
        out_extent(height, kernel[0], strides[0], dilations[0], pads[0], pads[2]),
        out_extent(width, kernel[1], strides[1], dilations[1], pads[1], pads[3]),
        channels_out,
    )
    attributes = QConv(
        "conv", strides, pads, dilations, groups, int(generator.integers(-128, 128)), 3, -100, 120
    )
    constants = (
        generator.integers(-128, 128, (*kernel, channels // groups, channels_out)).astype(np.int8),
        generator.integers(-(2**14), 2**14, channels_out).astype(np.int32),
        generator.uniform(0.0005, 0.01, channels_out).astype(np.float32),
    )
    graph = single_node(attributes, [(1, height, width, channels)], out_shape, constants)
    return graph, seed


@st.composite
def pools(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pads = draw(st.tuples(*[st.integers(0, k - 1) for k in (*kernel, *kernel)]))
    shape = (1, draw(st.integers(5, 16)), draw(st.integers(5, 16)), draw(st.integers(1, 40)))
    out_shape = (
        1,
        out_extent(shape[1], kernel[0], strides[0], 1, pads[0], pads[2]),
        out_extent(shape[2], kernel[1], strides[1], 1, pads[1], pads[3]),
        shape[3],
    )
    if draw(st.booleans()):
        attributes = QMaxPool(kernel, strides, pads, (1, 1), -120, 100)
    else:
        attributes = QAvgPool(kernel, strides, pads, 5, 17, 0.0937, -3, -128, 127)
    return single_node(attributes, [shape], out_shape), seed


def activations(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        value.name: generator.integers(-128, 128, value.type.shape).astype(np.int8)
        for value in graph.inputs
    }


def execute(graph: Graph, configuration, inputs) -> np.ndarray:
    """Compile, and run the program by the contract's semantics."""
    (segment,) = compile_module(graph, configuration).segments
    image = segment.image(inputs)
    Machine(configuration, image).run(segment.program)
    return segment.outputs[0].read(image)


def as_read(tensor, values: np.ndarray) -> np.ndarray:
    """An activation as a kernel reads it: padding channels, or windows gathered from it."""
    channels = tensor.patches.run if tensor.patches else tensor.shape[3]
    stored = np.pad(values, [(0, 0)] * 3 + [(0, channels - values.shape[3])])
    return tensor.patches.gather(stored, tensor.shape) if tensor.patches else stored


def assert_all_agree(graph: Graph, seed: int, configuration) -> None:
    inputs = activations(graph, seed)
    expected = evaluate(graph, inputs)["out"]
    kernel = build_kernel(graph.nodes[0], graph, configuration)
    tensors = [kernel.tensors[name] for name in kernel.inputs]
    expressed = evaluate_kernel(kernel, {t.name: as_read(t, inputs[t.value]) for t in tensors})
    expressed = expressed.reshape(*expected.shape[:3], -1)[..., : expected.shape[3]]
    np.testing.assert_array_equal(expressed, expected)
    np.testing.assert_array_equal(execute(graph, configuration, inputs), expected)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@settings(max_examples=25, deadline=None)
@given(case=convolutions())
def test_convolutions_keep_their_meaning(name, case):
    graph, seed = case
    assert_all_agree(graph, seed, PRESETS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
@settings(max_examples=10, deadline=None)
@given(case=pools())
def test_pools_keep_their_meaning(name, case):
    graph, seed = case
    assert_all_agree(graph, seed, PRESETS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_stride_of_single_pixels_reads_no_others(name):
    attributes = QConv("conv", (2, 3), (0, 0, 0, 0), (1, 1), 1, 5, 3)
    generator = np.random.default_rng(9)
    constants = (
        generator.integers(-128, 128, (1, 1, 37, 20)).astype(np.int8),
        generator.integers(-(2**14), 2**14, 20).astype(np.int32),
        generator.uniform(0.0005, 0.01, 20).astype(np.float32),
    )
    graph = single_node(attributes, [(2, 9, 11, 37)], (2, 5, 4, 20), constants)
    assert_all_agree(graph, 3, PRESETS[name])
    kernel = build_kernel(graph.nodes[0], graph, PRESETS[name])
    assert kernel.tensors[kernel.inputs[0]].shape[1:3] == (5, 4)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_residuals_and_tables_keep_their_meaning(name):
    shape = (1, 9, 7, 21)
    attributes = QAdd((1234, -777), 4321, 0.0009, 5, -128, 100)
    assert_all_agree(single_node(attributes, [shape, shape], shape), 1, PRESETS[name])
    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)
    assert_all_agree(single_node(QLut(), [shape], shape, (table,)), 2, PRESETS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_layers_larger_than_the_scratchpads_are_tiled(name):
    """Small memories force split channels, split pixels and reloaded weights."""
    configuration = PRESETS[name].replace(
        act_depth=64, wgt_depth=128, acc_depth=16, param_depth=8, name=f"{name}-small"
    )
    generator = np.random.default_rng(3)
    shape, out_shape = (1, 11, 13, 70), (1, 11, 13, 50)
    constants = (
        generator.integers(-128, 128, (3, 3, 70, 50)).astype(np.int8),
        generator.integers(-(2**14), 2**14, 50).astype(np.int32),
        generator.uniform(0.0005, 0.002, 50).astype(np.float32),
    )
    attributes = QConv("conv", (1, 1), (1, 1, 1, 1), (1, 1), 1, -9, 3)
    graph = single_node(attributes, [shape], out_shape, constants)
    assert configuration.size_bytes(Memory.ACT) < 11 * 13 * 70
    assert_all_agree(graph, 4, configuration)

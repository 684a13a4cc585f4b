"""Convolutions and pools of volumes are those of images."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend import import_model, recognise_layers
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate, verify
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes import expand_volumes
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import accelerated_share, make_batches, quantise
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

small = st.integers(1, 3)
triples = st.tuples(small, small, small)
pads = st.tuples(*[st.integers(0, 2)] * 6)
volumes = st.tuples(*[st.integers(2, 6)] * 3)


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Return whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


def one_node(operator: ops.Operator, volume: tuple[int, ...], *more: np.ndarray) -> Graph:
    """A graph of one operator; draws again if it does not fit."""
    channels = 4 if not more else more[0].shape[1] * getattr(operator, "groups", 1)
    builder = Builder("net", [Value("x", TensorType("float32", (2, channels, *volume)))])
    constants = [builder.constant(one) for one in more]
    try:
        y = builder.emit(operator, ["x", *constants])
    except CompileError:
        assume(False)
    return builder.graph([Output("y", y)])


def assert_same(graph: Graph, exact: bool = True) -> None:
    """Compare with the graph of images; nothing of three axes is left."""
    expanded = verify(expand_volumes(graph))
    for node in expanded.nodes:
        window = node.attributes
        assert len(getattr(window, "kernel", getattr(window, "strides", (0, 0)))) == 2
    inputs = {"x": drawn(7, *graph.inputs[0].type.shape)}
    found, expected = evaluate(expanded, inputs)["y"], evaluate(graph, inputs)["y"]
    if exact:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(volumes, triples, triples, pads, triples, small, small, st.integers(1, 3), st.booleans())
@settings(max_examples=80)
def test_a_convolution_of_volumes_is_one_of_images(
    volume, kernel, strides, pads, dilations, part, outputs, groups, has_bias
) -> None:
    more = [drawn(0, groups * outputs, part, *kernel)]
    more += [drawn(1, groups * outputs)] if has_bias else []
    assert_same(one_node(ops.Conv(strides, pads, dilations, groups), volume, *more))


@pytest.mark.parametrize("kernel", [(3, 1, 1), (1, 1, 1), (1, 3, 3), (3, 3, 3)])
def test_elements_are_copied_only_if_the_window_needs_it(kernel) -> None:
    pads = tuple(size // 2 for size in kernel) * 2
    graph = one_node(ops.Conv((1, 1, 1), pads, (1, 1, 1), 1), (4, 5, 6), drawn(0, 3, 2, *kernel))
    kinds = {node.op for node in expand_volumes(graph).nodes}
    assert ("concat" in kinds) == (kernel == (3, 3, 3))
    assert ("transpose" in kinds) == (kernel[1:] == (3, 3))
    assert_same(graph)


@given(volumes, triples, triples, pads, triples)
@settings(max_examples=40)
def test_a_maximum_of_volumes_is_one_of_images(volume, kernel, strides, pads, dilations) -> None:
    pads = tuple(min(pad, size - 1) for pad, size in zip(pads, kernel * 2, strict=True))
    assert_same(one_node(ops.MaxPool(kernel, strides, pads, dilations), volume))


@given(volumes, triples, triples, pads, triples, st.booleans(), triples)
@settings(max_examples=40)
def test_a_mean_of_volumes_is_one_of_images(
    volume, kernel, strides, pads, dilations, included, overhang
) -> None:
    pads = tuple(min(pad, size - 1) for pad, size in zip(pads, kernel * 2, strict=True))
    ends = zip(overhang, strides, kernel, pads[3:], strict=True)
    overhang = tuple(min(most, stride, size - end) - 1 for most, stride, size, end in ends)
    pool = ops.AveragePool(kernel, strides, pads, included, overhang, dilations=dilations)
    assert_same(one_node(pool, volume), exact=False)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_quantised_convolution_of_volumes_is_a_layer(groups: int) -> None:
    builder = Builder("quantised", [Value("x", TensorType("float32", (1, 4, 4, 5, 6)))])
    scaling = ((0.125,), (3,))
    x = builder.emit(ops.Quantize(*scaling, "int8"), ["x"])
    x = builder.emit(ops.Dequantize(*scaling), [x])
    held = builder.constant(drawn(0, 8, 4 // groups, 3, 3, 3).astype(np.int8))
    w = builder.emit(ops.Dequantize((0.25,) * 4 + (0.5,) * 4, (0,) * 8, 0), [held])
    y = builder.emit(ops.Conv((2, 1, 1), (1,) * 6, (1, 1, 1), groups), [x, w])
    y = builder.emit(ops.Quantize((4.0,), (-5,), "int8"), [builder.emit(ops.Unary("Relu"), [y])])
    graph = builder.graph([Output("y", y)])
    layers = recognise_layers(graph)
    assert any(isinstance(node.attributes, ops.QConv) for node in layers.nodes)
    assert not any(isinstance(node.attributes, ops.Conv) for node in layers.nodes)
    inputs = {"x": drawn(3, 1, 4, 4, 5, 6)}
    np.testing.assert_array_equal(evaluate(layers, inputs)["y"], evaluate(graph, inputs)["y"])


def network() -> Graph:
    """Two convolutions of volumes, a pool between them, and a dense layer."""
    builder = Builder("volumes", [Value("x", TensorType("float32", (1, 3, 6, 12, 12)))])
    y, chance = "x", np.random.default_rng(0)
    for inputs, outputs in ((3, 16), (16, 32)):
        w = chance.normal(0, 0.1, (outputs, inputs, 3, 3, 3)).astype(np.float32)
        operands = [y, builder.constant(w), builder.constant(np.full(outputs, 0.1, np.float32))]
        y = builder.emit(ops.Conv((1, 1, 1), (1,) * 6, (1, 1, 1), 1), operands)
        y = builder.emit(ops.Unary("Relu"), [y])
        if outputs == 16:
            y = builder.emit(ops.MaxPool((2,) * 3, (2,) * 3, (0,) * 6, (1, 1, 1)), [y])
    y = builder.emit(ops.Reduce("ReduceMean", (2, 3, 4), False), [y])
    w = builder.constant(chance.normal(0, 0.3, (32, 8)).astype(np.float32))
    return builder.graph([Output("y", builder.emit(ops.MatMul(), [y, w]))])


def test_a_network_of_volumes_runs_in_machine_code() -> None:
    graph, configuration = network(), PRESETS["16x16"]
    module = compile_module(recognise_layers(graph), configuration)
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 12, 12)).astype(np.float32)
    with open_device("sim", configuration) as sim:
        ran = Session(module, sim).run({"x": x})
    np.testing.assert_allclose(ran.outputs["y"], evaluate(graph, {"x": x})["y"], atol=1e-4)


def test_a_network_of_volumes_is_quantised_for_the_accelerator() -> None:
    graph = network()
    samples = np.random.default_rng(1).standard_normal((8, 1, 3, 6, 12, 12)).astype(np.float32)
    result = quantise(graph, make_batches(graph, {"x": samples}))
    integer = import_model(export_onnx(result.graph).SerializeToString())
    assert accelerated_share(integer) == 1
    inputs = {"x": samples[0]}
    expected, got = evaluate(graph, inputs)["y"], evaluate(integer, inputs)["y"]
    assert np.square(got - expected).sum() < 0.02 * np.square(expected).sum()

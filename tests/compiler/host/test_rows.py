"""Softmax, normalisations as they are written out, and reductions of rows."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.cpu import (
    HeadProduct,
    LayerNormalisation,
    RowReduction,
    RowSoftmax,
)
from tilewright.compiler.cpu.kernels.pooling import Pooling
from tilewright.compiler.frontend import recognise_layers
from tilewright.compiler.graph import Graph
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.build import Builder
from tilewright.compiler.host.rows import KINDS
from tilewright.compiler.importers import import_onnx

from ...processor import VECTOR_LEVELS, target_at
from .agreement import assert_agrees, run_kernels, selected
from .networks import built, imported, node, normal

pytestmark = pytest.mark.processor

TOLERANCES = (1e-4, 1e-5)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_over_the_last_axes(axis: int, log: bool) -> None:
    x = normal(3, 4, 50)
    graph = built({"x": x}, lambda b: b.emit(ops.Softmax(axis, 3, log), ["x"]))
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert isinstance(kernel.description, RowSoftmax)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), (1, 3)])
def test_softmax_over_other_axes(axes: tuple[int, int], log: bool) -> None:
    x = normal(3, 4, 5, 11)
    graph = built({"x": x}, lambda b: b.emit(ops.Softmax(*axes, log), ["x"]))
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert isinstance(kernel.description, RowSoftmax)


@pytest.mark.parametrize(("shape", "kernels"), [((2, 1 << 15), 1), ((2, (1 << 15) + 1), 0)])
def test_rows_that_fit_no_stack_stay_with_the_definition(shape: tuple, kernels: int) -> None:
    x = normal(*shape)
    graph = built({"x": x}, lambda b: b.emit(ops.Softmax(1, 2), ["x"]))
    assert len(assert_agrees(graph, {"x": x}, *TOLERANCES)) == kernels


@pytest.mark.parametrize(("columns", "kernels"), [(2048, 1), (2049, 0)])
def test_vectors_of_rows_that_fit_no_stack_stay_as_well(columns: int, kernels: int) -> None:
    x = normal(columns, 40)
    graph = built({"x": x}, lambda b: b.emit(ops.Softmax(0, 1), ["x"]))
    assert len(assert_agrees(graph, {"x": x}, *TOLERANCES)) == kernels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "axes", [(2, 3), (3,), (1, 2, 3), (0, 1, 2, 3), (0,), (1,), (1, 2), (0, 2), (2, 0)]
)
def test_reductions_over_axes_side_by_side(kind: str, axes: tuple[int, ...], keep: bool) -> None:
    x = normal(2, 1, 5, 21)
    graph = built({"x": x}, lambda b: b.emit(ops.Reduce(kind, axes, keep), ["x"]))
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert isinstance(kernel.description, (RowReduction, Pooling))


def test_reductions_over_axes_apart_stay_with_the_definition() -> None:
    x = normal(2, 3, 5, 21)
    graph = built({"x": x}, lambda b: b.emit(ops.Reduce("ReduceMax", (1, 3), True), ["x"]))
    assert not selected(graph)


# Normalisations ----------------------------------------------------------------------------------

OPERATORS = {
    "LayerNormalization": (node("LayerNormalization", "x s b", axis=-1), 17, "s b"),
    "without a bias": (node("LayerNormalization", "x s", epsilon=0.1), 17, "s"),
    "RMSNormalization": (node("RMSNormalization", "x s"), 23, "s"),
    "simplified": (node("SimplifiedLayerNormalization", "x s"), 17, "s"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_normalisations_of_onnx_are_one_kernel(name: str) -> None:
    x = normal(2, 9, 48) + 1
    operator, opset, weights = OPERATORS[name]
    graph = imported([operator], {"x": x}, {key: normal(48) for key in weights.split()}, opset)
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert isinstance(kernel.description, LayerNormalisation)
    assert kernel.nodes == graph.nodes
    assert kernel.description.centred == name.startswith(("Layer", "without"))


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_normalisation_over_several_axes(axis: int) -> None:
    x = normal(2, 6, 10)
    weights = {"s": normal(*x.shape[axis:]), "b": normal(*x.shape[axis:])}
    graph = imported([node("LayerNormalization", "x s b", axis=axis)], {"x": x}, weights)
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert kernel.description.operands["x"].shape == {1: (2, 60), 2: (12, 10)}[axis]


def written_out(power: bool, inverse: bool, scaled: bool, biased: bool, tail: str = ""):
    """A layer norm in the operators of older exporters; `tail` spoils it."""

    def make(builder: Builder) -> str | list[str]:
        def binary(kind: str, a: str, b: str) -> str:
            return builder.emit(ops.Binary(kind), [a, b])

        def number(value: float) -> str:
            return builder.constant(np.array(value, np.float32))

        mean = builder.emit(ops.Reduce("ReduceMean", (2,), True), ["x"])
        centred = binary("Sub", "x", mean)
        base = binary("Sub", "x", mean) if tail == "twice" else centred
        square = binary("Pow", base, number(2)) if power else binary("Mul", base, base)
        kind = "ReduceSum" if tail == "sum" else "ReduceMean"
        axes = (1, 2) if tail == "axes" else (2,)
        variance = builder.emit(ops.Reduce(kind, axes, True), [square])
        spread = binary("Add", variance, number(-1e-9 if tail == "negative" else 1e-5))
        deviation = builder.emit(ops.Unary("Sqrt"), [spread])
        if inverse:
            result = binary("Mul", builder.emit(ops.Unary("Reciprocal"), [deviation]), centred)
        elif tail == "turned":
            result = binary("Div", deviation, centred)
        else:
            result = binary("Div", "x" if tail == "uncentred" else centred, deviation)
        if scaled:
            result = binary("Mul", result, builder.constant(normal(40)))
        if biased:
            result = binary("Add", builder.constant(normal(1, 1, 40)), result)
        return [result, centred] if tail == "shown" else result

    return make


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("affine", ["", "scaled", "biased", "scaled biased"])
def test_a_layer_norm_that_is_written_out(power: bool, inverse: bool, affine: str) -> None:
    x = normal(2, 7, 40) * 3 - 1
    graph = built({"x": x}, written_out(power, inverse, "scaled" in affine, "biased" in affine))
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert isinstance(kernel.description, LayerNormalisation)
    assert kernel.nodes == graph.nodes


@pytest.mark.parametrize("tail", ["sum", "negative", "turned", "uncentred"])
def test_what_only_resembles_a_layer_norm_is_none(tail: str) -> None:
    x = normal(2, 7, 40) * 3 - 1
    graph = built({"x": x}, written_out(False, False, True, True, tail))
    kernels = assert_agrees(graph, {"x": x}, 1e-3, 1e-4)
    assert not any(isinstance(kernel.description, LayerNormalisation) for kernel in kernels)


@pytest.mark.parametrize("tail", ["axes", "shown"])
def test_what_was_centred_before_is_normalised_without_a_mean(tail: str) -> None:
    """A variance over other rows than the mean's, or a centred value that is shown."""
    x = normal(2, 7, 40) * 3 - 1
    graph = built({"x": x}, written_out(False, False, True, True, tail))
    kernels = assert_agrees(graph, {"x": x}, *TOLERANCES)
    found = [kernel.description for kernel in kernels]
    assert [one.centred for one in found if isinstance(one, LayerNormalisation)] == [False]


def of_tensorflow(scaled: bool, variant: str) -> list[onnx.NodeProto]:
    """A layer norm as tf2onnx writes it: means are pools, the factor is applied to x and mean."""
    pool = "GlobalMaxPool" if variant == "maximum" else "GlobalAveragePool"
    factor = "factor" if scaled else "inverse"
    variance = [
        node("Sub", "x mean", "centred"),
        node("Mul", "centred centred", "square"),
        node(pool, "square", "variance"),
    ]
    if variant == "difference":
        variance = [
            node("Mul", "x x", "square"),
            node(pool, "square", "mean_square"),
            node("Mul", "mean mean", "squared_mean"),
            node("Sub", "mean_square squared_mean", "variance"),
        ]
    return [
        node(pool, "x", "mean"),
        *variance,
        node("Add", "variance e", "spread"),
        node("Sqrt", "spread", "deviation"),
        node("Reciprocal", "deviation", "inverse"),
        node("Mul", "inverse s", "factor"),
        node("Mul", f"mean {'inverse' if variant == 'factor' else factor}", "moved"),
        node("Sub", "moved b" if variant == "sign" else "b moved", "shift"),
        node("Mul", f"x {factor}", "product"),
        node("Add", "product shift", "y"),
    ]


def tensorflow_graph(scaled: bool, variant: str = "") -> tuple[Graph, dict[str, np.ndarray]]:
    x = normal(2, 9, 48) + 1
    weights = {"s": normal(48), "b": normal(48), "e": np.array(1e-3, np.float32)}
    nodes = [one for one in of_tensorflow(scaled, variant) if scaled or "factor" not in one.output]
    return imported(nodes, {"x": x}, weights), {"x": x}


@pytest.mark.parametrize("variant", ["", "difference"])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_layer_norm_of_tensorflow_is_one_kernel(scaled: bool, variant: str) -> None:
    graph, inputs = tensorflow_graph(scaled, variant)
    (kernel,) = assert_agrees(graph, inputs, *TOLERANCES)
    assert isinstance(kernel.description, LayerNormalisation)
    assert kernel.description.centred
    assert kernel.nodes == graph.nodes


@pytest.mark.parametrize("variant", ["maximum", "factor", "sign"])
def test_what_only_resembles_a_norm_of_tensorflow_is_none(variant: str) -> None:
    graph, inputs = tensorflow_graph(True, variant)
    kernels = assert_agrees(graph, inputs, *TOLERANCES)
    assert not any(isinstance(kernel.description, LayerNormalisation) for kernel in kernels)


def test_centring_twice_is_found_as_well() -> None:
    x = normal(2, 7, 40) * 3 - 1
    graph = built({"x": x}, written_out(False, False, True, True, "twice"))
    (kernel,) = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert kernel.nodes == graph.nodes


def test_a_scale_for_each_row_beside_a_bias_for_each_column_stays_outside() -> None:
    x = normal(2, 40, 40)

    def make(builder: Builder) -> str:
        normal_ = written_out(False, False, False, False)(builder)
        assert isinstance(normal_, str)
        scaled = builder.emit(ops.Binary("Mul"), [normal_, builder.constant(normal(40, 1))])
        return builder.emit(ops.Binary("Add"), [scaled, builder.constant(normal(40))])

    kernels = assert_agrees(built({"x": x}, make), {"x": x}, *TOLERANCES)
    assert [len(kernel.nodes) for kernel in kernels] == [8, 1]
    assert [len(kernel.constants) for kernel in kernels] == [2, 1]


SHAPES = [(2, 5, 40), (1, 3, 7, 9), (2, 4, 64, 64), (1, 2, 80, 80), (1, 2, 81, 80), (3, 2, 1, 6, 7)]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_instance_normalisation_is_one_kernel(shape: tuple[int, ...], level: str) -> None:
    x = normal(*shape) * 3 + 50
    weights = {"scale": normal(shape[1]), "bias": normal(shape[1])}
    graph = imported([node("InstanceNormalization", "x scale bias")], {"x": x}, weights)
    (kernel,) = selected(graph, target_at(level))
    assert isinstance(kernel.description, LayerNormalisation)
    assert kernel.description.by_row
    got = run_kernels(graph, {"x": x}, target_at(level))[graph.outputs[0].value]
    axes = tuple(range(2, x.ndim))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    normed = centred / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    scale, bias = (weights[name].reshape(-1, *(1,) * len(axes)) for name in ("scale", "bias"))
    np.testing.assert_allclose(got, normed * scale + bias, rtol=1e-4, atol=1e-4)


# Networks ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script():
    """The example of a transformer's encoder as a module."""
    path = Path(__file__).parents[3] / "examples" / "encoder.py"
    spec = importlib.util.spec_from_file_location("encoder", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.slow
@pytest.mark.parametrize("operators", [False, True], ids=["parts", "operators"])
@pytest.mark.parametrize("sizes", [(33, 24, 3, 60, 2), (1, 16, 1, 20), (64, 64, 4, 256)])
def test_an_encoder_is_kernels_and_nothing_else(script, sizes: tuple, operators: bool) -> None:
    encoder = script.Encoder(*sizes, operators=operators)
    graph = recognise_layers(import_onnx(encoder.model().SerializeToString()))
    kernels = assert_agrees(graph, {"x": encoder.draw_sequences(1, 3)}, *TOLERANCES)
    assert_left(graph, (ops.Reshape,))
    products = [kernel for kernel in kernels if isinstance(kernel.description, HeadProduct)]
    blocks = sizes[4] if len(sizes) > 4 else 1
    assert len(products) == 2 * blocks


def assert_left(graph: Graph, kinds: tuple[type[ops.Operator], ...]) -> None:
    """Only nodes of some kinds are computed by their definition."""
    taken = {one.outputs[0].name for kernel in selected(graph) for one in kernel.nodes}
    left = [one for one in graph.nodes if one.outputs[0].name not in taken]
    assert all(isinstance(one.attributes, kinds) for one in left)

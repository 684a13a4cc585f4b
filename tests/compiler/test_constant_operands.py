"""Quantised constants are operands of accelerated layers, whatever operator made them."""

from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv, QMatMul, evaluate
from tilewright.compiler.passes.split_batched_weights import MAX_SMALL
from tilewright.compiler.pipeline import compile_module
from tilewright.flows.verify.fuzz.constant_producers import PRODUCERS
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import model, node, run_onnxruntime, value

SHAPE = (1, 4, 8)


class Model:
    """A model under construction: the builder that the producers of constants expect."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def hold(self, array: Any, kind: str) -> str:
        name = f"{kind}{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(
        self, operator: str, inputs: list[str], shape: Any = None, results: int = 1, **attributes
    ) -> str:
        names = [f"{operator}{len(self.nodes)}.{index}" for index in range(results)]
        self.nodes.append(node(operator, inputs, names, **attributes))
        return names[0]

    def quantised(self, name: str, scale: float = 0.05, zero: int = -3) -> str:
        held = [self.hold(np.float32(scale), "scale"), self.hold(np.int8(zero), "zero")]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [name, *held]), *held])

    def weights(self, *shape: int, axis: int | None = None, kind: str = "int8") -> str:
        """DequantizeLinear of small integers with a scale for each index of an axis."""
        integers = self.numbers.integers(-60, 61, shape).astype(kind)
        scale = self.numbers.uniform(0.005, 0.01, () if axis is None else shape[axis])
        held = [self.hold(integers, "w"), self.hold(scale.astype(np.float32), "ws")]
        return self.node("DequantizeLinear", held, **({} if axis is None else {"axis": axis}))

    def made(self, outputs: list[str], **inputs: tuple[int, ...]) -> onnx.ModelProto:
        given = [value(name, np.float32, shape) for name, shape in inputs.items()]
        return model(self.nodes, given, outputs, self.constants, opset=18)


def agree(proto: onnx.ModelProto, most_apart: int = 0) -> Graph:
    """Compare the accelerator with onnxruntime; return the graph as it was imported.

    Parameters
    ----------
    most_apart
        Number of quantisation steps by which an output may differ.
    """
    graph = import_model(proto.SerializeToString())
    chance = np.random.default_rng(3)
    given = {i.name: chance.normal(size=i.type.shape).astype(np.float32) for i in graph.inputs}
    expected = run_onnxruntime(proto, given, optimise=False)
    configuration = PRESETS["8x8"]
    with open_device("sim", configuration) as device:
        got = Session(compile_module(graph, configuration), device).run(given).outputs
    for name, array in expected.items():
        assert np.abs(got[name] - array).max() <= 0.05 * most_apart + 1e-6, name
        assert len(np.unique(array)) > 3
    return graph


def operators(graph: Graph) -> set[str]:
    return {made.op for made in graph.nodes}


@pytest.mark.parametrize("operator", ["Add", "Sub", "Concat", "MatMul"])
def test_a_constant_of_any_producer_is_an_operand_on_the_accelerator(operator):
    built = Model()
    x = built.quantised("x")
    outputs = []
    for producer in PRODUCERS.values():
        shape = (SHAPE[-1], 5) if operator == "MatMul" else SHAPE
        zero = 0 if operator == "MatMul" else 4  # weights stay in int8
        constant = built.quantised(producer(built, shape), 0.03, zero)
        operands = [constant, x] if operator == "Sub" else [x, constant]
        attributes = {"axis": 1} if operator == "Concat" else {}
        outputs.append(built.quantised(built.node(operator, operands, **attributes)))
    graph = agree(built.made(outputs, x=SHAPE), most_apart=1)
    found = {"Add": "qadd", "Sub": "qadd", "Concat": "qconcat", "MatMul": "qconv"}[operator]
    assert sum(made.op == found for made in graph.nodes) == len(PRODUCERS)
    assert operators(graph) <= {found, "qlut", "quantize", "dequantize", "reshape"}


def test_a_single_number_is_left_to_the_table_around_it():
    """As the 1 in GELU: one table holds all of it, where a sum of its own would cut it in two."""
    built = Model()
    one = built.quantised(built.hold(np.array([1.0], np.float32), "one"), 1 / 127, 0)
    bent = built.quantised(built.node("Erf", [built.quantised("x")]), 1 / 127, 0)
    y = built.quantised(built.node("Add", [bent, one]), 2 / 127, 0)
    graph = agree(built.made([y], x=SHAPE), most_apart=1)
    assert [made.op for made in graph.nodes if made.op.startswith("q")].count("qadd") == 0


def test_a_constant_row_is_added_to_every_row():
    built = Model()
    row = built.quantised(built.weights(4, 8), 0.02, 0)
    y = built.quantised(built.node("Add", [row, built.quantised("x")]))
    assert "qadd" in operators(agree(built.made([y], x=(2, 4, 8)), most_apart=1))


@pytest.mark.parametrize(
    ("given", "weights", "axis"),
    [
        ((3, 6, 8), (3, 8, 5), 2),  # a matrix and scales for each sample
        ((3, 6, 8), (3, 8, 5), 0),  # a scale for each matrix
        ((3, 6, 8), (3, 8, 5), None),
        ((3, 6, 40), (3, 40, 32), None),  # matrices that are faster as layers
        ((6, 8), (3, 8, 5), None),
        ((1, 3, 6, 8), (3, 8, 5), None),
        ((6, 8), (3, 8, 5), 2),  # one input for all
        ((1, 6, 8), (3, 8, 5), 0),
        ((2, 3, 6, 8), (3, 8, 5), 2),  # the same heads for two samples
        ((2, 3, 6, 8), (1, 3, 8, 5), 1),
        ((2, 3, 6, 8), (2, 3, 8, 5), 3),
        ((2, 6, 8), (1, 8, 5), 2),  # a single matrix
        ((6, 8), (1, 1, 8, 5), 0),
    ],
)
@pytest.mark.parametrize("bias", [None, "float", "int32"])
def test_a_batch_of_constant_matrices_runs_on_the_accelerator(given, weights, axis, bias):
    built = Model()
    product = built.node("MatMul", [built.quantised("x"), built.weights(*weights, axis=axis)])
    if bias is not None:
        shape = (*weights[:-2], 1, weights[-1])
        term = built.hold(built.numbers.normal(size=shape).astype(np.float32), "bias")
        if bias == "int32":
            steps = built.hold(built.numbers.integers(-900, 900, shape).astype(np.int32), "bias")
            term = built.node("DequantizeLinear", [steps, built.hold(np.float32(4e-4), "unit")])
        product = built.node("Add", [product, term])
    y = built.quantised(built.node("Relu", [product]))
    graph = agree(built.made([y], x=given), most_apart=1)
    alike = axis is None and bias is None and given[:-2] == weights[:-2]
    if alike and np.prod(weights[-2:]) <= MAX_SMALL:
        # As where heads have constant keys: the matrices are an operand.
        assert [made for made in graph.nodes if isinstance(made.attributes, QMatMul)]
        return
    layers = [made for made in graph.nodes if isinstance(made.attributes, QConv)]
    assert len(layers) == int(np.prod(weights[:-2]))
    assert operators(graph) <= {"qconv", "qslice", "qconcat", "quantize", "dequantize", "reshape"}


def test_a_constant_may_be_the_first_factor():
    built = Model()
    y = built.quantised(built.node("MatMul", [built.weights(1, 5, 6), built.quantised("x")]))
    graph = agree(built.made([y], x=(1, 6, 8)), most_apart=1)
    assert any(isinstance(made.attributes, QMatMul) for made in graph.nodes)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_below_int8_run_as_int8(kind, per_channel):
    """Expected values come from the same weights in int8, which onnxruntime knows."""
    graphs = []
    for element in (kind, "INT8"):
        built = Model()
        low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT2": (-2, 2), "UINT2": (0, 4)}[kind]
        drawn = built.numbers.integers(low, high, (5, 4, 3, 3))
        points = built.numbers.integers(low, high, 5 if per_channel else 1)
        scale = built.hold(np.linspace(0.02, 0.05, 5 if per_channel else 1, dtype="f4"), "s")
        zero = "z"
        w = built.node("DequantizeLinear", ["w", scale, zero], axis=0)
        y = built.quantised(built.node("Conv", [built.quantised("x"), w], pads=[1] * 4))
        proto = built.made([y], x=(1, 4, 6, 6))
        number = getattr(onnx.TensorProto, element)
        proto.graph.initializer.extend(
            [
                onnx.helper.make_tensor("w", number, drawn.shape, drawn.ravel().tolist()),
                onnx.helper.make_tensor("z", number, points.shape, points.tolist()),
            ]
        )
        proto.opset_import[0].version = 25
        graphs.append(import_model(proto.SerializeToString()))
    x = np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)
    narrow, usual = (evaluate(graph, {"x": x}) for graph in graphs)
    for graph in graphs:
        assert sum(isinstance(made.attributes, QConv) for made in graph.nodes) == 1
    for one, other in zip(narrow.values(), usual.values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("low", "high"), [(-8, 7), (-2, 1), (0, 7)])
def test_a_clip_of_integers_between_layers_is_the_clamp_of_the_layer(low, high):
    """Brevitas writes activations of a few bits as QuantizeLinear, Clip, DequantizeLinear."""
    built = Model()
    held = [built.hold(np.float32(0.1), "s"), built.hold(np.int8(0), "z")]
    ends = [built.hold(np.int8(end), "end") for end in (low, high)]
    x = built.quantised("x")
    for _ in range(2):
        y = built.node("Conv", [x, built.weights(4, 4, 3, 3, axis=0)], pads=[1] * 4)
        steps = built.node("Clip", [built.node("QuantizeLinear", [y, *held]), *ends])
        x = built.node("DequantizeLinear", [steps, *held])
    graph = agree(built.made([x], x=(1, 4, 6, 6)), most_apart=2)
    found = [made.attributes for made in graph.nodes if isinstance(made.attributes, QConv)]
    assert [(layer.low, layer.high) for layer in found] == [(low, high)] * 2
    assert operators(graph) <= {"qconv", "quantize", "dequantize", "transpose"}

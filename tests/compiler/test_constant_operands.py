"""Quantised constants are operands of accelerated layers, whatever operator made them."""

from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv, QMatMul
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
    layers = [made for made in graph.nodes if isinstance(made.attributes, QConv)]
    assert len(layers) == int(np.prod(weights[:-2]))
    assert operators(graph) <= {"qconv", "qslice", "qconcat", "quantize", "dequantize", "reshape"}


def test_a_constant_may_be_the_first_factor():
    built = Model()
    y = built.quantised(built.node("MatMul", [built.weights(1, 5, 6), built.quantised("x")]))
    graph = agree(built.made([y], x=(1, 6, 8)), most_apart=1)
    assert any(isinstance(made.attributes, QMatMul) for made in graph.nodes)

"""An operator is one class: importer, exporter, host, costs and text read what it declares."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.graph import Graph, evaluate, parse_graph, print_graph
from tilewright.compiler.graph.operator import OPERATORS, Operator, onnx_form, operator
from tilewright.compiler.graph.operators import Interpolate
from tilewright.compiler.graph.types import TensorType, Types
from tilewright.compiler.host.movements import Movement, find_movements
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.placement.costs import passes_of

from .onnx_models import integers, model, node, run_onnxruntime, value

LENGTHS = integers([2, 4, 1])


@pytest.fixture(autouse=True)
def reverse_sequence() -> Iterator[None]:
    """ONNX has this operator; Tilewright otherwise runs ONNX's own definition."""

    @operator("reverse_sequence", 2)
    class ReverseSequence(Operator):
        onnx = onnx_form("ReverseSequence", "batch_axis", time_axis="steps")
        moved = slice(1)
        numpy_passes = 3
        steps: int = 0
        batch_axis: int = 1

        def result_type(self, types: Types) -> TensorType:
            return types[0]

        def compute(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
            rows = np.moveaxis(x, (self.batch_axis, self.steps), (0, 1)).copy()
            for row, length in zip(rows, lengths, strict=True):
                row[:length] = row[:length][::-1]
            return np.moveaxis(rows, (0, 1), (self.batch_axis, self.steps))

    yield
    del OPERATORS["reverse_sequence"]


def network(**attributes: Any) -> tuple[Graph, onnx.ModelProto]:
    shape = [3, 5, 2] if attributes else [5, 3, 2]
    proto = model(
        [node("ReverseSequence", ["x", "lengths"], ["y"], **attributes)],
        [value("x", np.float32, shape)],
        ["y"],
        {"lengths": LENGTHS},
        20,
    )
    return import_onnx(proto.SerializeToString()), proto


@pytest.mark.parametrize("attributes", [{}, {"batch_axis": 0, "time_axis": 1}])
def test_importer_and_exporter_follow_its_form(attributes):
    graph, proto = network(**attributes)
    (made,) = graph.nodes
    assert made.op == "reverse_sequence"
    x = np.random.default_rng(1).normal(size=graph.inputs[0].type.shape).astype(np.float32)
    written = export_onnx(graph)
    back = import_onnx(written.SerializeToString())
    assert [one.attributes for one in back.nodes] == [made.attributes]
    for result in (evaluate(graph, {"x": x})["y"], run_onnxruntime(written, {"x": x})["y"]):
        np.testing.assert_array_equal(result, run_onnxruntime(proto, {"x": x})["y"])
    arrays = {constant.name: constant.data for constant in graph.constants}
    assert parse_graph(print_graph(graph), arrays).nodes == graph.nodes


def test_the_host_copies_what_it_moves():
    graph, _ = network()
    (made,) = find_movements(graph, graph.nodes)
    assert isinstance(made, Movement)
    assert made.reads == ("x",)


def test_costs_count_its_passes():
    graph, _ = network()
    assert passes_of(graph, graph.nodes[0]) == 3 * 5 * 3 * 2


def test_an_operator_moves_nothing_unless_it_says_so():
    assert Interpolate.moved == slice(0)
    assert Interpolate.numpy_passes == Operator.numpy_passes

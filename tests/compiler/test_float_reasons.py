"""A layer in float names the neighbour that is not quantised."""

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement.float_reasons import float_reasons
from tilewright.flows.reports.placement_table import reason_lines
from tilewright.isa.configuration import DEFAULT

QUANTISE, DEQUANTISE = ops.Quantize((0.1,), (0,), "int8"), ops.Dequantize((0.1,), (0,))


class Net:
    """A graph whose input may be quantised; each call names the node and returns its value."""

    def __init__(self, *, quantised: bool = True) -> None:
        self.builder = Builder("net", [Value("x", TensorType("float32", (1, 4, 6, 6)))])
        self.x = self.rounded("x") if quantised else "x"

    def add(self, name: str, operator: ops.Operator, *inputs: str) -> str:
        return self.builder.emit(operator, inputs, name)

    def rounded(self, x: str) -> str:
        return self.add("back", DEQUANTISE, self.add("round", QUANTISE, x))

    def conv(self, name: str, x: str) -> str:
        integers = self.builder.constant(np.ones((4, 4, 1, 1), np.int8))
        weights = self.add("weights", DEQUANTISE, integers)
        return self.add(name, ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1), x, weights)

    def constant(self) -> str:
        return self.builder.constant(np.array(2, np.float32))

    def reasons(self, result: str) -> dict[str, str]:
        graph = self.builder.graph([Output("y", result)])
        found = float_reasons(graph)
        return {n.name: found[n.output.name] for n in graph.nodes if n.output.name in found}


def test_the_reader_of_a_function_is_named() -> None:
    net = Net()
    gelu = net.add("gelu", ops.Unary("Gelu"), net.x)
    soft = net.add("softmax", ops.Softmax(1, 2), gelu)
    assert net.reasons(net.rounded(soft)) == {
        "gelu": "`softmax` (`softmax`) reads its result in float"
    }


def test_a_function_of_several_nodes_is_one() -> None:
    net = Net()
    half = net.add("half", ops.Binary("Mul"), net.x, net.constant())
    tanh = net.add("tanh", ops.Unary("Tanh"), half)
    gate = net.add("gate", ops.Binary("Mul"), half, tanh)
    assert net.reasons(net.rounded(gate)) == {}
    soft = net.add("softmax", ops.Softmax(1, 2), gate)
    text = "`softmax` (`softmax`) reads its result in float"
    assert net.reasons(soft) == dict.fromkeys(("half", "tanh", "gate"), text)


def test_the_maker_of_an_operand_is_named() -> None:
    net = Net()
    soft = net.add("softmax", ops.Softmax(1, 2), net.x)
    made = net.conv("conv", net.add("turn", ops.Transpose((0, 1, 3, 2)), soft))
    made = net.add("clamp", ops.Unary("Relu"), made)
    assert net.reasons(net.rounded(made)) == {
        "conv": "`softmax` (`softmax`) makes its operand in float",
        "clamp": "`conv` (`conv`) makes its operand in float",
    }


def test_an_input_and_an_output_in_float_are_named() -> None:
    net = Net(quantised=False)
    assert net.reasons(net.rounded(net.conv("conv", "x"))) == {"conv": "input `x` is in float"}
    net = Net()
    made = net.conv("conv", net.x)
    assert net.reasons(made) == {"conv": "its result is an output in float"}


def test_a_function_between_a_layer_and_its_rounding_is_named() -> None:
    net = Net()
    made = net.add("gelu", ops.Unary("Gelu"), net.conv("conv", net.x))
    assert net.reasons(net.rounded(made)) == {
        "conv": "`gelu` (`unary`) reads its result in float",
        "gelu": "`conv` (`conv`) makes its operand in float",
    }


@pytest.mark.parametrize("quantised", [False, True])
def test_layers_inside_a_float_part_have_no_neighbour_to_blame(quantised) -> None:
    net = Net(quantised=quantised)
    soft = net.add("softmax", ops.Softmax(1, 2), net.x)
    gelu = net.add("gelu", ops.Unary("Gelu"), soft)
    assert net.reasons(net.add("again", ops.Softmax(1, 2), gelu)) == {}


def rows_of(graph: Graph) -> list[dict]:
    report = compile_module(graph, DEFAULT).report["placement"]
    assert isinstance(report, dict)
    return report["rows"]


def test_the_table_tells_the_neighbour_once_for_layers_that_are_alike() -> None:
    net = Net()
    made = net.x
    for index in range(3):
        made = net.add(f"gelu{index}", ops.Unary("Gelu"), made)
        made = net.rounded(net.add(f"softmax{index}", ops.Softmax(1, 2), made))
    graph = net.builder.graph([Output("y", made)])
    rows = [row for row in rows_of(graph) if row["op"] == "unary"]
    whole = "cannot run there: `unary` of float32, as `softmax0` (`softmax`) reads its result"
    assert rows[0]["reason"] == f"{whole} in float"
    named = [{**row, "short": row["name"]} for row in rows]
    assert reason_lines({"rows": named}) == [
        "",
        "in float because of a neighbour:",
        "gelu0 and 2 more like it: unable: `unary` of float32, as `softmax0` (`softmax`) reads "
        "its result in float",
    ]

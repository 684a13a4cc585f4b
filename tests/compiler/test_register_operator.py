"""Operators of the user's own: what is registered, imported, refused, written and read back."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright import TilewrightError, import_model, register_operator
from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.graph import evaluate, parse_graph, print_graph
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.registered import REGISTERED, registered_key
from tilewright.errors import CompileError, ImportModelError

from .host.agreement import selected
from .onnx_models import model, node, value

DOMAIN = "com.example"
SQUARE_PLUS = "(x + sqrt(x * x + b)) / 2"


@pytest.fixture(autouse=True)
def _only_own() -> Iterator[None]:
    """Each test starts with these operators, and leaves none behind."""
    before = dict(REGISTERED)
    REGISTERED.clear()
    register_operator("SquarePlus", domain=DOMAIN, law=SQUARE_PLUS, parameters={"b": 4.0})
    register_operator("Gate", domain=DOMAIN, law="x * sigmoid(gate)", operands=("x", "gate"))
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def network(*nodes: onnx.NodeProto, inputs: tuple[str, ...] = ("x",)) -> bytes:
    given = [value(name, np.float32, [1, 4, 6, 5]) for name in inputs]
    return model(nodes, given, [nodes[-1].output[0]]).SerializeToString()


def square_plus(**attributes: Any) -> onnx.NodeProto:
    return node("SquarePlus", ["x"], ["y"], domain=DOMAIN, name="own", **attributes)


def test_a_node_computes_its_law_with_its_attributes() -> None:
    x = np.linspace(-5, 5, 120).astype(np.float32).reshape(1, 4, 6, 5)
    for attributes, b in (({}, 4.0), ({"b": 2.0}, 2.0), ({"b": 1}, 1.0)):
        (got,) = evaluate(import_onnx(network(square_plus(**attributes))), {"x": x}).values()
        expected = (x + np.sqrt(x * x + np.float32(b))) / np.float32(2)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.float32


def test_a_law_of_several_operands_broadcasts() -> None:
    gate = node("Gate", ["x", "g"], ["y"], domain=DOMAIN)
    graph = import_onnx(network(gate, inputs=("x", "g")))
    x, g = np.random.default_rng(0).normal(size=(2, 1, 4, 6, 5)).astype(np.float32)
    (got,) = evaluate(graph, {"x": x, "g": g}).values()
    np.testing.assert_allclose(got, x / (1 + np.exp(-g)), rtol=1e-6)


def test_the_processor_runs_it_in_machine_code_exactly_where_its_law_is_exact() -> None:
    (kernel,) = selected(import_model(network(square_plus())))
    assert kernel.exact
    gate = node("Gate", ["x", "g"], ["y"], domain=DOMAIN)
    (kernel,) = selected(import_model(network(gate, inputs=("x", "g"))))
    assert not kernel.exact


def test_between_quantised_values_it_becomes_a_table() -> None:
    scale = {"s": np.float32(0.05), "z": np.int8(3)}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["x.real"]),
        node("SquarePlus", ["x.real"], ["y.real"], domain=DOMAIN),
        node("QuantizeLinear", ["y.real", "s", "z"], ["y"]),
    ]
    given = [value("x", np.int8, [1, 4, 6, 5])]
    graph = import_model(model(nodes, given, ["y"], scale).SerializeToString())
    assert [n.op for n in graph.nodes if n.op == "qlut"] == ["qlut"]
    every = np.resize(np.arange(-128, 128), (1, 4, 6, 5)).astype(np.int8)
    (got,) = evaluate(graph, {"x": every}).values()
    real = (every - np.float32(3)) * np.float32(0.05)
    wanted = (real + np.sqrt(real * real + np.float32(4))) / np.float32(2)
    wanted = np.clip(np.rint(wanted / np.float32(0.05)) + 3, -128, 127)
    np.testing.assert_array_equal(got, wanted.astype(np.int8))


def test_a_graph_carries_its_laws() -> None:
    graph = import_onnx(network(square_plus(b=2.0)))
    REGISTERED.clear()
    text = print_graph(graph)
    assert f"name='com.example.SquarePlus', law='{SQUARE_PLUS}', operands=('x',)" in text
    assert parse_graph(text, {}) == graph
    assert graph.nodes[0].op == "SquarePlus"
    x = {"x": np.ones((1, 4, 6, 5), np.float32)}
    (got,), (wanted,) = (evaluate(one, x).values() for one in (parse_graph(text, {}), graph))
    np.testing.assert_array_equal(got, wanted)


def test_an_exported_node_is_read_back() -> None:
    graph = import_onnx(network(square_plus(b=2.0)))
    again = import_onnx(export_onnx(graph).SerializeToString())
    assert [one.attributes for one in again.nodes] == [one.attributes for one in graph.nodes]


def test_a_later_registration_replaces_an_earlier_one() -> None:
    before = registered_key()
    register_operator("SquarePlus", domain=DOMAIN, law="x + b", parameters={"b": 1.0})
    assert registered_key() != before
    (made,) = import_onnx(network(square_plus())).nodes
    assert made.attributes == ops.OwnFunction(
        "com.example.SquarePlus", "x + b", ("x",), (("b", 1.0),)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"domain": "ai.onnx", "law": "x"},
            "operator `ai.onnx.New`: expected a domain of your own, such as `com.example`, got "
            "`ai.onnx`; ONNX's operators keep their meaning",
        ),
        (
            {"domain": DOMAIN, "law": "x +"},
            "operator `com.example.New`: law `x +`: expected an expression in Python's syntax, "
            "such as `x * sigmoid(x)`; correct it",
        ),
        (
            {"domain": DOMAIN, "law": "x + c", "operands": ("x",), "parameters": {"b": 1}},
            "operator `com.example.New`: law `x + c`: expected operands x and parameters b, got "
            "`c`; name it in `operands` or `parameters`",
        ),
        (
            {"domain": DOMAIN, "law": "b + 1", "parameters": {"b": 1}},
            "operator `com.example.New`: expected one operand or more, each named once and none "
            "also a parameter, got none; correct `operands`",
        ),
    ],
)
def test_a_malformed_operator_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        register_operator("New", **arguments)


def test_a_name_is_a_word() -> None:
    with pytest.raises(CompileError, match="expected a name of letters, digits and `_`, got `a-b`"):
        register_operator("a-b", domain=DOMAIN, law="x")


def test_a_node_that_does_not_fit_its_operator_is_refused() -> None:
    two = node("SquarePlus", ["x", "x"], ["y"], domain=DOMAIN, name="own")
    with pytest.raises(ImportModelError, match=re.escape("1 operands (x), got 2; correct")):
        import_onnx(network(two))
    with pytest.raises(ImportModelError, match=r"attributes of `com\.example\.SquarePlus`: b, got"):
        import_onnx(network(square_plus(c=1.0)))
    with pytest.raises(ImportModelError, match="a number for attribute `b`, got `two`"):
        import_onnx(network(square_plus(b="two")))


def test_a_model_with_an_unknown_operator_is_told_what_to_do() -> None:
    REGISTERED.clear()
    with pytest.raises(TilewrightError, match=r"or register them with `tilewright.register_op"):
        import_onnx(network(square_plus()))

"""Networks of narrow floats are computed in float32, with the same inputs and outputs."""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate, verify
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.passes import widen_floats
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

from .onnx_models import model, node, run_onnxruntime, value

GENERATOR = np.random.default_rng(0)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(DTYPES[dtype])


def types(graph: Graph) -> set[str]:
    """Types of what nodes compute, except for outputs."""
    shown = {output.value for output in graph.outputs}
    return {v.type.dtype for n in graph.nodes for v in n.outputs if v.name not in shown}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_network_is_computed_in_float32(dtype: str) -> None:
    builder = Builder("net", [Value("x", TensorType(dtype, (1, 3, 8, 8)))])
    w = builder.constant(drawn(dtype, 4, 3, 3, 3), "w")
    y = builder.emit(ops.Conv((1, 1), (1,) * 4, (1, 1), 1), ["x", w])
    y = builder.emit(ops.Unary("Relu"), [y])
    mean = builder.emit(ops.Reduce("ReduceMean", (2, 3), False), [y])
    graph = builder.graph([Output("y", mean), Output("all", y)])
    widened = verify(widen_floats(graph))
    assert types(widened) == {"float32"}
    inputs = {"x": drawn(dtype, 1, 3, 8, 8)}
    found, expected = evaluate(widened, inputs), evaluate(graph, inputs)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        close = {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
        np.testing.assert_allclose(found[name].astype(float), array.astype(float), close, close)


def test_numbers_beyond_the_narrow_type_stay_finite() -> None:
    builder = Builder("net", [Value("x", TensorType("float16", (2,)))])
    large = builder.constant(np.full(2, 60000, np.float16))
    y = builder.emit(ops.Binary("Sub"), [builder.emit(ops.Binary("Add"), ["x", large]), large])
    graph = builder.graph([Output("y", y)])
    x = np.array([60000, 2], np.float16)
    np.testing.assert_array_equal(evaluate(widen_floats(graph), {"x": x})["y"], x)


def test_numbers_are_quantised_as_before() -> None:
    builder = Builder("net", [Value("x", TensorType("float16", (64,)))])
    scale = builder.constant(np.array(0.0123, np.float16), "scale")
    integers = builder.emit(ops.GeneralQuantize(0, 0, "int8"), ["x", scale])
    y = builder.emit(ops.GeneralDequantize(0, 0, "float16"), [integers, scale])
    graph = builder.graph([Output("q", integers), Output("y", y)])
    inputs = {"x": drawn("float16", 64)}
    widened = verify(widen_floats(graph))
    assert types(widened) == {"float32"}
    found, expected = evaluate(widened, inputs), evaluate(graph, inputs)
    np.testing.assert_array_equal(found["q"], expected["q"])
    np.testing.assert_allclose(found["y"].astype(float), expected["y"].astype(float), 1e-3)


def test_an_operator_of_the_reference_keeps_its_types() -> None:
    builder = Builder("net", [Value("x", TensorType("float16", (2, 3)))])
    results = ((0, "float16", (2, 3)),)
    attributes = (("axis", -1), ("p", 2))
    operator = ops.OnnxReference("", "LpNormalization", 20, attributes, (True,), results)
    (y,) = builder.emit_outputs(operator, [builder.emit(ops.Unary("Abs"), ["x"])], "norm", ["n"])
    graph = builder.graph([Output("y", builder.emit(ops.Unary("Neg"), [y]))])
    widened = verify(widen_floats(graph))
    assert types(widened) == {"float16", "float32"}
    inputs = {"x": drawn("float16", 2, 3)}
    found, expected = evaluate(widened, inputs)["y"], evaluate(graph, inputs)["y"]
    np.testing.assert_array_equal(found, expected)


def test_casts_between_floats_are_dropped() -> None:
    builder = Builder("net", [Value("x", TensorType("float32", (4,)))])
    y = builder.emit(ops.Cast("float16"), ["x"])
    y = builder.emit(ops.Unary("Sqrt"), [y])
    whole = builder.emit(ops.Cast("int32"), [y])
    y = builder.emit(ops.Cast("float32"), [y])
    graph = builder.graph([Output("y", y), Output("whole", whole)])
    widened = verify(widen_floats(graph))
    assert [node.op for node in widened.nodes] == ["unary", "cast"]


def test_casts_have_the_names_of_what_they_give() -> None:
    builder = Builder("net", [Value("x", TensorType("float16", (4,)))])
    held = builder.constant(drawn("float16", 4), "x.cast")
    total = builder.emit(ops.Binary("Add"), ["x", held], "sum")
    y = builder.emit(ops.Cast("float32"), [total], "wide", "wide")
    y = builder.emit(ops.Unary("Sqrt"), [y], "root")
    graph = builder.graph([Output("y", builder.emit(ops.Cast("float16"), [y], "y", "y"))])
    widened = verify(widen_floats(graph))
    assert [node.name for node in widened.nodes] == ["x", "sum", "root", "y"]


def test_a_network_without_them_stays() -> None:
    builder = Builder("net", [Value("x", TensorType("float32", (4,)))])
    graph = builder.graph([Output("y", builder.emit(ops.Unary("Relu"), ["x"]))])
    assert widen_floats(graph) is graph


def test_a_float16_network_runs_in_machine_code() -> None:
    held = {"w": drawn("float16", 8, 4, 3, 3), "g": drawn("float16", 8 * 16 * 16, 5) / 16}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Sigmoid", ["a"], ["b"]),
        node("Flatten", ["b"], ["c"]),
        node("MatMul", ["c", "g"], ["y"]),
    ]
    proto = model(nodes, [value("x", np.float16, (1, 4, 16, 16))], ["y"], held)
    graph = import_model(proto.SerializeToString())
    x = drawn("float16", 1, 4, 16, 16)
    with open_device("sim", PRESETS["8x16"]) as sim:
        ran = Session(compile_module(graph, PRESETS["8x16"]), sim).run({"x": x})
    assert len(ran.host.kernels) >= 2
    got, expected = ran.outputs["y"], run_onnxruntime(proto, {"x": x})["y"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), expected.astype(float), atol=0.02)

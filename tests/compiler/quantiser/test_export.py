"""Exported graphs: valid ONNX, read back to the same, and the same bits in ONNX Runtime."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Constant, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser import make_batches, quantise
from tilewright.errors import CompileError

from ..onnx_models import run_onnxruntime
from .networks import small_network


def run(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime gives for the file as it is written."""
    return list(run_onnxruntime(proto, inputs, optimise=False).values())


def test_a_quantised_network_has_the_same_bits_everywhere() -> None:
    net, output = small_network()
    graph = net.graph(output)
    result = quantise(graph, make_batches(graph, net.inputs(24)))
    proto = export_onnx(result.graph)
    onnx.checker.check_model(proto, full_check=True)
    read = import_model(proto.SerializeToString())
    integer = result.integer_graph()
    (end,) = (node for node in integer.nodes if node.op == "dequantize")
    for sample in net.inputs(20, seed=7)["x"]:
        ours = evaluate(integer, {"x": sample}, [end.output.name])
        (other,) = evaluate(read, {"x": sample}).values()
        np.testing.assert_array_equal(ours[output], other)
        (expected,) = run(proto, {"x": sample})
        np.testing.assert_allclose(ours[output], expected, atol=1e-6)


SHAPES = {
    "image": TensorType("float32", (1, 4, 6, 6)),
    "matrix": TensorType("float32", (3, 4)),
}

OPERATORS: list[tuple[ops.Operator, str]] = [
    (ops.Quantize((0.1,), (3,), "uint8"), "image"),
    (ops.Quantize((0.1, 0.2, 0.3, 0.4), (0, 1, 2, 3), "int8", 1), "image"),
    (ops.Reshape((2, 72)), "image"),
    (ops.Transpose((0, 2, 3, 1)), "image"),
    (ops.Pad((0, 0, 1, 2), (0, 0, 3, 0), 1.5), "image"),
    (ops.Slice((0, 1, 0, 1), (1, 4, 6, 6), (1, 1, 2, 3)), "image"),
    (ops.Cast("int32"), "matrix"),
    (ops.Expand((2, 3, 4)), "matrix"),
    (ops.MaxPool((3, 3), (2, 1), (1, 1, 1, 0), (1, 2)), "image"),
    (ops.AveragePool((3, 3), (2, 2), (1, 1, 1, 1), True), "image"),
    (ops.AveragePool((3, 3), (2, 2), (0, 0, 0, 0), False, (1, 1)), "image"),
    *((ops.Unary(kind), "matrix") for kind in ("Relu", "Sigmoid", "HardSwish", "Erf", "Tanh")),
    (ops.Unary("Clip", (-0.5, 0.25)), "matrix"),
    (ops.Unary("GeluTanh"), "matrix"),
    (ops.Unary("Shrink", (0.125, 0.5)), "matrix"),
    (ops.Unary("LeakyRelu", (0.125,)), "matrix"),
    (ops.Unary("HardSigmoid", (0.25, 0.5)), "matrix"),
    (ops.Softmax(1, 2), "matrix"),
    (ops.Softmax(1, 4, log=True), "image"),
    (ops.Reduce("ReduceMean", (2, 3), False), "image"),
    (ops.Reduce("ReduceMax", (1,), True), "image"),
    (ops.Reduce("ArgMax", (1,), False), "matrix"),
    (ops.Reduce("LastArgMin", (1,), True), "matrix"),
]


@pytest.mark.parametrize(("operator", "kind"), OPERATORS, ids=lambda each: str(each)[:40])
def test_each_operator_means_the_same_outside(operator: ops.Operator, kind: str) -> None:
    builder = Builder("one", [Value("x", SHAPES[kind])])
    graph = builder.graph([Output("y", builder.emit(operator, ["x"]))])
    proto = export_onnx(graph)
    onnx.checker.check_model(proto)
    x = np.random.default_rng(0).standard_normal(SHAPES[kind].shape).astype(np.float32)
    expected = evaluate(graph, {"x": x})["y"]
    (got,) = run(proto, {"x": x})
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    again = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-6)


def test_operators_of_several_operands_mean_the_same_outside() -> None:
    random = np.random.default_rng(0)
    builder = Builder("several", [Value("x", SHAPES["image"])])
    w = builder.constant(random.standard_normal((6, 2, 3, 3)).astype(np.float32), "w")
    b = builder.constant(random.standard_normal(6).astype(np.float32), "b")
    m = builder.constant(random.standard_normal((4, 5)).astype(np.float32), "m")
    i = builder.constant(np.array([2, 0]), "i")
    x = builder.emit(ops.Conv((2, 1), (1, 0, 1, 1), (1, 1), 2), ["x", w, b], "same")
    x = builder.emit(ops.Concat(1), [x, x], "same")
    x = builder.emit(ops.Gather(3), [x, i], "same")
    x = builder.emit(ops.Reshape((18, 4)), [x], "same")
    y = builder.emit(ops.MatMul(), [x, m], "same")
    y = builder.emit(
        ops.Binary("Max"), [y, builder.constant(np.array([0.5], np.float32), "c")], "same"
    )
    graph = builder.graph([Output("y", y), Output("y again", y), Output("given", "x")])
    inputs = {"x": random.standard_normal((1, 4, 6, 6)).astype(np.float32)}
    proto = export_onnx(graph)
    onnx.checker.check_model(proto)
    for got, expected in zip(run(proto, inputs), evaluate(graph, inputs).values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def assert_same_outside(graph: Graph) -> None:
    """Compare all outputs with ONNX Runtime's, and with those of the graph that is read back."""
    random = np.random.default_rng(5)
    inputs = {
        value.name: random.standard_normal(value.type.shape).astype(np.float32)
        for value in graph.inputs
    }
    proto = export_onnx(graph)
    onnx.checker.check_model(proto)
    expected = list(evaluate(graph, inputs).values())
    again = list(evaluate(import_onnx(proto.SerializeToString()), inputs).values())
    for others in (run(proto, inputs), again):
        for got, wanted in zip(others, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def drawn(builder: Builder, *shape: int) -> str:
    """Add a constant of random numbers."""
    random = np.random.default_rng(len(builder.constants))
    return builder.constant(random.standard_normal(shape).astype(np.float32))


def test_resizing_and_transposed_convolutions_mean_the_same_outside() -> None:
    builder = Builder("decoder", [Value("x", SHAPES["image"])])
    operator = ops.ConvTranspose((2, 1), (1, 0, 0, 1), (1, 2), (1, 0), 2)
    x = builder.emit(operator, ["x", drawn(builder, 4, 3, 3, 2), drawn(builder, 6)])
    places = builder.constant(np.array([[0, 1], [1, 2], [2, 3], [5, 5]]))
    x = builder.emit(ops.Interpolate(2), [x, places, drawn(builder, 4, 2)])
    assert_same_outside(builder.graph([Output("y", x)]))


def test_an_update_at_indices_means_the_same_outside() -> None:
    builder = Builder("update", [Value("x", SHAPES["matrix"])])
    rows = builder.constant(np.array([[2], [0]]))
    x = builder.emit(ops.ScatterND("add"), ["x", rows, drawn(builder, 2, 4)])
    assert_same_outside(builder.graph([Output("y", x)]))


def test_indexing_and_rare_operators_mean_the_same_outside() -> None:
    """As in networks of text: positions by a running sum, a mask, and the last word's row."""
    read = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]>
        rare (float[3, 4] x)
            => (float[2] y, float[3, 4] z, float[3, 4] w, float[2, 3, 4] e, float[3, 4] t)
        <int64[2, 2] rows = {0, 3, 2, 1},
         int64[3, 4] columns = {3, 2, 1, 0, 0, 1, 2, 3, 1, 1, 0, 0},
         int64 one = {1}, float zero = {0}, int64[3] shape = {2, 1, 1},
         int64[3] lengths = {4, 2, 3}>
        {
            y = GatherND (x, rows)
            g = GatherElements <axis = 1> (x, columns)
            z = CumSum <reverse = 1> (g, one)
            m = Greater (x, zero)
            w = Where (m, x, z)
            e = Expand (w, shape)
            t = ReverseSequence <batch_axis = 0, time_axis = 1> (x, lengths)
        }"""
    )
    assert_same_outside(import_onnx(read.SerializeToString()))


def test_samples_mean_the_same_outside() -> None:
    builder = Builder("samples", [Value("x", SHAPES["image"])])
    points = [[[-1.2, 0.3], [0.1, 0.9]], [[0.0, -0.5], [1.4, 1.0]]]
    grid = builder.constant(np.array([points], np.float32))
    boxes = builder.constant(np.array([[0, 1, 4, 5], [1, 0, 2, 3]], np.float32))
    images = builder.constant(np.zeros(2, np.int64))
    outputs = []
    for mode, padding in (("linear", "zeros"), ("cubic", "reflection"), ("nearest", "border")):
        operator = ops.GridSample(mode, padding, mode == "cubic")
        outputs.append(Output(mode, builder.emit(operator, ["x", grid], mode)))
    for half_pixel in (False, True):
        operator, name = ops.RoiAlign("avg", (2, 3), 2, 0.5, half_pixel), f"boxes{half_pixel}"
        outputs.append(Output(name, builder.emit(operator, ["x", boxes, images], name)))
    assert_same_outside(builder.graph(outputs))


def test_an_operator_of_another_version_is_refused() -> None:
    """`version` names an operator set; GridSample's modes have other names since 20."""
    builder = Builder("old", [Value("x", SHAPES["image"])])
    operator = ops.OnnxReference(
        "", "GridSample", 16, (), (True, True), ((0, "float32", (1, 4, 2, 2)),)
    )
    grid = builder.constant(np.zeros((1, 2, 2, 2), np.float32))
    (y,) = builder.emit_outputs(operator, ["x", grid], "sampled", ["y"])
    with pytest.raises(CompileError, match="node `sampled`: expected an operator that ONNX export"):
        export_onnx(builder.graph([Output("y", y)]))


@pytest.mark.parametrize(
    ("kind", "activations", "flags"),
    [
        ("GRU", (("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0)), {"linear_before_reset": True}),
        ("RNN", (("LeakyRelu", 0.25, 0.0),), {"clip": 3.0}),
        ("LSTM", (("HardSigmoid", 0.25, 0.5), ("Tanh", 0.0, 0.0), ("Tanh", 0.0, 0.0)), {}),
        ("LSTM", (("LeakyRelu", 0.1, 0.0), ("Affine", 0.5, 0.75), ("Elu", 0.25, 0.0)), {}),
    ],
)
def test_recurrent_layers_mean_the_same_outside(kind, activations, flags) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    builder = Builder("recurrent", [Value("x", TensorType("float32", (5, 2, 3)))])
    operands = [drawn(builder, 1, gates * 4, n) for n in (3, 4)]
    operands += [drawn(builder, 1, 2 * gates * 4), builder.constant(np.array([5, 3], np.int32))]
    operands += [drawn(builder, 1, 2, 4)]
    operands += [drawn(builder, 1, 2, 4), drawn(builder, 1, 12)] if kind == "LSTM" else []
    operator = ops.Recurrent(kind, "forward", activations, **flags)
    names = ["all", "last", "cell"][: 3 if kind == "LSTM" else 2]
    values = builder.emit_outputs(operator, ["x", *operands], "layer", names)
    assert_same_outside(builder.graph([Output(name, name) for name in values]))


def test_a_layer_with_weights_of_bytes_is_written_with_floats() -> None:
    chance = np.random.default_rng(0)
    builder = Builder("bytes", [Value("x", TensorType("float32", (5, 2, 3)))])
    weights = [
        builder.constant(chance.integers(-127, 128, (1, 12, n)).astype(np.int8)) for n in (3, 4)
    ]
    operands = [drawn(builder, 1, 24), builder.constant(np.array([5, 3], np.int32))]
    operands += [drawn(builder, 1, 2, 4)]
    scales = [builder.constant(chance.uniform(0.001, 0.01, (1, 12)).astype("f4")) for _ in weights]
    operator = ops.Recurrent("GRU", "forward", (("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0)))
    values = builder.emit_outputs(
        operator, ["x", *weights, *operands, *scales], "layer", ["a", "l"]
    )
    assert_same_outside(builder.graph([Output(name, name) for name in values]))


def test_a_remainder_means_the_same_outside() -> None:
    builder = Builder("remainder", [Value("x", SHAPES["matrix"])])
    divisor = builder.constant(np.array([0.75], np.float32), "divisor")
    rest = builder.emit(ops.Binary("FMod"), ["x", divisor])
    graph = builder.graph([Output("y", rest)])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (got,) = run(export_onnx(graph), {"x": x})
    np.testing.assert_allclose(got, np.fmod(x, np.float32(0.75)), atol=1e-6)


def test_a_value_with_the_name_of_an_output_gives_way() -> None:
    builder = Builder("names", [Value("x", SHAPES["matrix"])])
    builder.emit(ops.Unary("Relu"), ["x"], name="y")
    shown = builder.emit(ops.Unary("Neg"), ["y"], name="inner")
    graph = builder.graph([Output("y", shown)])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (got,) = run(export_onnx(graph), {"x": x})
    np.testing.assert_array_equal(got, -np.maximum(x, 0))


def test_integer_layers_are_refused() -> None:
    table = Constant("table", np.zeros(256, np.int8))
    builder = Builder("integers", [Value("x", TensorType("int8", (1, 2, 2, 4)))])
    builder.adopt(table)
    graph: Graph = builder.graph([Output("y", builder.emit(ops.QLut(), ["x", "table"], "lut"))])
    with pytest.raises(CompileError) as refusal:
        export_onnx(graph)
    assert str(refusal.value) == (
        "graph `integers`: node `lut`: expected an operator that ONNX export knows, got `qlut`; "
        "export the graph as it was imported, or run the model with `--calibrate`"
    )

"""Forms of NNCF's, Quark's and PyTorch's files that other quantisers do not write."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QAvgPool, QConv, evaluate, is_accelerated
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ImportModelError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.compare import Comparison
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import run_onnxruntime
from .test_constant_operands import Model, agree, operators

IMAGE = (1, 4, 6, 6)


def layers(graph: Graph) -> int:
    return sum(isinstance(made.attributes, QConv) for made in graph.nodes)


def convolution(built: Model, x: str, *shape: int, **attributes) -> str:
    weights = built.weights(*shape, axis=0)
    return built.node("Conv", [x, weights], pads=[shape[2] // 2] * 4, **attributes)


# Nodes in any order: Quark -----------------------------------------------------------------------


def test_nodes_stand_in_any_order():
    """As in ONNX Runtime; Quark puts the parts of an average behind their reader."""
    built = Model()
    x = built.quantised(convolution(built, built.quantised("x"), 5, 4, 3, 3))
    usual = built.made([built.quantised(convolution(built, x, 6, 5, 1, 1))], x=IMAGE)
    expected = import_model(usual.SerializeToString())
    given = {"x": np.random.default_rng(1).normal(size=IMAGE).astype(np.float32)}
    for seed in range(5):
        proto = onnx.ModelProto.FromString(usual.SerializeToString())
        order = np.random.default_rng(seed).permutation(len(built.nodes))
        del proto.graph.node[:]
        proto.graph.node.extend([built.nodes[place] for place in order])
        graph = import_model(proto.SerializeToString())
        assert layers(graph) == 2
        both = (evaluate(each, given).values() for each in (graph, expected))
        for one, other in zip(*both, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_cycle_is_refused():
    built = Model()
    first = built.node("Add", ["x", "Relu1.0"])
    proto = built.made([built.node("Relu", [first])], x=IMAGE)
    with pytest.raises(ImportModelError, match=r"expected input `Relu1\.0` to be an initialiser"):
        import_model(proto.SerializeToString())


# Scales of weights: NNCF -------------------------------------------------------------------------


def weights(built: Model, kind: str, scales: np.ndarray, zero: int) -> str:
    ends = np.iinfo(kind)
    drawn = built.numbers.integers(-60, 61, (5, 4, 3, 3)) + zero
    drawn[:, 0, 0] = ends.min, 0, ends.max  # their negatives do not fit
    held = [
        *(built.hold(drawn.astype(kind), "w"), built.hold(scales, "s")),
        built.hold(np.full(scales.shape, zero, kind), "z"),
    ]
    return built.node("DequantizeLinear", held, **({"axis": 0} if scales.ndim else {}))


@pytest.mark.parametrize(("kind", "zero"), [("int8", 0), ("uint8", 128), ("int8", -7)])
@pytest.mark.parametrize("signs", [(-1, 1, -1, -1, 1), -1])
def test_scales_of_weights_may_be_negative(kind, zero, signs):
    """NNCF's symmetric weights have the sign of the value that is furthest from 0."""
    built = Model()
    scales = (0.006 * np.array(signs)).astype(np.float32)
    w = weights(built, kind, scales, zero)
    y = built.quantised(built.node("Conv", [built.quantised("x"), w], pads=[1] * 4))
    graph = agree(built.made([y], x=IMAGE), most_apart=1)
    assert layers(graph) == 1
    assert operators(graph) <= {"qconv", "quantize", "dequantize", "transpose"}


def test_scales_of_weights_may_have_ones_behind():
    graphs = []
    for shape in ((5,), (5, 1, 1)):
        built = Model()
        w = weights(built, "int8", np.linspace(0.004, 0.006, 5, dtype=np.float32).reshape(shape), 0)
        y = built.quantised(built.node("Conv", [built.quantised("x"), w], pads=[1] * 4))
        graphs.append(import_model(built.made([y], x=IMAGE).SerializeToString()))
    given = {"x": np.random.default_rng(1).normal(size=IMAGE).astype(np.float32)}
    for one, other in zip(*(evaluate(graph, given).values() for graph in graphs), strict=True):
        np.testing.assert_array_equal(one, other)


# Activations by channel: NNCF --------------------------------------------------------------------


def by_channel(built: Model, x: str, scales: np.ndarray, zeros: np.ndarray) -> str:
    held = [built.hold(scales.astype(np.float32), "scale"), built.hold(zeros, "zero")]
    return built.node(
        "DequantizeLinear", [built.node("QuantizeLinear", [x, *held], axis=1), *held], axis=1
    )


SCALES = np.array([0.003, 0.011, 0.02, 0.007])


@pytest.mark.parametrize(
    ("zero", "multiplier", "activation"),
    [(np.uint8(0), 1, "Relu"), (np.int8(0), 2, None), (np.int8(-9), 1, None)],
)
def test_a_depthwise_convolution_reads_channels_with_their_own_scales(zero, multiplier, activation):
    """NNCF quantises only the inputs of depthwise convolutions by channel."""
    built = Model()
    x = convolution(built, built.quantised("x"), 4, 4, 3, 3)
    x = x if activation is None else built.node(activation, [x])
    x = by_channel(built, x, SCALES, np.full(4, zero))
    x = convolution(built, x, 4 * multiplier, 1, 3, 3, group=4)
    graph = agree(built.made([built.quantised(x)], x=IMAGE), most_apart=1)
    assert layers(graph) == 2
    assert operators(graph) <= {"qconv", "quantize", "dequantize", "transpose"}


def test_channels_with_their_own_scales_are_also_read_in_float():
    built = Model()
    x = convolution(built, built.quantised("x"), 4, 4, 1, 1)
    x = by_channel(built, x, SCALES, np.zeros(4, np.int8))
    y = convolution(built, x, 4, 1, 3, 3, group=4)
    y = built.quantised(built.node("Add", [built.quantised(y), x]))
    graph = agree(built.made([y], x=IMAGE), most_apart=1)
    assert layers(graph) == 2
    assert "binary" in operators(graph)


@pytest.mark.parametrize(
    ("zeros", "high", "group", "found"),
    [
        (np.array([0, 1, 0, 0], np.int8), 9, 4, 0),
        (np.zeros(4, np.int8), 1, 4, 1),  # the channels' limits differ
        (np.zeros(4, np.int8), 9, 1, 1),  # scales that the sums do not share
        (np.zeros(4, np.int8), 9, 2, 1),
    ],
)
def test_channels_that_have_more_of_their_own_stay_in_float(zeros, high, group, found):
    built = Model()
    ends = [built.hold(np.float32(end), "end") for end in (-high, high)]
    x = built.node("Clip", [convolution(built, built.quantised("x"), 4, 4, 3, 3), *ends])
    x = convolution(built, by_channel(built, x, SCALES, zeros), 4, 4 // group, 3, 3, group=group)
    graph = agree(built.made([built.quantised(x)], x=IMAGE), most_apart=1)
    assert layers(graph) == found


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("strides", "pads"), [((1, 1), (1, 1, 1, 1)), ((2, 1), (0, 2, 1, 0))])
def test_channels_with_zero_points_of_their_own_leave_as_sums(signed, strides, pads):
    """NNCF's mixed preset after SiLU: windows at the border contain fewer zero points."""
    built = Model()
    x = built.node("Mul", ["x", built.node("Sigmoid", ["x"])])
    zeros = np.array([-128, 127, -90, 3]) + (0 if signed else 128)
    x = by_channel(built, x, SCALES, zeros.astype(np.int8 if signed else np.uint8))
    w = built.weights(8, 1, 3, 3, axis=0)
    y = built.node("Conv", [x, w], group=4, strides=strides, pads=pads)
    graph = agree(built.made([built.quantised(y)], x=(2, *IMAGE[1:])), most_apart=1)
    assert "qsums" in operators(graph)
    assert compile_module(graph, PRESETS["8x8"]).report["host_products"] == []


# Averages times a number: Quark ------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.0078125, 0.75, -1.0])
def test_an_average_times_a_number_is_a_pool(factor):
    """Quark imitates processors that divide by shifts."""
    built = Model()
    x = built.quantised(convolution(built, built.quantised("x"), 4, 4, 1, 1), 0.02)
    mean = built.node("GlobalAveragePool", [x])
    scaled = built.node("Mul", [mean, built.hold(np.float32(factor), "factor")])
    graph = agree(built.made([built.quantised(scaled, 0.01)], x=(2, *IMAGE[1:])), most_apart=1)
    pools = [made for made in graph.nodes if isinstance(made.attributes, QAvgPool)]
    assert bool(pools) == (factor > 0)


# Scales that are computed: Paddle2ONNX -----------------------------------------------------------


def test_scales_and_zero_points_may_be_computed_from_constants():
    """Paddle2ONNX divides a range by the largest integer, and casts zero points."""
    built = Model()

    def quantised(x: str, largest: float) -> str:
        ends = [built.hold(np.float32(number), "end") for number in (largest, 127)]
        zero = built.hold(np.float32(0), "zero")
        zero = built.node("Cast", [zero], to=onnx.TensorProto.INT8)
        held = [built.node("Div", ends), zero]
        return built.node("DequantizeLinear", [built.node("QuantizeLinear", [x, *held]), *held])

    y = quantised(convolution(built, quantised("x", 6.0), 5, 4, 3, 3), 6.0)
    assert layers(agree(built.made([y], x=IMAGE), most_apart=1)) == 1


# ONNX Runtime's own operators --------------------------------------------------------------------


def test_qlinear_where_is_a_choice_of_quantised_values():
    built = Model()
    mask = built.hold(np.arange(8) % 3 > 0, "mask")
    held = [
        [built.hold(np.float32(s), "s"), built.hold(np.int8(z), "z")]
        for s, z in ((0.05, -3), (0.02, 7), (0.04, 0))
    ]
    chosen = [built.node("QuantizeLinear", ["x", *each]) for each in held[:2]]
    operands = [mask, chosen[0], *held[0], chosen[1], *held[1], *held[2]]
    y = built.node("QLinearWhere", operands, domain="com.microsoft")
    agree(built.made([built.node("DequantizeLinear", [y, *held[2]])], x=(3, 8)), most_apart=1)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_dynamic_quantize_matmul_is_a_product_with_scales_of_each_run(zero, bias):
    """Olive and ONNX Runtime's optimiser write it for dynamically quantised transformers."""
    built = Model()
    operands = [
        built.hold(built.numbers.integers(-60, 61, (8, 5)).astype(np.int8), "w"),
        built.hold(np.linspace(0.01, 0.02, 5, dtype=np.float32), "scale"),
        built.hold(np.arange(-2, 3).astype(np.int8), "zero") if zero else "",
        *([built.hold(built.numbers.normal(size=5).astype(np.float32), "bias")] if bias else []),
    ]
    y = built.node("DynamicQuantizeMatMul", ["x", *operands], domain="com.microsoft")
    proto = built.made([y], x=(2, 3, 8))
    graph = import_model(proto.SerializeToString())
    given = {"x": np.random.default_rng(3).normal(size=(2, 3, 8)).astype(np.float32)}
    (expected,) = run_onnxruntime(proto, given).values()
    (got,) = evaluate(graph, given).values()
    np.testing.assert_allclose(got, expected, atol=1e-5)


# Steps in float: PyTorch's PT2E ------------------------------------------------------------------


def excited() -> onnx.ModelProto:
    """Squeeze-and-excite as PT2E's XNNPACK quantiser leaves it: the mean and GELU read floats."""
    built = Model()
    x = built.quantised(convolution(built, built.quantised("x"), 8, 4, 3, 3))
    x = built.node("Mul", [x, built.node("Sigmoid", [x])])
    mean = built.quantised(built.node("GlobalAveragePool", [x]), 0.002)
    gate = built.quantised(convolution(built, mean, 8, 8, 1, 1), 0.002)
    gate = built.quantised(built.node("Sigmoid", [gate]), 1 / 255, -128)
    y = built.quantised(built.node("Mul", [built.quantised(x, 0.02), gate]), 0.02)
    y = built.node("Gelu", [built.quantised(convolution(built, y, 6, 8, 1, 1), 0.02)])
    y = convolution(built, y, 3, 6, 3, 3)
    proto = built.made([y], x=(1, 4, 12, 12))
    proto.opset_import[0].version = 21
    return proto


@pytest.mark.processor
def test_steps_in_float_are_near_their_definition_and_all_others_equal_it():
    """Float sums may have another order on the host, which a quantisation behind may not hide."""
    graph, configuration = import_model(excited().SerializeToString()), PRESETS["8x8"]
    given = {"x": np.random.default_rng(4).normal(size=(1, 4, 12, 12)).astype(np.float32)}
    module = compile_module(graph, configuration, keep_all=True)
    (expected,) = evaluate(module.graph, given).values()
    with open_device("sim", configuration) as device:
        (plain,) = Session(module, device, least_work=None).run(given).outputs.values()
        run = Session(module, device, keep_all=True).run(given)
    np.testing.assert_array_equal(plain, expected)  # without kernels, each step is its definition
    comparison = Comparison(module)
    comparison.add(given, run)
    tallies = [*comparison.layers.values(), *comparison.kernels.values()]
    assert [tally.first for tally in tallies if tally.differing] == []
    assert all(tally.tolerance == 0 for tally in comparison.layers.values())
    assert any(tally.tolerance > 0 for tally in comparison.kernels.values())
    inexact = {"conv", "averagepool", "unary", "binary", "dequantize"}
    assert inexact >= {
        made.op for made in module.graph.nodes if not is_accelerated(made) and made.op != "quantize"
    } - {"transpose", "reshape"}

"""Weights of nine bits, as uint8 ones have once their zero point is subtracted."""

import math
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime import quantization

from tilewright import Accelerator, lower, schedule_kernel, te
from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.wide_weights import int8_parts
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConv,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
)
from tilewright.compiler.graph.macs import macs_of
from tilewright.compiler.graph.operators import Dequantize
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import STRICT_PLACEMENT, Placement
from tilewright.compiler.quantiser import accelerated_share
from tilewright.compiler.scheduling.fusion import fuse
from tilewright.compiler.te.box import extents_of
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.instructions import Gemm, Instruction
from tilewright.isa.numbers import int8_terms
from tilewright.runtime import Session, open_device
from tilewright.sim.timing import ExactMeasure

from .onnx_models import model, node, run_onnxruntime, value
from .quantiser.networks import Net

SCALES = {
    "xs": np.float32(0.02),
    "xz": np.uint8(120),
    "ws": np.float32(0.01),
    "ys": np.float32(0.2),
    "yz": np.uint8(130),
}


@given(st.lists(st.integers(-255, 255), min_size=1, max_size=8))
def test_terms_add_up(numbers):
    weights = np.array(numbers, np.int16)
    terms = int8_terms(weights)
    assert all(term.dtype == np.int8 for term in terms)
    np.testing.assert_array_equal(sum(term.astype(np.int16) for term in terms), weights)
    assert len(terms) == 1 or np.abs(weights).max() > 127
    assert len(terms) < 3 or weights.max() == 255


def convolution(zero_point: int, channels: int = 5, groups: int = 1, depth: int = 6, **attributes):
    """A QLinearConv with uint8 weights, and its input."""
    random = np.random.default_rng(zero_point)
    w = random.integers(0, 256, (channels, depth // groups, 3, 3)).astype(np.uint8)
    w[0, 0, 0, :2] = 0, 255
    held = {**SCALES, "w": w, "wz": np.uint8(zero_point)}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("QLinearConv", names, ["y"], pads=[1, 1, 2, 1], group=groups, **attributes)]
    proto = model(nodes, [value("x", np.uint8, [1, depth, 8, 9])], ["y"], held)
    return proto, random.integers(0, 256, (1, depth, 8, 9)).astype(np.uint8)


def layers_of(graph):
    return [node for node in graph.nodes if isinstance(node.attributes, QConv)]


def assert_exact_on_sim(proto, x):
    """Compare the simulator with the definition and with ONNX Runtime; return the graph."""
    graph = import_model(proto.SerializeToString())
    with open_device("sim", DEFAULT) as device:
        (ours,) = Session(compile_module(graph, DEFAULT), device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])
    np.testing.assert_array_equal(ours, run_onnxruntime(proto, {"x": x}, optimise=False)["y"])
    return graph


@pytest.mark.parametrize("zero_point", [128, 127, 150, 255, 1, 0])
def test_any_zero_point_of_weights_is_exact(zero_point):
    proto, x = convolution(zero_point)
    graph = assert_exact_on_sim(proto, x)
    (layer,) = layers_of(graph)
    kind = graph.types[layer.inputs[1]]
    assert kind.shape == (3, 3, 6, 5)
    assert kind.dtype == ("int8" if zero_point == 128 else "int16")
    assert macs_of(graph, layer) == 9 * 9 * 5 * 6 * 9, "of the model's own weights"


@pytest.mark.parametrize(
    ("groups", "attributes"),
    [
        (6, {}),
        (6, {"strides": [2, 2]}),
        (6, {"dilations": [2, 1]}),
        (6, {"dilations": [1, 2], "strides": [2, 1]}),
        (6, {"dilations": [2, 2]}),
        (2, {}),
        (1, {"strides": [2, 1]}),
    ],
    ids=["depthwise", "strides", "dilated rows", "dilated columns", "dilated", "groups", "dense"],
)
def test_nine_bits_run_on_the_accelerator(groups, attributes):
    proto, x = convolution(0, channels=6, groups=groups, **attributes)
    graph = assert_exact_on_sim(proto, x)
    (layer,) = layers_of(graph)
    pixels, channels = np.prod(layer.output.type.shape[1:3]), 6
    assert macs_of(graph, layer) == pixels * channels * 9 * 6 // groups


@pytest.mark.parametrize(
    ("groups", "dilations"), [(1, [1, 1]), (6, [2, 2])], ids=["dense", "dilated"]
)
def test_the_host_multiplies_copies_by_eight_bits(groups, dilations):
    proto, x = convolution(150, channels=6, groups=groups, dilations=dilations)
    graph = import_model(proto.SerializeToString())
    module = compile_module(graph, DEFAULT, placement=Placement("host"))
    assert not module.segments
    assert not any(constant.type.dtype == "int16" for constant in module.graph.constants)
    operators = (layer.attributes for layer in layers_of(module.graph))
    assert any(isinstance(operator, QConv) and operator.spare for operator in operators)
    with open_device("host", DEFAULT) as device:
        (ours,) = Session(module, device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])


def two_layers(lowest: int, height: int, width: int) -> onnx.ModelProto:
    """A 1x1 and a 3x3 convolution whose weights are between 100 and 200, but for two of them."""
    random = np.random.default_rng(4)
    first, second = (
        random.integers(100, 200, (48, 48, *k)).astype(np.uint8) for k in ([1] * 2, [3] * 2)
    )
    second[5, [3, 30], 1, 2] = lowest
    held = {**SCALES, "w": first, "wz": np.uint8(128), "v": second, "vz": np.uint8(140)}
    held["ws"] = np.float32(0.001)
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["h"]),
        node("QLinearConv", ["h", "ys", "yz", "v", "ws", "vz", "ys", "yz"], ["y"], pads=[1] * 4),
    ]
    return model(nodes, [value("x", np.uint8, [1, 48, height, width])], ["y"], held)


def test_only_tiles_with_wide_weights_take_a_second_product():
    x = np.random.default_rng(4).integers(0, 256, (1, 48, 20, 16)).astype(np.uint8)
    graphs = [assert_exact_on_sim(two_layers(lowest, 20, 16), x) for lowest in (12, 0)]
    modules = [compile_module(graph, DEFAULT, measure=ExactMeasure()) for graph in graphs]
    plain, wide = (gemm_steps(module.segments[0].program) for module in modules)
    assert wide - plain == 2 * 320, "two blocks of inputs, 320 pixels"
    plain, wide = (module.report["bound"] for module in modules)
    assert wide - plain == 2 * 320
    plain, wide = (module.report["cycles"] for module in modules)
    assert plain < wide < 1.05 * plain


def gemm_steps(program: Sequence[Instruction]) -> int:
    return sum(one.rows() * one.tiles() for one in program if isinstance(one, Gemm))


@pytest.mark.parametrize(("wide", "further"), [(1, 1), (6, 6), (7, 9)])
def test_single_tiles_are_multiplied_again_up_to_two_thirds_of_a_box(wide, further):
    lanes_in, lanes_out = DEFAULT.lanes_in, DEFAULT.lanes_out
    weights = np.zeros((1, 1, 3 * lanes_in, 3 * lanes_out), np.int16)
    for tile in range(wide):
        weights[0, 0, tile // 3 * lanes_in, tile % 3 * lanes_out] = 200
    (_, clipped), *rest = int8_parts(weights, None, DEFAULT)
    tiles = sum(math.prod(extents_of(box)) for box, _ in rest) // (lanes_in * lanes_out)
    assert tiles == further
    total = clipped.astype(np.int16)
    for box, term in rest:
        total[tuple(slice(*pair) for pair in box)] += term
    np.testing.assert_array_equal(total, weights)


def test_sums_that_might_not_be_rounded_exactly_are_rounded_on_the_host():
    proto, _ = convolution(0, depth=600)
    graph = import_model(proto.SerializeToString())
    assert [node.op for node in graph.nodes if is_accelerated(node)] == ["qconv"]
    for tensor in proto.graph.initializer:
        if tensor.name == "ys":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(100, np.float32), "ys"))
    graph = import_model(proto.SerializeToString())
    assert {node.op for node in graph.nodes if is_accelerated(node)} == {"qsums"}


class Calibration(quantization.CalibrationDataReader):
    """Hands images to ONNX Runtime's quantiser, one by one."""

    def __init__(self, inputs: np.ndarray) -> None:
        self.batches = iter([{"x": image} for image in inputs])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def test_a_network_of_uint8_weights_runs_on_the_accelerator(tmp_path):
    """As ONNX Runtime's quantiser writes it when asked for uint8 everywhere."""
    net = Net(3, 12, 12)
    x = net.node("Relu", net.conv("x", 8, 3))
    x = net.node("Add", x, net.node("Relu", net.conv(x, 8, 8)))
    x = net.node("Flatten", net.node("GlobalAveragePool", net.conv(x, 16, 8, strides=[2, 2])))
    output = net.node("MatMul", x, net.constant(net.random.uniform(-1, 2, (16, 5))))
    onnx.save(net.model(output), tmp_path / "float.onnx")
    images = net.inputs(8)["x"]
    quantization.quantize_static(
        *(tmp_path / "float.onnx", tmp_path / "int8.onnx", Calibration(images)),
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QUInt8,
    )
    graph = import_model(tmp_path / "int8.onnx")
    assert accelerated_share(graph) == 1
    kinds = [graph.types[layer.inputs[1]].dtype for layer in layers_of(graph)]
    assert kinds.count("int16") >= 2, "weights of nine bits"
    operators = (node.attributes for node in graph.nodes)
    *_, last = (each for each in operators if isinstance(each, Dequantize))
    proto = onnx.load(tmp_path / "int8.onnx")
    for image in images[:4]:
        ours = evaluate(graph, {"x": image})[output]
        theirs = run_onnxruntime(proto, {"x": image}, optimise=False)[output]
        assert np.abs(ours - theirs).max() < 1.01 * last.scales[0]


def layer_of(
    zeros: Sequence[int], shape: tuple[int, ...], groups: int = 1, size: int = 8, **attributes
) -> tuple[onnx.ModelProto, np.ndarray]:
    """A QLinearConv of weights over all of uint8, with zero points, and its input."""
    random = np.random.default_rng([*zeros, *shape])
    w, channels = random.integers(0, 256, shape).astype(np.uint8), shape[1] * groups
    points = np.uint8(zeros[0]) if len(zeros) == 1 else np.resize(zeros, shape[0]).astype(np.uint8)
    scale = np.broadcast_to(SCALES["ws"], np.shape(points))
    held = {**SCALES, "w": w, "wz": points, "ws": scale, "ys": np.float32(2)}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("QLinearConv", names, ["y"], group=groups, **attributes)]
    image = [1, channels, size, size]
    x = random.integers(0, 256, image).astype(np.uint8)
    return model(nodes, [value("x", np.uint8, image)], ["y"], held), x


@pytest.mark.parametrize("zeros", [(0,), (60,), (127,), (129,), (255,), (100, 117, 140)], ids=str)
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((40, 24, 3, 3), {"pads": [0, 2, 1, 0], "strides": [2, 1]}),
        ((24, 40, 3, 2), {"pads": [2, 1, 2, 1], "dilations": [1, 2], "strides": [1, 2]}),
        ((48, 130, 1, 1), {}),
        ((48, 64, 1, 1), {"strides": [2, 2]}),
        ((32, 3, 5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
        ((32, 16, 3, 3), {"pads": [1, 1, 1, 1], "groups": 2}),
        ((32, 1, 3, 3), {"pads": [1, 1, 1, 1], "groups": 32}),
    ],
    ids=["3x3", "strides", "dilated", "1x1", "strided 1x1", "image", "groups", "depthwise"],
)
def test_weights_over_all_of_uint8_are_exact(zeros, shape, attributes):
    assert_exact_on_sim(*layer_of(zeros, shape, **attributes))


@pytest.mark.parametrize("measure", [None, ExactMeasure()], ids=["estimated", "exact"])
def test_sums_of_two_layers_over_all_of_uint8_are_exact(measure):
    """Both may be parts of one kernel, each with sums of its own."""
    random = np.random.default_rng(6)
    held = {**SCALES, "wz": np.uint8(100), "ys": np.float32(2)}
    held |= {name: random.integers(0, 256, (32, 32, 3, 3)).astype(np.uint8) for name in "vw"}
    nodes = []
    for weights in "vw":
        names = ["x", "xs", "xz", weights, "ws", "wz", "ys", "yz"]
        nodes.append(node("QLinearConv", names, [f"of {weights}"], pads=[1] * 4))
        nodes.append(node("DequantizeLinear", [f"of {weights}", "ys", "yz"], [f"d{weights}"]))
    nodes.append(node("Add", ["dv", "dw"], ["sum"]))
    nodes.append(node("QuantizeLinear", ["sum", "ys", "yz"], ["y"]))
    proto = model(nodes, [value("x", np.uint8, [1, 32, 14, 14])], ["y"], held)
    x = random.integers(0, 256, (1, 32, 14, 14)).astype(np.uint8)
    graph = import_model(proto.SerializeToString())
    options = {} if measure is None else {"measure": measure}
    module = compile_module(graph, DEFAULT, placement=STRICT_PLACEMENT, **options)
    with open_device("sim", DEFAULT) as device:
        (ours,) = Session(module, device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])
    kernels = [build_kernel(layer, graph, DEFAULT) for layer in layers_of(graph)]
    fused = fuse(kernels)
    assert len({stage.output.name for stage in fused.stages}) == len(fused.stages) > 10
    assert len(fused.constants) == sum(len(kernel.constants) for kernel in kernels)


def dense(zero_point: int, depth: int, outputs: int) -> onnx.ModelProto:
    """A QLinearMatMul with one row, of weights over all of uint8."""
    w = np.random.default_rng(depth).integers(0, 256, (depth, outputs)).astype(np.uint8)
    held = {**SCALES, "w": w, "wz": np.uint8(zero_point), "ys": np.float32(2)}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("QLinearMatMul", names, ["y"])]
    return model(nodes, [value("x", np.uint8, [1, depth])], ["y"], held)


@pytest.mark.parametrize(
    ("shape", "size", "most"),
    [
        ((64, 64, 3, 3), 28, 1.1),
        ((40, 24, 3, 3), 14, 1.17),
        ((512, 512, 3, 3), 7, 1.05),
        ((256, 256, 1, 1), 14, 1.12),
        ((64, 64, 1, 1), 28, 1.28),
        ((256, 256), 1, 1.12),
        ((128, 2048), 1, 1.13),
    ],
    ids=str,
)
def test_weights_over_all_of_uint8_cost_little(shape, size, most):
    """Beside the same weights with a zero point in the middle, which fit int8."""
    cycles = []
    for zero_point in (128, 90):
        if len(shape) == 2:
            proto = dense(zero_point, *shape[::-1])
            x = np.random.default_rng(1).integers(0, 256, (1, shape[1])).astype(np.uint8)
        else:
            pads = [shape[2] // 2] * 4
            proto, x = layer_of((zero_point,), shape, size=size, pads=pads)
        graph = import_model(proto.SerializeToString())
        module = compile_module(graph, DEFAULT, measure=ExactMeasure())
        with open_device("sim", DEFAULT) as device:
            (ours,) = Session(module, device).run({"x": x}).outputs.values()
        np.testing.assert_array_equal(ours, run_onnxruntime(proto, {"x": x}, optimise=False)["y"])
        cycles.append(module.report["cycles"])
    assert cycles[0] < cycles[1] < most * cycles[0]


def random_layers(random: np.random.Generator) -> Graph:
    """One to three convolutions, each with weights beyond int8: some of them, or around a zero."""
    channels = int(random.choice([3, 16, 24]))
    height, width = map(int, random.integers(5, 12, 2))
    builder = Builder("layers", [Value("x", TensorType("int8", (1, height, width, channels)))])
    name, zero = "x", 3
    for place in range(int(random.integers(1, 4))):
        size, outputs = int(random.choice([1, 3])), int(random.choice([8, 20, 48]))
        groups = channels if place == 1 else 1
        outputs = channels if groups > 1 else outputs
        w = random.integers(-100, 101, (size, size, channels // groups, outputs)).astype(np.int16)
        wide = random.choice(w.size, int(random.choice([2, w.size // 30 + 1, w.size // 2 + 1])))
        w.reshape(-1)[wide] = random.choice([-255, -129, 128, 254, 255], len(wide))
        if random.integers(2):
            w = random.integers(0, 256, w.shape).astype(np.int16) - random.integers(256)
        constants = (
            w.astype(np.int16),
            random.integers(-3000, 3000, outputs).astype(np.int32),
            (random.uniform(0.2, 1, outputs) / 200 / np.sqrt(w[..., 0].size)).astype(np.float32),
        )
        strides = (int(random.integers(1, 3)), 1)
        kind = "depthwise" if groups > 1 else "conv"
        edge = size // 2
        pads = (edge, edge, edge, edge)
        layer = QConv(kind, strides, pads, (1, 1), groups, zero, zero - 7)
        name = builder.emit(layer, [name, *map(builder.constant, constants)])
        channels, zero = outputs, zero - 7
    return builder.graph([Output("y", name)])


@pytest.mark.parametrize("machine", ["16x16", "8x16", "16x8", "4x4"])
@pytest.mark.parametrize("seed", range(3))
def test_random_layers_beyond_int8_are_exact(machine, seed):
    random, configuration = np.random.default_rng([seed, *machine.encode()]), PRESETS[machine]
    graph = random_layers(random)
    x = random.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    module = compile_module(graph, configuration, placement=STRICT_PLACEMENT)
    with open_device("sim", configuration) as device:
        (ours,) = Session(module, device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])


def test_a_small_machine_multiplies_copies_of_the_input():
    """Taps cannot be cut, and WGT has no room for both terms of all of them."""
    random, channels = np.random.default_rng(5), 24
    weights = random.choice([-200, 200], (3, 3, channels, 8)).astype(np.int16)
    builder = Builder("net", [Value("x", TensorType("int8", (1, 5, 4, channels)))])
    constants = weights, np.zeros(8, np.int32), np.full(8, 1 / 2000, np.float32)
    layer = QConv("conv", (1, 1), (1, 1, 1, 1), (1, 1), 1, 0, 0)
    value = builder.emit(layer, ["x", *map(builder.constant, constants)], "layer")
    graph = builder.graph([Output("y", value)])
    small = PRESETS["8x8"].replace(wgt_depth=128, wgt_banks=1)
    assert small.weight_tiles == 16
    module = compile_module(graph, small)
    rows = [row for row in module.report["placement"]["rows"] if row["op"] == "conv"]
    assert [row["target"] for row in rows] == ["accelerator"]
    x = random.integers(-128, 128, (1, 5, 4, channels)).astype(np.int8)
    with open_device("sim", small) as device:
        (ours,) = Session(module, device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])


def test_a_layer_that_the_user_places_on_the_host_says_so():
    proto, _ = convolution(150)
    graph = import_model(proto.SerializeToString())
    (layer,) = layers_of(graph)
    placement = Placement(forced=((layer.name, "host"),))
    rows = compile_module(graph, DEFAULT, placement=placement).report["placement"]["rows"]
    assert "forced" in {row["reason"] for row in rows}


def test_a_layer_of_constants_alone_is_told_of_as_that():
    builder = Builder("net", [Value("x", TensorType("int8", (1, 1, 1, 4)))])
    weights = np.full((1, 1, 4, 8), 200, np.int16)
    image = np.arange(4, dtype=np.int8).reshape(1, 1, 1, 4)
    constants = image, weights, np.zeros(8, np.int32), np.full(8, 1 / 400, np.float32)
    layer = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
    graph = builder.graph([Output("y", builder.emit(layer, [*map(builder.constant, constants)]))])
    module = compile_module(graph, DEFAULT)
    (row,) = module.report["host_products"]
    assert row["reasons"] == {"no operand that changes": 1}
    with open_device("host", DEFAULT) as device:
        (ours,) = Session(module, device).run({"x": image}).outputs.values()
    np.testing.assert_array_equal(ours, np.full((1, 1, 1, 8), 3, np.int8))


def product(constants: dict[str, np.ndarray]) -> Kernel:
    """int32[m, o] sums of int8[m, k] times int16[k, o]."""
    m, o = te.axes(m=5, o=64)
    (k,) = te.reduce_axes(k=512)
    a, b = te.tensor("a", "int8", (5, 512)), te.tensor("b", "int16", (512, 64))
    total = te.sum(a[m, k] * b[k, o], over=k)
    return te.kernel("product", te.compute("sums", "int32", (m, o), total), constants)


def test_own_kernels_may_have_constant_weights_beyond_int8():
    random = np.random.default_rng(2)
    weights = random.integers(-128, 128, (512, 64)).astype(np.int16)
    weights[[3, 3, 500], [7, 63, 20]] = 255, -200, 140
    kernel = product({"b": weights})
    a = random.integers(-128, 128, (5, 512)).astype(np.int8)
    with open_device("sim", DEFAULT) as device:
        ours = lower(schedule_kernel(kernel, Accelerator(DEFAULT))).run(device, {"a": a}).output
    np.testing.assert_array_equal(ours, a.astype(np.int32) @ weights)


def test_only_constant_weights_may_exceed_int8():
    with pytest.raises(CompileError, match="`b` is int16, and only constant weights may exceed"):
        lower(schedule_kernel(product({}), Accelerator(DEFAULT)))

"""Products whose results are read in float run in int8, and leave as int32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import HOST, Placement
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import run_onnxruntime
from .test_constant_operands import Model

IMAGE = (1, 6, 8, 8)


def product(
    *,
    image: tuple[int, int, int, int] = (1, 7, 9, 6),
    channels: int = 10,
    groups: int = 1,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
) -> Graph:
    """A QSums with random weights and a zero point, and its int32 result."""
    builder = Builder("sums", [Value("x", TensorType("int8", image))])
    numbers = np.random.default_rng(7)
    w = numbers.integers(-128, 128, (*kernel, image[3] // groups, channels)).astype(np.int8)
    kind = "depthwise" if groups > 1 else "conv"
    operator = ops.QSums(kind, strides, pads, (1, 1), groups, -5)
    sums = builder.emit(operator, ["x", builder.constant(w)], "layer")
    return builder.graph([Output("y", builder.emit(ops.FromBytes(), [sums], "layer"))])


def run(graph: Graph, name: str, device: str = "sim", placement: Placement | None = None):
    chance = np.random.default_rng(1)
    given = {i.name: chance.integers(-128, 128, i.type.shape).astype(np.int8) for i in graph.inputs}
    configuration = PRESETS[name]
    module = compile_module(graph, configuration, placement=placement or Placement())
    with open_device(device, configuration) as opened:
        got = Session(module, opened).run(given).outputs["y"]
    np.testing.assert_array_equal(got, evaluate(graph, given)["y"])
    return module, got


CASES: dict[str, dict[str, Any]] = {
    "dense taps": {},
    "strides": {"strides": (2, 2), "pads": (0, 1, 1, 0)},
    "depthwise": {"image": (1, 7, 9, 10), "groups": 10},
    "groups": {"image": (2, 5, 5, 8), "channels": 12, "groups": 4},
    "a matrix": {"image": (3, 1, 5, 40), "kernel": (1, 1), "pads": (0, 0, 0, 0), "channels": 33},
    "deep": {"image": (1, 3, 3, 96), "channels": 5},
    "one pixel": {"image": (1, 1, 1, 3), "kernel": (1, 1), "pads": (0, 0, 0, 0), "channels": 1},
    "many pixels": {"image": (2, 24, 20, 3), "channels": 18},
}


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8", "tiny", "ecp5-45"])
@pytest.mark.parametrize("case", CASES)
def test_sums_leave_the_accelerator_as_int32(case, name):
    module, got = run(product(**CASES[case]), name)
    assert got.dtype == np.int32
    assert len(module.segments) == 1
    assert np.abs(got).max() > 127


@pytest.mark.processor
@pytest.mark.parametrize("case", [case for case in CASES if case != "one pixel"])
def test_the_host_computes_the_same_sums_in_machine_code(case):
    module, _ = run(product(**CASES[case]), "8x8", placement=Placement(HOST))
    assert not module.segments
    host = module.report["host"]
    assert (host["kernels"], host["numpy"]) == (1, 0)


@pytest.mark.slow
def test_sums_leave_the_hardware_as_int32():
    run(product(), "4x4", "rtl")
    run(product(**CASES["depthwise"]), "4x4", "rtl")


def test_sums_of_the_ends_of_int8_are_whole():
    """-128 * -128 summed over 300 taps needs more than 16 bits."""
    builder = Builder("ends", [Value("x", TensorType("int8", (1, 1, 2, 300)))])
    w = builder.constant(np.full((1, 1, 300, 4), -128, np.int8))
    operator = ops.QSums("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0)
    sums = builder.emit(operator, ["x", w], "layer")
    graph = builder.graph([Output("y", builder.emit(ops.FromBytes(), [sums], "layer"))])
    configuration = PRESETS["8x8"]
    module = compile_module(graph, configuration)
    x = np.full((1, 1, 2, 300), -128, np.int8)
    with open_device("sim", configuration) as device:
        got = Session(module, device).run({"x": x}).outputs["y"]
    assert (got == 300 * 128 * 128).all()


MATRICES: dict[str, dict[str, Any]] = {
    "heads apart": {},
    "transposed": {"transposed": True},
    "heads side by side": {"joined": (True, True, False)},
    "all": {"transposed": True, "joined": (True, True, False)},
}


def matrices(case: str, wide: int = 9) -> Graph:
    operator = ops.QMatMulSums(2, **MATRICES[case])
    first, second = (
        (1, 1, rows, 2 * columns) if joined else (1, 2, rows, columns)
        for (rows, columns), joined in zip(
            ((7, 12), (wide, 12) if operator.transposed else (12, wide)),
            operator.joined,
            strict=False,
        )
    )
    inputs = [Value("a", TensorType("int8", first)), Value("b", TensorType("int8", second))]
    builder = Builder("matrices", inputs)
    sums = builder.emit(operator, ["a", "b"], "product")
    return builder.graph([Output("y", builder.emit(ops.FromBytes(), [sums], "product"))])


@pytest.mark.parametrize("name", ["4x4", "8x16", "tiny"])
@pytest.mark.parametrize("case", MATRICES)
def test_sums_of_two_activations_leave_as_int32(case, name):
    module, got = run(matrices(case), name)
    assert len(module.segments) == 1
    assert got.shape == (1, 2, 7, 9)


@pytest.mark.parametrize("columns", [4, 12, 20, 28])
@pytest.mark.parametrize("case", ["heads apart", "transposed", "heads side by side"])
def test_rows_of_sums_are_padded_to_blocks_of_channels(case, columns):
    """A row in memory has more lanes than a tile of its last columns, if `lanes_in` is greater."""
    module, _ = run(matrices(case, columns), "16x8")
    assert len(module.segments) == 1


@pytest.mark.processor
@pytest.mark.parametrize("case", MATRICES)
def test_the_host_computes_the_same_sums_of_two_activations(case, monkeypatch):
    monkeypatch.setattr("tilewright.compiler.host.select.MIN_WORK", 0)
    module, _ = run(matrices(case), "8x8", placement=Placement(HOST))
    host = module.report["host"]
    assert (host["kernels"], host["numpy"]) == (1, 0)


# Networks -----------------------------------------------------------------------------------------


def conv(built: Model, x: str, *, bias: bool = True) -> str:
    inputs = [x, built.weights(6, 6, 3, 3, axis=0)]
    if bias:
        inputs.append(built.hold(built.numbers.normal(size=6).astype(np.float32), "b"))
    return built.node("Conv", inputs, pads=[1] * 4)


def channels(built: Model, low: float, high: float, shape: tuple[int, ...] = (6,)) -> str:
    return built.hold(built.numbers.uniform(low, high, shape).astype(np.float32), "c")


def normalised(built: Model, y: str, x: str) -> str:
    ends = ((-1, 1), (-1, 1), (-1, 1), (0.5, 2))
    return built.node("BatchNormalization", [y, *(channels(built, *end) for end in ends)])


FOLLOWERS: dict[str, Callable[[Model, str, str], str]] = {
    "LeakyRelu": lambda built, y, x: built.node("LeakyRelu", [y], alpha=0.1),
    "PRelu": lambda built, y, x: built.node("PRelu", [y, channels(built, 0, 1, (6, 1, 1))]),
    "SiLU": lambda built, y, x: built.node("Mul", [y, built.node("Sigmoid", [y])]),
    "HardSwish": lambda built, y, x: built.node("HardSwish", [y]),
    "Sigmoid": lambda built, y, x: built.node("Sigmoid", [y]),
    "Tanh": lambda built, y, x: built.node("Tanh", [y]),
    "Add": lambda built, y, x: built.node("Add", [y, x]),
    "Add and Relu": lambda built, y, x: built.node("Relu", [built.node("Add", [x, y])]),
    "two products": lambda built, y, x: built.node("Add", [y, conv(built, x)]),
    "BatchNormalization": normalised,
    "BatchNormalization and Relu": lambda built, y, x: built.node(
        "Relu", [normalised(built, y, x)]
    ),
    "BatchNormalization and SiLU": lambda built, y, x: FOLLOWERS["SiLU"](
        built, normalised(built, y, x), x
    ),
    "Mul": lambda built, y, x: built.node("Mul", [y, channels(built, -1, 1, (6, 1, 1))]),
    "GlobalAveragePool": lambda built, y, x: built.node("GlobalAveragePool", [y]),
    "Concat": lambda built, y, x: built.node("Concat", [y, x], axis=1),
    "Concat and Relu": lambda built, y, x: built.node("Relu", [FOLLOWERS["Concat"](built, y, x)]),
}

ON_CHIP = {"BatchNormalization", "BatchNormalization and Relu", "Mul", "Concat", "Concat and Relu"}
"""Followers that fold into scales, or move above the quantisation."""


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_product_with_quantised_operands_runs_in_int8(follower):
    built = Model()
    x = built.quantised("x")
    y = FOLLOWERS[follower](built, conv(built, x), x)
    proto = built.made([built.quantised(y, 0.04)], x=IMAGE)
    graph = import_model(proto.SerializeToString())
    kinds = {node.op for node in graph.nodes}
    assert "conv" not in kinds
    assert ("qsums" in kinds) == (follower not in ON_CHIP)
    assert_near(proto, graph, 0.04)


def assert_near(proto, graph: Graph, step: float) -> None:
    """One in a hundred results may be rounded to the next step, as sums of floats differ."""
    configuration = PRESETS["8x8"]
    module = compile_module(graph, configuration)
    assert module.report["host_products"] == []
    given = {"x": np.random.default_rng(3).normal(0, 2, IMAGE).astype(np.float32)}
    with open_device("sim", configuration) as device:
        got = Session(module, device).run(given).outputs
    for name, array in run_onnxruntime(proto, given, optimise=False).items():
        apart = np.abs(got[name] - array)
        assert apart.max() <= step * 1.01
        assert (apart > step / 2).mean() <= 0.01
        assert len(np.unique(array)) > 3


def test_a_float_output_is_that_of_float_layers():
    built = Model()
    x = built.quantised("x")
    proto = built.made([conv(built, x, bias=False), conv(built, x)], x=IMAGE)
    graph = import_model(proto.SerializeToString())
    assert [node.op for node in graph.nodes].count("qsums") == 2
    assert_near(proto, graph, 1e-4)


def test_a_dense_layer_with_rows_leaves_as_int32():
    built = Model()
    x = built.quantised("x")
    y = built.node("MatMul", [x, built.weights(8, 5, axis=1)])
    y = built.node("Gelu", [built.node("Add", [y, channels(built, -1, 1, (5,))])])
    proto = built.made([built.quantised(y, 0.04)], x=IMAGE)
    proto.opset_import[0].version = 20
    graph = import_model(proto.SerializeToString())
    assert "matmul" not in {node.op for node in graph.nodes}
    assert_near(proto, graph, 0.04)


@pytest.mark.parametrize("name", ["8x8", "16x8"])
@pytest.mark.parametrize("points", [(0, 0), (3, 5), (-128, 0), (0, -7), (-128, 127), (-1, -128)])
def test_attention_with_q_dq_at_the_products_alone(points, name):
    """Scores go to Softmax in float: sums of bytes are exact, whatever their zero points."""
    built = Model()
    q, k = (built.quantised(x, 1, point) for x, point in zip("qk", points, strict=True))
    q, k = (
        built.node("Transpose", [x], perm=perm)
        for x, perm in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]))
    )
    image = (1, 6, 3, 20)
    proto = built.made([built.node("MatMul", [q, k])], q=image, k=image)
    module = compile_module(import_model(proto.SerializeToString()), PRESETS[name])
    assert module.report["host_products"] == []
    bytes_of = np.random.default_rng(3).integers(-128, 128, (2, *image))
    bytes_of[:, 0, 0] = points[1] if points[1] == 127 else -128  # a row and a column of one end
    reals = [(x - point).swapaxes(1, 2) for x, point in zip(bytes_of, points, strict=True)]
    given = {
        n: (x - point).astype(np.float32)
        for n, x, point in zip("qk", bytes_of, points, strict=True)
    }
    with open_device("sim", PRESETS[name]) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    np.testing.assert_array_equal(got, reals[0] @ reals[1].swapaxes(2, 3))


SHARED = {
    "rows of one matrix": ((2, 3, 7, 8), (8, 5)),
    "heads of queries": ((1, 4, 6, 8), (1, 1, 8, 6)),
    "a shared first operand": ((7, 8), (3, 8, 5)),
    "each shares one": ((2, 1, 7, 8), (1, 3, 8, 5)),
}


@pytest.mark.parametrize("points", [(0, 0), (3, -128)])
@pytest.mark.parametrize("case", SHARED)
def test_sums_of_operands_that_several_heads_share(case, points):
    built = Model()
    left, right = SHARED[case]
    operands = [built.quantised(x, 1, point) for x, point in zip("ab", points, strict=True)]
    proto = built.made([built.node("MatMul", operands)], a=left, b=right)
    module = compile_module(import_model(proto.SerializeToString()), PRESETS["8x8"])
    assert module.report["host_products"] == []
    numbers = np.random.default_rng(3)
    given = {
        x: (numbers.integers(-128, 128, shape) - point).astype(np.float32)
        for x, shape, point in zip("ab", SHARED[case], points, strict=True)
    }
    with open_device("sim", PRESETS["8x8"]) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    np.testing.assert_array_equal(got, given["a"] @ given["b"])


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("held", "axis", "given"),
    [((7, 9), 0, (9, 5)), ((7, 9), 0, (2, 3, 9, 5)), ((3, 7, 9), 1, (3, 9, 5)),
     ((3, 9, 7), 2, (3, 5, 9)), ((3, 9, 7), 2, (2, 1, 5, 9))],
)  # fmt: skip
def test_constants_whose_rows_or_columns_have_scales(held, axis, given, zeros):
    built = Model()
    integers = built.numbers.integers(-128, 128, held).astype(np.int8)
    count = held[axis]
    points = built.numbers.integers(-128, 128, count) * zeros
    scales = 2.0 ** built.numbers.integers(-2, 3, count)  # exact in float32
    names = [built.hold(integers, "w"), built.hold(scales.astype(np.float32), "s")]
    names.append(built.hold(points.astype(np.int8), "z"))
    w = built.node("DequantizeLinear", names, axis=axis)
    x = built.quantised("x", 1, 5)
    left = axis == len(held) - 2
    y = built.node("MatMul", [w, x] if left else [x, w])
    proto = built.made([y], x=given)
    module = compile_module(import_model(proto.SerializeToString()), PRESETS["8x8"])
    assert module.report["host_products"] == []
    real = np.random.default_rng(1).integers(-133, 123, given).astype(np.float32)
    with open_device("sim", PRESETS["8x8"]) as device:
        (got,) = Session(module, device).run({"x": real}).outputs.values()
    (expected,) = run_onnxruntime(proto, {"x": real}, optimise=False).values()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("zero", [0, 9, 128, 255])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_weights_of_nine_bits_leave_as_sums(zero, groups):
    """uint8 weights less their zero point are sums of up to three int8 weights."""
    built = Model()
    integers = built.numbers.integers(0, 256, (6, 6 // groups, 3, 3)).astype(np.uint8)
    integers[0, 0, 0] = 0, 255, zero
    held = built.hold(integers, "w"), built.hold(np.float32(1), "s")
    w = built.node("DequantizeLinear", [*held, built.hold(np.uint8(zero), "z")])
    y = built.node("Conv", [built.quantised("x", 1, -5), w], pads=[1] * 4, group=groups)
    proto = built.made([y], x=IMAGE)
    module = compile_module(import_model(proto.SerializeToString()), PRESETS["8x8"])
    assert module.report["host_products"] == []
    given = {"x": np.random.default_rng(1).integers(-123, 133, IMAGE).astype(np.float32)}
    with open_device("sim", PRESETS["8x8"]) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    (expected,) = run_onnxruntime(proto, given, optimise=False).values()
    np.testing.assert_array_equal(got, expected)


def test_negative_factors_of_channels_turn_weights_unless_one_is_the_least():
    """-(-128) is no int8; then the factor is left to the host."""
    for least, kind in ((-127, "qconv"), (-128, "qsums")):
        built = Model()
        x = built.quantised("x")
        integers = np.full((6, 6, 1, 1), 3, np.int8)
        integers[0, 0] = least
        held = [built.hold(integers, "w"), built.hold(np.float32(0.01), "ws")]
        y = built.node("Conv", [x, built.node("DequantizeLinear", held)])
        y = built.node("Mul", [y, built.hold(np.full((6, 1, 1), -0.5, np.float32), "f")])
        proto = built.made([built.quantised(y, 0.04)], x=IMAGE)
        graph = import_model(proto.SerializeToString())
        assert kind in {node.op for node in graph.nodes}
        assert_near(proto, graph, 0.04)


@pytest.mark.parametrize("weights", ["b", "a"])
def test_heads_with_scales_of_their_own_run_in_int8(weights: str) -> None:
    built, shape = Model(), (3, 6, 8)
    held = built.weights(3, 8, 6, axis=0)
    x = built.quantised("x", 0.05, -7)
    operands = [x, held] if weights == "b" else [held, x]
    proto = built.made([built.node("MatMul", operands)], x=shape)
    module = compile_module(import_model(proto.SerializeToString()), PRESETS["8x8"])
    assert module.report["host_products"] == []
    given = {"x": np.random.default_rng(4).normal(size=shape).astype(np.float32)}
    with open_device("sim", PRESETS["8x8"]) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    (expected,) = run_onnxruntime(proto, given, optimise=False).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_heads_of_one_token_leave_in_rows_of_more_lanes() -> None:
    """A row of 16 lanes has padding for the next layer, where the kernel writes blocks of 8."""
    built = Model()
    product = built.node("MatMul", [built.quantised("x", 0.05, 0), built.weights(4, 27)])
    heads = built.node("Reshape", [built.quantised(product), built.hold([1, 3, 9, 1], "shape")])
    made = built.node("MatMul", [heads, built.quantised("p", 1 / 255, 0)])
    y = built.node("Reshape", [made, built.hold([1, 27, 1, 1], "shape")])
    proto = built.made([y], x=(1, 1, 4), p=(1, 3, 1, 1))
    chance = np.random.default_rng(4)
    given = {
        "x": chance.normal(size=(1, 1, 4)).astype(np.float32),
        "p": chance.uniform(size=(1, 3, 1, 1)).astype(np.float32),
    }
    configuration = PRESETS["16x8"]
    module = compile_module(import_model(proto.SerializeToString()), configuration)
    with open_device("sim", configuration) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    (expected,) = run_onnxruntime(proto, given).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def moved(built: Model, kind: str) -> str:
    """Weights [6, N] with a scale for each channel, moved before the product."""
    if kind == "joined":
        parts = [built.weights(6, 3, axis=1), built.weights(6, 4, axis=1)]
        return built.node("Concat", parts, axis=1)
    if kind == "sliced":
        ends = [built.hold([end], "end") for end in (2, 7, 1)]
        return built.node("Slice", [built.weights(6, 9, axis=1), *ends])
    if kind == "gathered":
        return built.node("Gather", [built.weights(6, 9, axis=1), built.hold([3, 1], "i")], axis=1)
    shape = built.hold([6, 5], "shape")
    return built.node("Reshape", [built.weights(6, 1, 5, axis=2), shape])


@pytest.mark.parametrize("kind", ["joined", "sliced", "gathered", "reshaped"])
def test_moved_weights_with_scales_by_channel_stay_integers(kind: str) -> None:
    built = Model()
    proto = built.made([built.node("MatMul", [built.quantised("x"), moved(built, kind)])], x=(4, 6))
    assert_runs_in_int8(proto, {"x": (4, 6)})


def test_one_row_of_turned_weights_stays_integers() -> None:
    built = Model()
    operands = [built.quantised("x"), built.weights(5, 1, axis=0)]
    proto = built.made([built.node("Gemm", operands, transB=1)], x=(4, 1))
    assert_runs_in_int8(proto, {"x": (4, 1)})


def assert_runs_in_int8(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> None:
    module = compile_module(import_model(proto.SerializeToString()), PRESETS["8x8"])
    assert module.report["host_products"] == []
    chance = np.random.default_rng(4)
    given = {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    with open_device("sim", PRESETS["8x8"]) as device:
        (got,) = Session(module, device).run(given).outputs.values()
    (expected,) = run_onnxruntime(proto, given, optimise=False).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)

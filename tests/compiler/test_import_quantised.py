"""Quantised operators have the bits of onnxruntime's integer kernels, after all passes."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Graph,
    QAdd,
    QAvgPool,
    QConv,
    QLut,
    QMaxPool,
    evaluate,
    is_accelerated,
)

from .onnx_models import WEIGHTS, model, node, run_onnxruntime, scalars, value

DTYPES = {"int8": (np.int8, -128, 127), "uint8": (np.uint8, 0, 255)}
scales = st.integers(10, 300).map(lambda thousandths: thousandths / 1000)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(sorted(DTYPES))


def integers(rng: np.random.Generator, dtype: str, shape) -> np.ndarray:
    kind, low, high = DTYPES[dtype]
    return rng.integers(low, high + 1, shape).astype(kind)


def zero_point(rng: np.random.Generator, dtype: str):
    return integers(rng, dtype, ())[()]


def compare(proto, x: np.ndarray, operator: type, exactly: bool = True) -> None:
    """Compare all bits (or all but rare ties) with onnxruntime, and the accelerated operators."""
    graph = import_model(proto.SerializeToString())
    expected = run_onnxruntime(proto, {"x": x})["y"]
    got = evaluate(graph, {"x": x})["y"]
    kinds = [type(n.attributes) for n in graph.nodes if is_accelerated(n)]
    assert operator in kinds
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    difference = np.abs(got.astype(np.int32) - expected.astype(np.int32))
    if exactly:
        np.testing.assert_array_equal(got, expected)
    else:
        assert difference.max(initial=0) <= 1
        assert np.count_nonzero(difference) <= 2 + difference.size // 50


@settings(max_examples=60, deadline=None)
@given(seeds, dtypes, st.booleans(), st.booleans(), st.sampled_from([1, 2, 4]), scales)
def test_a_qlinear_convolution_has_onnxruntimes_bits(
    seed: int, dtype: str, per_channel: bool, bias: bool, groups: int, x_scale: float
) -> None:
    rng = np.random.default_rng(seed)
    channels = 4 * int(rng.integers(1, 3))
    kernel = tuple(int(k) for k in rng.integers(1, 5, 2))
    weights = rng.integers(*WEIGHTS, (channels, 4 // groups, *kernel)).astype(np.int8)
    count = channels if per_channel else 1
    w_scale = rng.uniform(0.001, 0.02, count).astype(np.float32)
    constants = {
        "w": weights,
        "ws": w_scale if per_channel else w_scale[0],
        "wz": np.zeros(count, np.int8) if per_channel else np.int8(0),
        "b": rng.integers(-5000, 5000, channels).astype(np.int32),
        **scalars(xs=x_scale, ys=float(rng.uniform(0.05, 0.5))),
        "xz": zero_point(rng, dtype),
        "yz": zero_point(rng, dtype),
    }
    attributes = {
        "pads": [int(p) for p in rng.integers(0, 3, 4)],
        "strides": [int(s) for s in rng.integers(1, 3, 2)],
        "dilations": [int(d) for d in rng.integers(1, 3, 2)],
        "group": groups,
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if bias else [])]
    shape = [2, 4, 8, 9]
    kind = DTYPES[dtype][0]
    proto = model(
        [node("QLinearConv", names, ["y"], **attributes)],
        [value("x", kind, shape)],
        ["y"],
        constants,
    )
    compare(proto, integers(rng, dtype, shape), QConv)


@settings(max_examples=30, deadline=None)
@given(seeds, dtypes, st.booleans(), scales)
def test_a_qlinear_matmul_has_onnxruntimes_bits(
    seed: int, dtype: str, per_column: bool, x_scale: float
) -> None:
    rng = np.random.default_rng(seed)
    columns, inner = int(rng.integers(1, 20)), int(rng.integers(1, 40))
    count = columns if per_column else 1
    w_scale = rng.uniform(0.001, 0.02, count).astype(np.float32)
    constants = {
        "w": rng.integers(*WEIGHTS, (inner, columns)).astype(np.int8),
        "ws": w_scale if per_column else w_scale[0],
        "wz": np.zeros(count, np.int8) if per_column else np.int8(0),
        **scalars(xs=x_scale, ys=float(rng.uniform(0.05, 0.5))),
        "xz": zero_point(rng, dtype),
        "yz": zero_point(rng, dtype),
    }
    shape = [3, inner] if seed % 2 else [2, 3, inner]
    kind = DTYPES[dtype][0]
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    proto = model(
        [node("QLinearMatMul", names, ["y"])], [value("x", kind, shape)], ["y"], constants
    )
    compare(proto, integers(rng, dtype, shape), QConv)


@settings(max_examples=15, deadline=None)
@given(seeds, dtypes, scales)
def test_a_qgemm_has_onnxruntimes_bits(seed: int, dtype: str, x_scale: float) -> None:
    rng = np.random.default_rng(seed)
    constants = {
        "w": rng.integers(*WEIGHTS, (7, 12)).astype(np.int8),
        "b": rng.integers(-2000, 2000, 7).astype(np.int32),
        **scalars(xs=x_scale, ws=0.013, wz=np.int8(0), ys=float(rng.uniform(0.05, 0.5))),
        "xz": zero_point(rng, dtype),
        "yz": zero_point(rng, dtype),
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"]
    qgemm = node("QGemm", names, ["y"], domain="com.microsoft", transB=1)
    proto = model([qgemm], [value("x", DTYPES[dtype][0], [3, 12])], ["y"], constants)
    compare(proto, integers(rng, dtype, (3, 12)), QConv)


@settings(max_examples=15, deadline=None)
@given(seeds, dtypes, scales, scales, scales)
def test_a_qlinear_add_agrees_but_for_ties(
    seed: int, dtype: str, a_scale: float, b_scale: float, y_scale: float
) -> None:
    rng = np.random.default_rng(seed)
    constants = {
        **scalars(a=a_scale, b=b_scale, s=y_scale),
        **{name: zero_point(rng, dtype) for name in ("az", "bz", "z")},
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        node(
            "QLinearAdd", ["x", "a", "az", "t", "b", "bz", "s", "z"], ["y"], domain="com.microsoft"
        ),
    ]
    kind = DTYPES[dtype][0]
    proto = model(nodes, [value("x", kind, [1, 4, 8, 8])], ["y"], constants)
    compare(proto, integers(rng, dtype, (1, 4, 8, 8)), QAdd, exactly=False)


@settings(max_examples=15, deadline=None)
@given(seeds, dtypes, scales, scales, st.booleans())
def test_a_global_average_agrees_but_for_ties(
    seed: int, dtype: str, x_scale: float, y_scale: float, last: bool
) -> None:
    rng = np.random.default_rng(seed)
    constants = {
        **scalars(a=x_scale, s=y_scale),
        **{name: zero_point(rng, dtype) for name in ("az", "z")},
    }
    pool = node(
        "QLinearGlobalAveragePool",
        ["x", "a", "az", "s", "z"],
        ["y"],
        domain="com.microsoft",
        channels_last=int(last),
    )
    shape = [2, 5, 7, 16]
    proto = model([pool], [value("x", DTYPES[dtype][0], shape)], ["y"], constants)
    compare(proto, integers(rng, dtype, shape), QAvgPool, exactly=False)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_an_average_of_windows_agrees_but_for_ties(dtype: str) -> None:
    rng = np.random.default_rng(3)
    constants = {
        **scalars(a=0.05, s=0.043),
        **{name: zero_point(rng, dtype) for name in ("az", "z")},
    }
    pool = node(
        "QLinearAveragePool",
        ["x", "a", "az", "s", "z"],
        ["y"],
        domain="com.microsoft",
        kernel_shape=[3, 2],
        strides=[2, 2],
        pads=[1, 0, 0, 1],
        count_include_pad=1,
    )
    shape = [1, 3, 9, 9]
    proto = model([pool], [value("x", DTYPES[dtype][0], shape)], ["y"], constants)
    compare(proto, integers(rng, dtype, shape), QAvgPool, exactly=False)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_a_max_pool_of_integers_has_onnxruntimes_bits(dtype: str) -> None:
    rng = np.random.default_rng(3)
    pool = node("MaxPool", ["x"], ["p"], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    relu = [
        node("DequantizeLinear", ["p", "s", "z"], ["d"]),
        node("Relu", ["d"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    constants = scalars(s=0.1, z=DTYPES[dtype][0](5))
    shape = [1, 3, 9, 9]
    proto = model([pool, *relu], [value("x", DTYPES[dtype][0], shape)], ["y"], constants)
    compare(proto, integers(rng, dtype, shape), QMaxPool)


ACTIVATIONS = (
    *("Abs", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu"),
    *("Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_becomes_a_table(kind: str, dtype: str) -> None:
    nodes = [
        node("DequantizeLinear", ["x", "a", "az"], ["f"]),
        node(kind, ["f"], ["g"]),
        node("QuantizeLinear", ["g", "s", "z"], ["y"]),
    ]
    kind_of = DTYPES[dtype][0]
    _, low, high = DTYPES[dtype]
    # The root of a negative number is not one, and what it quantises to is not defined.
    zero = low if kind == "Sqrt" else 70
    constants = scalars(a=0.03, az=kind_of(zero), s=0.02, z=kind_of(40))
    x = np.arange(low, high + 1).astype(kind_of).reshape(1, 1, 16, 16)
    proto = model(nodes, [value("x", kind_of, x.shape)], ["y"], constants, opset=14)
    compare(proto, x, QLut, exactly=False)


def test_uint8_weights_of_any_zero_point_are_a_layers() -> None:
    rng = np.random.default_rng(0)
    for point in (128, 3):
        constants = {
            "w": rng.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8),
            **scalars(s=0.1, z=np.uint8(9), wz=np.uint8(point), ws=0.01),
        }
        names = ["x", "s", "z", "w", "ws", "wz", "s", "z"]
        x = rng.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)
        proto = model(
            [node("QLinearConv", names, ["y"])], [value("x", np.uint8, x.shape)], ["y"], constants
        )
        graph = import_model(proto.SerializeToString())
        assert any(isinstance(n.attributes, QConv) for n in graph.nodes)
        got = evaluate(graph, {"x": x})["y"].astype(int)
        assert np.abs(got - run_onnxruntime(proto, {"x": x})["y"]).max() <= 1


IMAGE = (1, 4, 6, 6)


def quantised_layer(kind: type, half: str) -> onnx.ModelProto:
    """A convolution between Q/DQ: integers of type `kind`, scales and floats of type `half`."""
    rng, real = np.random.default_rng(2), np.dtype(half).type
    tensors = [
        onnx.helper.make_tensor(name, onnx.helper.np_dtype_to_tensor_dtype(data.dtype), shape, data)
        for name, shape, data in (
            ("s", [], np.array([0.25], real)),
            ("z", [], np.array([1], kind)),
            ("w", [5, 4, 3, 3], rng.integers(-7, 8, 180).astype(np.int8)),
            ("ws", [5], rng.uniform(0.01, 0.05, 5).astype(real)),
        )
    ]
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
        node("DequantizeLinear", ["w", "ws"], ["wr"], axis=0),
        node("Conv", ["xr", "wr"], ["c"], pads=[1] * 4),
        node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        node("Cast", ["cq"], ["y"], to=onnx.TensorProto.INT32),
    ]
    proto = model(nodes, [value("x", real, IMAGE)], ["y"], {}, opset=21)
    proto.graph.initializer.extend(tensors)
    return proto


def imported(proto: onnx.ModelProto) -> Graph:
    graph = import_model(proto.SerializeToString())
    assert [n.op for n in graph.nodes if is_accelerated(n)] == ["qconv"]
    return graph


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
def test_activations_of_four_bits_are_clamped_int8(kind: type) -> None:
    proto = quantised_layer(kind, "float32")
    x = np.random.default_rng(3).normal(0, 2, IMAGE).astype(np.float32)
    got = evaluate(imported(proto), {"x": x})["y"]
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_layer_with_scales_in_float16_runs_in_int8(kind: type) -> None:
    """As Model-Optimizer writes networks in high precision of float16."""
    proto = quantised_layer(kind, "float16")
    x = np.random.default_rng(3).normal(0, 2, IMAGE).astype(np.float16)
    got = evaluate(imported(proto), {"x": x})["y"]
    apart = got - run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    assert np.abs(apart).max() <= 1
    assert np.count_nonzero(apart) < 0.02 * apart.size, "sums in float16 are rounded"


REDUCTIONS = {
    "rows": ((2, 8, 6, 5), [2]),
    "columns": ((2, 8, 6, 5), [3]),
    "channels last": ((1, 6, 5, 8), [1, 2]),
    "a volume": ((1, 8, 3, 4, 5), [2, 3, 4]),
}
"""Pixels over which a mean or a maximum is taken: shape and axes."""


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_means_and_maxima_of_pixels_are_pools(name: str, kind: str, keep: int) -> None:
    shape, axes = REDUCTIONS[name]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xr"]),
        node(kind, ["xr", "axes"], ["m"], keepdims=keep),
        node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    held = {**scalars(s=0.04, z=np.int8(-3)), "axes": np.array(axes)}
    proto = model(nodes, [value("x", np.int8, shape)], ["y"], held, opset=18)
    graph = import_model(proto.SerializeToString())
    wanted = {"ReduceMean": QAvgPool, "ReduceMax": QMaxPool}[kind]
    assert [type(n.attributes) for n in graph.nodes if is_accelerated(n)] == [wanted]
    x = np.random.default_rng(6).integers(-128, 128, shape).astype(np.int8)
    got = evaluate(graph, {"x": x})["y"].astype(int)
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= (kind == "ReduceMean")

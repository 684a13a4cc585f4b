"""Weights with a scale for each block run in int8 where the scales of a channel allow it."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QConv, evaluate
from tilewright.compiler.importers.onnx_blocks import channel_scales
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Load

from .onnx_models import run_onnxruntime

INPUTS, OUTPUTS, BLOCK = 40, 8, 16
BLOCKS = -(-INPUTS // BLOCK)
IMAGE, ROWS = (1, INPUTS, 5, 5), (6, INPUTS)
KINDS = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-8, 8), "uint8": (120, 136)}


def network(layer: str, dtype: str, factors: np.ndarray, unit: float = 0.003) -> onnx.ModelProto:
    """A layer between quantised values whose scales are `factors[outputs, blocks] * unit`.

    The scale of output 0 is a third of that.
    """
    numbers = np.random.default_rng(3)
    step = np.float32(0.2 if layer == "Conv" else 0.02)
    constants: dict[str, Any] = {
        "xs": np.float32(0.05),
        "xz": np.int8(3),
        "ys": step,
        "yz": np.int8(-4),
    }
    units = np.full((OUTPUTS, 1), unit, np.float32)
    units[0] = np.float32(unit) / 3
    scales = (factors.astype(np.float32) * units).astype(np.float32)
    low, high = KINDS[dtype]
    shape = (OUTPUTS, INPUTS, 3, 3) if layer == "Conv" else (OUTPUTS, INPUTS)
    weights = numbers.integers(low, high, shape)
    weights[1, :BLOCK] = low if low >= 0 else 0
    zeros = np.full(scales.shape, (low + high) // 2 if low >= 0 else 0)
    zeros[1, 0] = weights[1, 0].flat[0]
    attributes: dict[str, Any] = {"axis": 1, "block_size": BLOCK}
    if layer == "MatMul":
        weights, zeros, scales, attributes["axis"] = weights.T, zeros.T, scales.T, 0
    if layer == "Conv":
        scales, zeros = (np.tile(each[..., None, None], (1, 1, 3, 3)) for each in (scales, zeros))
    x = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
    ]
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype.endswith("t4") else np.dtype(dtype)
    if layer == "MatMulNBits":
        padded = np.zeros((OUTPUTS, BLOCKS * BLOCK), np.int64)
        padded[:, :INPUTS] = weights
        points = np.pad(zeros, ((0, 0), (0, BLOCKS % 2)))
        packed = [(each[:, ::2] | each[:, 1::2] << 4).astype(np.uint8) for each in (padded, points)]
        constants |= {"w": packed[0].reshape(OUTPUTS, BLOCKS, -1), "s": scales, "z": packed[1]}
        sizes: dict[str, Any] = {"K": INPUTS, "N": OUTPUTS, "bits": 4, "domain": "com.microsoft"}
        body = [
            helper.make_node("MatMulNBits", ["d", "w", "s", "z"], ["t"], **sizes, block_size=BLOCK)
        ]
    else:
        constants |= {"w": weights.astype(kind), "s": scales, "z": zeros.astype(kind)}
        more: dict[str, Any] = {"Conv": {"pads": [1] * 4}, "Gemm": {"transB": 1}, "MatMul": {}}[
            layer
        ]
        body = [
            helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], **attributes),
            helper.make_node(layer, ["d", "r"], ["t"], **more),
        ]
    y = helper.make_node("QuantizeLinear", ["t", "ys", "yz"], ["y"])
    held = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    shape = IMAGE if layer == "Conv" else ROWS
    given_x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    shown = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([*x, *body, y], "blocks", [given_x], [shown], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def whole(most: int = 15) -> np.ndarray:
    return np.random.default_rng(5).integers(1, most + 1, (OUTPUTS, BLOCKS))


CASES = [
    *((layer, dtype) for layer in ("Conv", "MatMul", "Gemm") for dtype in KINDS),
    ("MatMulNBits", "uint4"),
]


@pytest.mark.parametrize(("layer", "dtype"), CASES)
def test_multiples_of_a_channels_scale_run_in_int8(layer: str, dtype: str) -> None:
    proto = network(layer, dtype, whole())
    graph = import_model(proto.SerializeToString())
    report = compile_module(graph, PRESETS["8x8"]).report
    assert not report["host_products"]
    x = np.random.default_rng(7).normal(size=IMAGE if layer == "Conv" else ROWS)
    inputs = {"x": x.astype(np.float32)}
    expected = run_onnxruntime(proto, inputs, optimise=False)["y"].astype(np.int32)
    apart = np.abs(evaluate(graph, inputs)["y"].astype(np.int32) - expected)
    assert len(np.unique(expected)) > 20
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 2


@pytest.mark.parametrize("layer", ["Conv", "MatMul", "Gemm", "MatMulNBits"])
def test_other_scales_keep_their_meaning_on_the_host(layer: str) -> None:
    factors = np.random.default_rng(5).uniform(1, 15, (OUTPUTS, BLOCKS))
    proto = network(layer, "uint4", factors)
    graph = import_model(proto.SerializeToString())
    assert not [n for n in graph.nodes if isinstance(n.attributes, QConv)]
    (row,) = compile_module(graph, PRESETS["8x8"]).report["host_products"]
    assert "whole multiples" in row["sentence"]
    x = np.random.default_rng(7).normal(size=IMAGE if layer == "Conv" else ROWS)
    inputs = {"x": x.astype(np.float32)}
    expected = run_onnxruntime(proto, inputs, optimise=False)["y"].astype(np.int32)
    apart = np.abs(evaluate(graph, inputs)["y"].astype(np.int32) - expected)
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 2


@pytest.mark.parametrize("layer", ["Conv", "MatMul"])
def test_blocks_of_a_tile_are_loaded_as_4_bits(layer: str) -> None:
    machine = PRESETS["8x8"].replace(name="packed", packed_weights="int4", bus_bits=32)
    graph = import_model(network(layer, "int4", whole()).SerializeToString())
    segments = compile_module(graph, machine).segments
    assert [
        one for part in segments for one in part.program if isinstance(one, Load) and one.unpack
    ]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(1, 40), st.integers(0, 1))
def test_any_scales_that_are_multiples_are_found(
    seed: int, most: int, block: int, axis: int
) -> None:
    """The integers times their channel's scale are the weights, to the last bit of float32."""
    numbers = np.random.default_rng(seed)
    shape = tuple(int(n) for n in numbers.integers(1, 70, 2))
    blocks = [-(-n // block) if i == axis else n for i, n in enumerate(shape)]
    channels = [1 if i == axis else n for i, n in enumerate(shape)]
    units = np.exp(numbers.uniform(-20, 5, channels)).astype(np.float32)
    scales = numbers.integers(1, most + 1, blocks).astype(np.float32) * units
    weights = numbers.integers(-8, 9, shape)
    found = channel_scales(weights.astype(np.int8), scales, axis=axis, block=block)
    assert found is not None
    integers, scaling = found
    spread = np.repeat(scales, block, axis).take(range(shape[axis]), axis)
    expected = weights.astype(np.float32) * spread
    np.testing.assert_allclose(scaling.compute(integers), expected, rtol=2**-22)

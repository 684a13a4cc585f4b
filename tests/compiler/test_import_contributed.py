"""Operators of ONNX Runtime's own domain compute what onnxruntime computes."""

import numpy as np
import pytest

from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ImportModelError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

from .onnx_models import WEIGHTS, model, node, run_onnxruntime, scalars, value

GENERATOR = np.random.default_rng(17)


def random(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def contributed(kind: str, inputs: list[str], outputs: list[str] | None = None, **attributes):
    return node(kind, inputs, outputs or ["y"], domain="com.microsoft", **attributes)


CASES = {
    "FusedConv": (
        contributed(
            "FusedConv",
            ["x", "w", "b"],
            activation="LeakyRelu",
            activation_params=[0.3],
            pads=[1] * 4,
        ),
        (1, 3, 5, 6),
        {"w": random(4, 3, 3, 3), "b": random(4)},
    ),
    "FusedConv clipped": (
        contributed("FusedConv", ["x", "w"], activation="Clip", activation_params=[-0.5, 0.75]),
        (1, 3, 5, 6),
        {"w": random(4, 3, 3, 3)},
    ),
    "FusedMatMul": (
        contributed("FusedMatMul", ["x", "w"], transB=1, alpha=0.5),
        (2, 4, 8),
        {"w": random(2, 5, 8)},
    ),
    "FastGelu": (contributed("FastGelu", ["x", "b"]), (2, 8), {"b": random(8)}),
    "BiasGelu": (contributed("BiasGelu", ["x", "b"]), (2, 8), {"b": random(8)}),
    "QuickGelu": (contributed("QuickGelu", ["x"], alpha=1.25), (2, 8), {}),
    "SkipLayerNormalization": (
        contributed(
            "SkipLayerNormalization",
            ["x", "s", "g", "b", "c"],
            ["y", "", "", "z"],
            epsilon=1e-3,
        ),
        (1, 4, 8),
        {"s": random(1, 4, 8), "g": random(8), "b": random(8), "c": random(8)},
    ),
    "SkipSimplifiedLayerNormalization": (
        contributed("SkipSimplifiedLayerNormalization", ["x", "s", "g"]),
        (1, 4, 8),
        {"s": random(1, 4, 8), "g": random(8)},
    ),
    "SimplifiedLayerNormalization": (
        node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1, epsilon=1e-3),
        (1, 4, 8),
        {"g": random(8)},
    ),
    "MatMulNBits": (
        contributed("MatMulNBits", ["x", "w", "s", "z"], K=40, N=3, bits=4, block_size=16),
        (2, 40),
        {
            "w": GENERATOR.integers(0, 256, (3, 3, 8)).astype(np.uint8),
            "s": np.abs(random(9)),
            "z": GENERATOR.integers(0, 256, 6).astype(np.uint8),
        },
    ),
    "MatMulNBits with float zero points": (
        contributed("MatMulNBits", ["x", "w", "s", "z"], K=40, N=3, bits=4, block_size=16),
        (2, 40),
        {
            "w": GENERATOR.integers(0, 256, (3, 3, 8)).astype(np.uint8),
            "s": np.abs(random(9)),
            "z": random(9) + 7,
        },
    ),
    "MatMulNBits with blocks in any order": (
        contributed("MatMulNBits", ["x", "w", "s", "z", "g"], K=32, N=3, bits=4, block_size=16),
        (2, 32),
        {
            "w": GENERATOR.integers(0, 256, (3, 2, 8)).astype(np.uint8),
            "s": np.abs(random(6)),
            "z": random(6) + 7,
            "g": GENERATOR.integers(0, 2, 32).astype(np.int32),
        },
    ),
    "MatMulNBits without zero points": (
        contributed("MatMulNBits", ["x", "w", "s"], K=32, N=3, bits=4, block_size=16),
        (2, 32),
        {"w": GENERATOR.integers(0, 256, (3, 2, 8)).astype(np.uint8), "s": np.abs(random(6))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnxruntime_computes(name: str) -> None:
    operator, shape, constants = CASES[name]
    shown = [output for output in operator.output if output]
    proto = model([operator], [value("x", np.float32, shape)], shown, constants, opset=17)
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    expected = run_onnxruntime(proto, {"x": x})
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})
    for output in shown:
        assert got[output].dtype == expected[output].dtype
        np.testing.assert_allclose(got[output], expected[output], rtol=1e-4, atol=1e-4)


def test_a_product_of_integers_is_scaled() -> None:
    product = contributed("MatMulIntegerToFloat", ["x", "w", "s", "t", "z", "u", "b"])
    constants = {
        "w": GENERATOR.integers(*WEIGHTS, (6, 3)).astype(np.int8),
        "b": random(3),
        **scalars(s=0.25, t=0.5, z=np.uint8(3), u=np.int8(-2)),
    }
    proto = model([product], [value("x", np.uint8, (2, 6))], ["y"], constants)
    x = GENERATOR.integers(0, 256, (2, 6)).astype(np.uint8)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


LSTM_WEIGHTS = {"w": (6, 20), "r": (5, 20)}
"""Extents for each of the two directions: inputs and hidden states by gates."""


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("uint8", 128)])
def test_an_lstm_with_weights_of_bytes(dtype: str, zero: int, by_channel: bool) -> None:
    """onnxruntime quantises inputs and states as well, so it is only near."""
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    attributes = {"hidden_size": 5, "direction": "bidirectional"}
    layer = contributed("DynamicQuantizeLSTM", inputs, **attributes)
    constants: dict[str, np.ndarray] = {"b": random(2, 40)}
    plain = {"b": constants["b"]}
    for name, shape in LSTM_WEIGHTS.items():
        weights = (GENERATOR.integers(*WEIGHTS, (2, *shape)) + zero).astype(dtype)
        spread = (2, 20) if by_channel else (2,)
        scales = 0.01 + 0.01 * np.abs(random(*spread))
        zeros = np.full(spread, zero, dtype)
        constants |= {name: weights, f"{name}s": scales, f"{name}z": zeros}
        real = (weights.astype(np.float32) - zero) * scales.reshape(2, 1, -1)
        plain[name] = np.ascontiguousarray(real.transpose(0, 2, 1))
    x = random(7, 1, 6)
    shown = [value("x", np.float32, x.shape)]
    proto = model([layer], shown, ["y"], constants)
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    near = run_onnxruntime(proto, {"x": x})["y"]
    np.testing.assert_allclose(got, near, atol=0.03)
    lstm = model([node("LSTM", ["x", "w", "r", "b"], ["y"], **attributes)], shown, ["y"], plain)
    np.testing.assert_allclose(got, run_onnxruntime(lstm, {"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_scales_of_an_lstm_that_do_not_fit_are_refused() -> None:
    inputs = ["x", "w", "r", "", "", "", "", "", "s", "", "s", ""]
    layer = contributed("DynamicQuantizeLSTM", inputs, hidden_size=5)
    constants: dict[str, np.ndarray] = {
        name: np.ones((1, *shape), np.int8) for name, shape in LSTM_WEIGHTS.items()
    }
    constants["s"] = np.ones(3, np.float32)
    proto = model([layer], [value("x", np.float32, (7, 1, 6))], ["y"], constants)
    with pytest.raises(ImportModelError, match=r"got int8\[1, 6, 20\] with \[3\] and \[3\]"):
        import_onnx(proto.SerializeToString())


def test_an_lstm_with_weights_of_bytes_runs() -> None:
    inputs = ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    layer = contributed("DynamicQuantizeLSTM", inputs, hidden_size=5)
    constants: dict[str, np.ndarray] = {
        name: GENERATOR.integers(0, 256, (1, *shape)).astype(np.uint8)
        for name, shape in LSTM_WEIGHTS.items()
    }
    constants |= {"s": np.full(1, 0.005, np.float32), "z": np.full(1, 100, np.uint8)}
    x = random(20, 1, 6)
    proto = model([layer], [value("x", np.float32, x.shape)], ["y"], constants)
    graph = import_onnx(proto.SerializeToString())
    with open_device("sim", PRESETS["8x16"]) as sim:
        got = Session(compile_module(graph, PRESETS["8x16"]), sim).run({"x": x}).outputs["y"]
    np.testing.assert_allclose(got, evaluate(graph, {"x": x})["y"], atol=1e-4)
    np.testing.assert_allclose(got, run_onnxruntime(proto, {"x": x})["y"], atol=0.03)


@pytest.mark.parametrize("opset", [11, 13])
def test_a_quantised_softmax(opset: int) -> None:
    softmax = contributed("QLinearSoftmax", ["x", "s", "z", "t", "w"], axis=1, opset=opset)
    constants = scalars(s=0.1, z=np.uint8(128), t=1 / 256, w=np.uint8(0))
    proto = model([softmax], [value("x", np.uint8, (2, 3, 4))], ["y"], constants)
    x = GENERATOR.integers(90, 160, (2, 3, 4)).astype(np.uint8)
    expected = run_onnxruntime(proto, {"x": x})["y"].astype(int)
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - expected).max() <= 1

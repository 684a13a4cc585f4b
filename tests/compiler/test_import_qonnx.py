"""QONNX's quantisation to few bits means what its definition says, and becomes layers."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.errors import ImportModelError

from .onnx_models import model, node, value

GENERATOR = np.random.default_rng(3)
DOMAIN = "qonnx.custom_op.general"
ROUNDINGS = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil}


def defined(x, scale, zero, bits, signed=1, narrow=0, mode="ROUND") -> np.ndarray:
    """QONNX's definition of Quant."""
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    low = -(2 ** (bits - 1)) + narrow if signed else 0
    found = np.clip(x.astype(np.float32) / scale + zero, low, high)
    return ((ROUNDINGS[mode](found) - zero) * scale).astype(np.float32)


def quant(x: str, y: str, scale: str = "s", bits: str = "b", **attributes):
    return node("Quant", [x, scale, "z", bits], [y], domain=DOMAIN, **attributes)


def constants(scale: Any, zero: float = 0.0, bits: float = 4.0) -> dict[str, np.ndarray]:
    held = {"s": scale, "z": zero, "b": bits}
    return {name: np.asarray(number, np.float32) for name, number in held.items()}


SCALES: dict[str, Any] = {
    "tensor": 0.25,
    "channel": [[0.25], [0.5], [1.0]],
    "columns": [0.25, 0.5, 1.0, 2.0, 0.125],
}


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 8, 12])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("zero", "mode"), [(0, "ROUND"), (1, "ROUND"), (0.5, "ROUND"), (0, "FLOOR")]
)
def test_numbers_of_few_bits(scale, bits, narrow, signed, zero, mode) -> None:
    held = constants(SCALES[scale], zero, bits)
    layer = quant("x", "y", signed=signed, narrow=narrow, rounding_mode=mode)
    proto = model([layer], [value("x", np.float32, (3, 5))], ["y"], held)
    graph = import_onnx(proto.SerializeToString())
    x = 4 * GENERATOR.standard_normal((3, 5)).astype(np.float32)
    expected = defined(x, held["s"], np.float32(zero), bits, signed, narrow, mode)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, rtol=1e-6)
    integers = any(isinstance(one.attributes, ops.Quantize) for one in graph.nodes)
    assert integers == (bits <= 8 and mode == "ROUND" and zero != 0.5)


def test_layers_of_few_bits_are_layers_of_integers() -> None:
    held = constants(0.25) | {
        "w": GENERATOR.standard_normal((6, 3, 3, 3)).astype(np.float32),
        "ws": np.array([0.5, 0.25, 0.125, 0.25, 0.5, 1], np.float32).reshape(6, 1, 1, 1),
        "b3": np.array(3.0, np.float32),
    }
    nodes = [
        quant("x", "a"),
        quant("w", "q", "ws", "b3", narrow=1),
        node("Conv", ["a", "q"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["d"]),
        quant("d", "y", signed=0),
    ]
    proto = model(nodes, [value("x", np.float32, (1, 3, 6, 7))], ["y"], held)
    graph = import_model(proto.SerializeToString())
    (layer,) = (one.attributes for one in graph.nodes if isinstance(one.attributes, ops.QConv))
    assert (layer.low, layer.high) == (-128, -113)  # 0 to 15, as int8
    x = GENERATOR.standard_normal((1, 3, 6, 7)).astype(np.float32)
    plain = import_onnx(proto.SerializeToString())
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], evaluate(plain, {"x": x})["y"])


def test_numbers_of_one_bit_with_a_sign() -> None:
    layer = node("BipolarQuant", ["x", "s"], ["y"], domain=DOMAIN)
    proto = model([layer], [value("x", np.float32, (4,))], ["y"], {"s": np.array(0.75, np.float32)})
    x = np.array([-2, 0, 1, -0.1], np.float32)
    expected = np.array([-0.75, 0.75, 0.75, -0.75], np.float32)
    graph = import_onnx(proto.SerializeToString())
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], expected)


@pytest.mark.parametrize(
    ("held", "attributes", "message"),
    [
        (constants(0.25), {"rounding_mode": "HALF_UP"}, "got `rounding_mode` HALF_UP"),
        (constants(0.25, bits=99), {}, r"`bitwidth` \[99.0\]"),
        (constants(-1.0), {}, r"positive, finite scales, got \[-1.0\]"),
        (constants([1.0, np.nan]), {}, "positive, finite scales"),
    ],
)
def test_what_has_no_meaning_is_refused(held, attributes, message) -> None:
    layer = quant("x", "y", **attributes)
    proto = model([layer], [value("x", np.float32, (3, 2))], ["y"], held)
    with pytest.raises(ImportModelError, match=message):
        import_onnx(proto.SerializeToString())

"""Products that stay on the host are counted, with the reason and what to do about it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement.host_products import ADVICE, INPUT
from tilewright.flows.cli.main import main
from tilewright.isa.configuration import PRESETS

from .onnx_models import node
from .test_constant_operands import Model

QUANTISE = ADVICE[INPUT]
IMAGE = (1, 4, 6, 6)


def conv(built: Model, x: str, *, quantised: bool = True, wide: bool = False) -> str:
    """With `wide`, uint8 weights whose zero point takes them beyond int8."""
    weights = built.weights(4, 4, 3, 3, axis=0)
    if wide:
        integers = built.numbers.integers(0, 256, (4, 4, 3, 3)).astype(np.uint8)
        held = built.hold(integers, "w"), built.hold(np.float32(0.01), "s")
        weights = built.node("DequantizeLinear", [*held, built.hold(np.uint8(9), "z")])
    if not quantised:
        weights = built.hold(built.numbers.normal(size=(4, 4, 3, 3)).astype(np.float32), "w")
    return built.node("Conv", [x, weights], pads=[1] * 4)


def wide(built: Model, x: str) -> str:
    held = [built.hold(np.float32(1e-3), "s"), built.hold(np.int16(0), "z")]
    return built.node("DequantizeLinear", [built.node("QuantizeLinear", [x, *held]), *held])


def report(built: Model, *outputs: str, opset: int = 21) -> Mapping[str, Any]:
    proto = built.made([*outputs], x=IMAGE)
    proto.opset_import[0].version = opset
    graph = import_model(proto.SerializeToString())
    return compile_module(graph, PRESETS["8x8"]).report


def test_a_fully_quantised_network_says_nothing():
    built = Model()
    y = built.quantised(conv(built, built.quantised("x")))
    found = report(built, y)
    assert (found["host_products"], found["idle"]) == ([], "")


def test_products_without_a_quantised_result_are_counted_with_the_reason():
    built = Model()
    x = built.quantised("x")
    inner = built.quantised(conv(built, x))
    ends = [built.node("Sigmoid", [conv(built, inner, wide=True)]) for _ in range(2)]
    late = built.quantised(conv(built, built.node("Sin", [inner])))
    found = report(built, *ends, late)
    (row,) = found["host_products"]
    assert row["sentence"] == (
        "3 of 4 convolutions run on the host: output not quantised (2), input not quantised (1); "
        + QUANTISE
    )
    assert found["idle"] == ""


CASES = {
    "floats": (
        lambda built: conv(built, "x", quantised=False),
        "1 of 1 convolution runs on the host: in float; a float model is to be quantised first: "
        "see `tilewright quantise`, or give samples with `--calibrate FILE`",
    ),
    "int16": (
        lambda built: wide(built, conv(built, wide(built, "x"))),
        "1 of 1 convolution runs on the host: quantised to int16; the accelerator multiplies "
        "int8: quantise the float model to 8 bits, as `tilewright quantise` does",
    ),
    "wide weights and Q/DQ at the inputs alone": (
        lambda built: built.node("Sigmoid", [conv(built, built.quantised("x"), wide=True)]),
        f"1 of 1 convolution runs on the host: output not quantised; {QUANTISE}",
    ),
    "weights alone": (
        lambda built: conv(built, "x"),
        "1 of 1 convolution runs on the host: in float; a float model is to be quantised first: "
        "see `tilewright quantise`, or give samples with `--calibrate FILE`",
    ),
    "no product": (
        lambda built: built.node("Sigmoid", ["x"]),
        "the network has no convolutions and no matrix products",
    ),
    "constants": (
        lambda built: built.node("Neg", [built.hold(np.ones((2, 2), np.float32), "c")]),
        "its outputs are constants or inputs, so there is nothing to compute",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_network_without_accelerated_layers_gets_advice_for_its_case(case):
    make, sentence = CASES[case]
    built = Model()
    assert report(built, make(built))["idle"] == sentence


def test_dynamically_quantised_products_ask_for_scales():
    built = Model()
    names = ["q", "s", "z"]
    built.nodes.append(node("DynamicQuantizeLinear", ["x"], names))
    weights = built.hold(built.numbers.integers(-60, 61, (6, 5)).astype(np.int8), "w")
    product = built.node("MatMulInteger", ["q", weights, "z"])
    y = built.node("Mul", [built.node("Cast", [product], to=onnx.TensorProto.FLOAT), "s"])
    assert report(built, y)["idle"].startswith(
        "1 of 1 dense layer runs on the host: scales computed at run time; the accelerator needs "
    )


def test_one_layer_is_no_plural(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    built = Model()
    y = built.quantised(conv(built, built.quantised("x")))
    onnx.save(built.made([y], x=IMAGE), "one.onnx")
    assert main(["compile", "one.onnx", "--config", "8x8", "-o", "one.tw"]) == 0
    assert "one.tw: 1 accelerator layer in " in capsys.readouterr().out

"""Products that stay on the host are counted, with the reason and what to do about it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph.macs import all_macs_of
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import HOST, Placement
from tilewright.compiler.placement.host_products import (
    ADVICE,
    BY_CHANNEL,
    DOUBLE,
    IN_FLOAT,
    INPUT,
    OPERANDS,
    PLACED,
    QUOTIENT,
    RESULT,
    UNFIT,
    WEIGHTS,
)
from tilewright.flows.cli.main import main
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

from .onnx_models import node
from .test_constant_operands import Model

QUANTISE = ADVICE[INPUT]
NO_PRODUCT = "no convolution and no matrix product depends on the network's inputs"
IMAGE = (1, 4, 6, 6)


def conv(built: Model, x: str, *, quantised: bool = True) -> str:
    weights = built.weights(4, 4, 3, 3, axis=0)
    if not quantised:
        weights = built.hold(built.numbers.normal(size=(4, 4, 3, 3)).astype(np.float32), "w")
    return built.node("Conv", [x, weights], pads=[1] * 4)


def wide(built: Model, x: str) -> str:
    held = [built.hold(np.float32(1e-3), "s"), built.hold(np.int16(0), "z")]
    return built.node("DequantizeLinear", [built.node("QuantizeLinear", [x, *held]), *held])


def by_channel(built: Model, x: str) -> str:
    held = [
        built.hold(np.array([0.05, 0.04, 0.03, 0.02], np.float32), "s"),
        built.hold(np.zeros(4, np.int8), "z"),
    ]
    q = built.node("QuantizeLinear", [x, *held], axis=1)
    return built.node("DequantizeLinear", [q, *held], axis=1)


def doubles(built: Model) -> str:
    wider = built.node("Cast", ["x"], to=onnx.TensorProto.DOUBLE)
    product = built.node("MatMul", [wider, built.hold(np.ones((6, 6)), "w")])
    return built.node("Cast", [product], to=onnx.TensorProto.FLOAT)


def held(built: Model, *shape: int) -> str:
    return built.hold(built.numbers.normal(size=shape).astype(np.float32), "floats")


def long(built: Model) -> str:
    """33,120 products of up to 255 * 255."""
    spread = built.node("Expand", ["x", built.hold(np.array((230, 4, 6, 6)), "shape")])
    shapes = [built.hold(np.array(shape), "shape") for shape in ((1, -1), (-1, 1))]
    q = built.quantised(spread, 0.05, -128)
    return built.node("MatMul", [built.node("Reshape", [q, shape]) for shape in shapes])


def floats(built: Model, x: str) -> str:
    return conv(built, x, quantised=False)


def recurrent(built: Model, x: str) -> str:
    series = built.node("Reshape", [x, built.hold(np.array([6, 4, 6]), "shape")])
    return built.node("LSTM", [series, held(built, 1, 16, 6), held(built, 1, 16, 4)], hidden_size=4)


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


def test_products_in_float_are_counted_with_the_reason():
    built = Model()
    x = built.quantised("x")
    inner = built.quantised(conv(built, x))
    ends = [built.node("Sigmoid", [floats(built, inner)]) for _ in range(2)]
    late = built.quantised(conv(built, built.node("Sin", [inner])))
    found = report(built, *ends, late)
    (row,) = found["host_products"]
    assert row["sentence"] == (
        f"3 of 4 convolutions run on the host: {WEIGHTS} (2), input not quantised (1); "
        f"{ADVICE[WEIGHTS]}"
    )
    assert found["idle"] == ""


PLACEMENTS = {
    "quantised alone": {},
    "placed": {"placement": Placement(forced=(("Conv7.0", HOST),))},
    "host": {"placement": Placement(HOST)},
    "too large": {"configuration": PRESETS["8x8"].replace(tile_loops=1)},
}


@pytest.mark.parametrize("case", PLACEMENTS)
def test_each_multiplication_is_accelerated_or_explained(case):
    """The profile of a run counts by layer, wherever it ran; the report counts by reason."""
    built = Model()
    first = built.quantised(conv(built, built.quantised("x")))
    second = conv(built, built.node("Sin", [built.quantised(conv(built, first))]), quantised=False)
    mean = built.node("ReduceMean", [second, built.hold(np.array([1]), "axes")])
    variance = built.node("Mul", [mean, mean])
    spread = built.node("ReduceSumSquare", [second, built.hold(np.array([1]), "axes")])
    graph = import_model(built.made([variance, spread], x=IMAGE).SerializeToString())
    asked = {"configuration": PRESETS["8x8"], **PLACEMENTS[case]}
    module = compile_module(graph, **asked)
    rows = module.report["host_products"]
    x = built.numbers.normal(size=IMAGE).astype(np.float32)
    for least_work in (0, None):
        with open_device("sim", asked["configuration"]) as device:
            profile = Session(module, device, least_work=least_work).run({"x": x}).profile
        assert profile.all_macs == all_macs_of(graph, graph.nodes) == 3 * 36 * 4 * 36
        assert profile.all_macs - profile.macs == sum(row["macs"] for row in rows)
    expected = {"placed": {PLACED: 1}, "host": {PLACED: 2}, "too large": {UNFIT: 2}}
    assert rows[0]["reasons"] == {IN_FLOAT: 1, **expected.get(case, {})}


CASES = {
    "floats": (
        lambda built: conv(built, "x", quantised=False),
        "1 of 1 convolution runs on the host: in float; a float model is to be quantised first: "
        "see `tilewright quantise`; `run` and `compile` take `--calibrate FILE` too",
    ),
    "int16": (
        lambda built: wide(built, conv(built, wide(built, "x"))),
        "1 of 1 convolution runs on the host: quantised to int16; the accelerator multiplies "
        "int8: quantise the float model to 8 bits, as `tilewright quantise` does",
    ),
    "float weights and Q/DQ at the inputs alone": (
        lambda built: built.node("Sigmoid", [floats(built, built.quantised("x"))]),
        f"1 of 1 convolution runs on the host: {WEIGHTS}; {ADVICE[WEIGHTS]}",
    ),
    "a product that int32 does not hold": (
        lambda built: long(built),
        f"1 of 1 matrix product runs on the host: {OPERANDS}; {ADVICE[OPERANDS]}",
    ),
    "activations with a scale for each channel": (
        lambda built: conv(built, by_channel(built, "x")),
        f"1 of 1 convolution runs on the host: {OPERANDS}; {ADVICE[OPERANDS]}",
    ),
    "double precision": (
        lambda built: doubles(built),
        f"1 of 1 dense layer runs on the host: in double precision; {ADVICE[DOUBLE]}",
    ),
    "weights alone": (
        lambda built: conv(built, "x"),
        "1 of 1 convolution runs on the host: in float; a float model is to be quantised first: "
        "see `tilewright quantise`; `run` and `compile` take `--calibrate FILE` too",
    ),
    "a float layer in a quantised network": (
        lambda built: floats(built, built.node("Sin", [built.quantised("x")])),
        f"1 of 1 convolution runs on the host: in float; {QUANTISE}",
    ),
    "a recurrent layer with a quantised input": (
        lambda built: recurrent(built, built.quantised("x")),
        f"1 of 1 recurrent layer runs on the host: in float; {QUANTISE}",
    ),
    "a float product without weights": (
        lambda built: built.node("MatMul", ["x", built.node("Sin", ["x"])]),
        "1 of 1 matrix product runs on the host: in float",
    ),
    "a convolution of constants": (
        lambda built: built.node("Add", ["x", floats(built, held(built, *IMAGE))]),
        NO_PRODUCT,
    ),
    "no product": (
        lambda built: built.node("Sigmoid", ["x"]),
        NO_PRODUCT,
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


FLOATS = {
    "convolution": lambda built: floats(built, "x"),
    "weights of bytes": lambda built: conv(built, "x"),
    "transposed": lambda built: built.node("ConvTranspose", ["x", held(built, 4, 3, 2, 2)]),
    "recurrent layer": lambda built: recurrent(built, "x"),
    "dense layer": lambda built: built.node("MatMul", ["x", held(built, 6, 5)]),
    "weights of each batch": lambda built: built.node("MatMul", ["x", held(built, 4, 6, 5)]),
    "weights on the left": lambda built: built.node("MatMul", [held(built, 5, 6), "x"]),
    "activations": lambda built: built.node("MatMul", ["x", built.node("Sin", ["x"])]),
    "quantised network": lambda built: floats(built, built.node("Sin", [built.quantised("x")])),
    "double precision": lambda built: doubles(built),
}  # fmt: skip


def quantise(folder: Path, built: Model, output: str, count: int = 4) -> int:
    proto = built.made([output], x=IMAGE)
    proto.opset_import[0].version = 21
    onnx.save(proto, folder / "model.onnx")
    samples = built.numbers.normal(size=(count, *IMAGE[1:])).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    names = [str(folder / name) for name in ("model.onnx", "samples.npz", "int8.onnx")]
    return main(["quantise", names[0], "--calibrate", names[1], "-o", names[2]])


@pytest.mark.parametrize("case", FLOATS)
def test_who_is_told_to_quantise_can(case, tmp_path):
    """`quantise` accepts a model exactly if the report says to quantise it."""
    built = Model()
    output = FLOATS[case](built)
    told = ADVICE[IN_FLOAT] in report(built, output)["idle"]
    assert told == (quantise(tmp_path, built, output) == 0)


def test_a_model_of_int16_can_be_quantised_to_int8(tmp_path):
    built = Model()
    assert quantise(tmp_path, built, wide(built, conv(built, wide(built, "x")))) == 0
    graph = import_model((tmp_path / "int8.onnx").read_bytes())
    assert compile_module(graph, PRESETS["8x8"]).report["host_products"] == []


def test_what_cannot_be_quantised_runs_as_it_is(tmp_path, capsys):
    """Folded to constants, in float64, or quantised."""
    built = Model()
    assert quantise(tmp_path, built, floats(built, held(built, *IMAGE))) == 1
    said = capsys.readouterr().err
    assert said.endswith("weights to quantise, got none; run it as it is, without calibration\n")
    built = Model()
    assert quantise(tmp_path, built, doubles(built)) == 1
    said = capsys.readouterr().err
    assert said.endswith("to quantise, got none in float32; export it in float32\n")
    built = Model()
    assert quantise(tmp_path, built, built.quantised(conv(built, built.quantised("x")))) == 1
    said = capsys.readouterr().err
    assert said.endswith(
        "give the float model that it was made from, or run it as it is, without calibration\n"
    )


@pytest.mark.parametrize(
    ("operator", "kind", "reason"),
    [
        ("Div", "quotient", QUOTIENT),
        ("Mul", "elementwise product", BY_CHANNEL),
        ("Sub", "elementwise sum", "quantised to int16"),
        ("Add", "elementwise sum", RESULT),
        ("Mul", "elementwise product", INPUT),
    ],
)
def test_elementwise_products_and_sums_on_the_host_have_a_reason(operator, kind, reason):
    """A value for each channel meets a whole image; another sum runs in int8."""
    built = Model()
    x = built.quantised(conv(built, built.quantised("x")))
    mean = built.quantised(built.node("GlobalAveragePool", [x]))
    given = {BY_CHANNEL: by_channel, "quantised to int16": wide}.get(reason)
    mean = built.node("Sigmoid", [mean]) if reason == INPUT else mean
    y = built.node(operator, [given(built, "x") if given else x, mean])
    y = y if reason == RESULT else built.quantised(y)
    total = built.quantised(built.node("Add", [x, built.quantised(conv(built, x))]))
    rows = report(built, y, total)["host_products"]
    whole = 2 if kind == "elementwise sum" else 1
    said = f"1 of {whole} {kind}{'s' * (whole > 1)} runs on the host: {reason}"
    assert [row["sentence"] for row in rows] == [
        f"{said}; {QUANTISE}" if reason in (INPUT, RESULT) else said
    ]


def test_sums_with_values_that_were_never_quantised_need_no_reason():
    """Quantisers of matrix products alone leave residual sums in float."""
    built = Model()
    x = built.quantised(conv(built, built.quantised("x")))
    mean = built.node("Sigmoid", [built.quantised(built.node("GlobalAveragePool", [x]))])
    total = built.quantised(built.node("Add", [x, mean]))
    assert report(built, total)["host_products"] == []


def test_dynamically_quantised_products_leave_as_sums():
    built = Model()
    names = ["q", "s", "z"]
    built.nodes.append(node("DynamicQuantizeLinear", ["x"], names))
    weights = built.hold(built.numbers.integers(-60, 61, (6, 5)).astype(np.int8), "w")
    product = built.node("MatMulInteger", ["q", weights, "z"])
    y = built.node("Mul", [built.node("Cast", [product], to=onnx.TensorProto.FLOAT), "s"])
    assert report(built, y)["host_products"] == []


def test_one_layer_is_no_plural(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    built = Model()
    y = built.quantised(conv(built, built.quantised("x")))
    onnx.save(built.made([y], x=IMAGE), "one.onnx")
    assert main(["compile", "one.onnx", "--config", "8x8", "-o", "one.tw"]) == 0
    assert "one.tw: 1 accelerator layer in " in capsys.readouterr().out
    assert main(["run", "one.onnx", "--config", "8x8", "--compare"]) == 0
    assert "1 of 1 accelerator layer equal in every value" in capsys.readouterr().out


def test_one_sample_is_no_plural(tmp_path, capsys):
    built = Model()
    assert quantise(tmp_path, built, floats(built, "x"), count=1) == 0
    said = capsys.readouterr()
    assert "calibration    1 of 1 sample of " in said.out
    assert "\nevaluated on 1 sample that " in said.out
    assert "1 samples" not in said.out + said.err

"""Masks in files that another tool quantised, around scores that stay between float operators."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnxruntime import quantization

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Builder, Output, TensorType, Value
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes.plain_attention import ADD, MULTIPLY, plain_attention
from tilewright.compiler.passes.recognise_rows import recognise_rows
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ImportModelError

from .attention_networks import assert_one_program
from .mask_forms import MASKED
from .onnx_models import run_onnxruntime
from .test_transformer_forms import MACHINE
from .transformer_forms import Block

BIASED = "T5's biases", "BLOOM's biases"
"""Forms with biases of scores in float, for which such a file has no scale."""

ADDED = "input that is added"


class Samples(quantization.CalibrationDataReader):
    def __init__(self, block: Block) -> None:
        self.drawn = iter([block.draw(seed) for seed in range(20, 28)])

    def get_next(self):
        return next(self.drawn, None)


@pytest.fixture
def quantised(tmp_path) -> Callable[[str], tuple[Block, onnx.ModelProto]]:
    """A form whose products alone ONNX Runtime has quantised, with their operands and results."""

    def quantise(name: str) -> tuple[Block, onnx.ModelProto]:
        block = Block(len(name))
        proto = block.model(MASKED[name](block))
        for opset in proto.opset_import:
            opset.version = min(opset.version, 20)  # the highest that it quantises
        given, made = tmp_path / "float.onnx", tmp_path / "int8.onnx"
        onnx.save(proto, given)
        quantization.quantize_static(
            given, made, Samples(block), op_types_to_quantize=["MatMul"],
            activation_type=quantization.QuantType.QInt8,
        )  # fmt: skip
        return block, onnx.load(made)

    return quantise


def is_masked(given: dict[str, np.ndarray]) -> bool:
    """Tell whether masks that are inputs exclude some elements and keep others."""
    return all((mask == 0).any() and (mask != 0).any() for n, mask in given.items() if n != "x")


def masks_of(name: str) -> list[str]:
    return ["mask"] if name == ADDED else []


@pytest.mark.parametrize("name", [name for name in MASKED if name not in BIASED])
def test_a_mask_in_float_stays_in_one_program(quantised, name):
    block, proto = quantised(name)
    module = compile_module(import_model(proto.SerializeToString(), masks=masks_of(name)), MACHINE)
    assert module.report["host_products"] == []
    given = next(filter(is_masked, map(block.draw, range(7, 50))))
    (expected,) = run_onnxruntime(proto, given, optimise=False).values()
    assert_one_program(module, given, expected, 38)


def test_an_input_that_is_added_needs_a_word(quantised):
    _, proto = quantised(ADDED)
    module = compile_module(import_model(proto.SerializeToString()), MACHINE)
    (row,) = module.report["host_products"]
    assert row["sentence"] == (
        "softmax in float on the host, as input `mask` is added and may hold any numbers: if they "
        "are a mask, 0 and below -1,000, give `--mask mask`"
    )


@pytest.mark.parametrize("name", BIASED)
def test_a_bias_in_float_keeps_the_softmax_on_the_host(quantised, name):
    _, proto = quantised(name)
    module = compile_module(import_model(proto.SerializeToString()), MACHINE)
    assert module.report["host_products"] == []
    assert any(isinstance(node.attributes, ops.Softmax) for node in module.graph.nodes)


@pytest.mark.parametrize(("kind", "number"), [("Mul", -1), ("Mul", 0), ("Div", 0), ("Div", -2)])
def test_scores_times_other_numbers_are_no_scores(kind, number):
    builder = Builder("scores", [Value("x", TensorType("int8", (1, 2, 3, 8)))])
    scores = builder.emit(ops.Dequantize((0.1,), (3,)), ["x"])
    factor = builder.constant(np.array(number, np.float32))
    scaled = builder.emit(ops.Binary(kind), [scores, factor])
    shares = builder.emit(ops.Softmax(3, 4), [scaled])
    shown = builder.emit(ops.Quantize((1 / 255,), (-128,), "int8"), [shares])
    graph = builder.graph([Output("y", shown)])
    found = recognise_rows(graph, MACHINE)
    assert not any(isinstance(node.attributes, ops.QSoftmax) for node in found.nodes)


@pytest.mark.parametrize(
    ("chosen", "masked", "joined"),
    [("m", "not m", True), ("not m", "not m", False), ("m", "m", False), ("m", "n", False)],
)
def test_a_factor_falls_away_if_the_mask_is_there_where_it_is_0(chosen, masked, joined):
    inputs = [Value(name, TensorType("float32", (1, 4))) for name in "xmn"]
    builder = Builder("products", inputs)
    one, large = (builder.constant(np.array(n, np.float32)) for n in (1, -1e4))
    names = {"m": "m", "n": "n", "not m": builder.emit(ops.Binary("Sub"), [one, "m"])}
    mask = builder.emit(MULTIPLY, [large, names[masked]])
    total = builder.emit(ADD, [mask, builder.emit(MULTIPLY, [names[chosen], "x"])])
    graph = builder.graph([Output("y", builder.emit(ops.Softmax(1, 2), [total]))])
    kinds = [node.attributes for node in plain_attention(graph).nodes]
    assert kinds.count(MULTIPLY) == (1 if joined else 2)


@pytest.mark.parametrize("name", ["absent", "kept"])
def test_a_mask_that_is_no_float_input_is_refused(quantised, name):
    _, proto = quantised("TensorFlow's mask")
    with pytest.raises(ImportModelError) as error:
        import_model(proto.SerializeToString(), masks=[name])
    assert str(error.value) == (
        f"model `model`: expected float inputs for masks, got `{name}`; its float inputs are `x`"
    )

"""Dense layers on a matrix: whichever axes its rows come from, weights are loaded once for all."""

import math

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.sim.timing import ExactMeasure

from .onnx_models import floats, model, node, scalars, value

MACHINE = PRESETS["16x16"]
CHANNELS, WIDER = 64, 192


def dense_layers(rows: tuple[int, ...]) -> bytes:
    """Two dense layers in QDQ on int8[*rows, CHANNELS]."""
    chance = np.random.default_rng(0)
    constants = {
        **scalars(scale=0.03, zero=np.int8(2), step=0.002, none=np.int8(0)),
        "first": chance.integers(-127, 128, (CHANNELS, WIDER)).astype(np.int8),
        "second": chance.integers(-127, 128, (WIDER, CHANNELS)).astype(np.int8),
        "bias": floats(chance.normal(size=WIDER)),
    }
    nodes = [
        node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        node("DequantizeLinear", ["first", "step", "none"], ["w"]),
        node("MatMul", ["real", "w"], ["product"]),
        node("Add", ["product", "bias"], ["sum"]),
        node("QuantizeLinear", ["sum", "scale", "zero"], ["middle"]),
        node("DequantizeLinear", ["middle", "scale", "zero"], ["between"]),
        node("DequantizeLinear", ["second", "step", "none"], ["v"]),
        node("MatMul", ["between", "v"], ["result"]),
        node("QuantizeLinear", ["result", "scale", "zero"], ["y"]),
    ]
    inputs = [value("x", np.int8, [*rows, CHANNELS])]
    return model(nodes, inputs, ["y"], constants).SerializeToString()


@pytest.mark.parametrize("rows", [(48,), (1, 48), (8, 6), (2, 4, 6), (3, 1, 16)])
def test_rows_of_any_leading_axes_take_as_long_as_one_image_of_them(rows):
    graph = import_model(dense_layers(rows))
    compiled = compile_module(graph, MACHINE, measure=ExactMeasure())
    (segment,) = compiled.segments
    alone = compile_module(import_model(dense_layers((1, math.prod(rows)))), MACHINE,
                          measure=ExactMeasure())  # fmt: skip
    assert compiled.report["cycles"] < 1.05 * alone.report["cycles"]
    x = np.random.default_rng(1).integers(-128, 128, (*rows, CHANNELS)).astype(np.int8)
    (given,), (made,) = segment.inputs, segment.outputs
    image = segment.image({given.name: x.reshape(given.shape)})
    with open_device("sim", MACHINE) as device:
        device.run(segment.program, image)
    expected = evaluate(graph, {"x": x})["y"]
    assert np.array_equal(made.read(image).reshape(expected.shape), expected)

"""Quantised conformer blocks: one program between the first quantise and the last dequantise."""

import numpy as np
import pytest

from tests.compiler.attention_networks import quantised
from tests.compiler.conformers import FORMS, conformer, inputs_of
from tests.compiler.onnx_models import run_onnxruntime
from tilewright.compiler.graph import Builder, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.lift_sequences import lift_sequences
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

ROWS = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")
QUICK = "PyTorch", "spectrogram"


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FORMS],
)
def test_a_conformer_block_is_one_program(name):
    form = FORMS[name]
    proto = conformer(form)
    graph = import_onnx(proto.SerializeToString())
    given = {key: each[0] for key, each in inputs_of(form, 1, 9).items()}
    (in_float,) = evaluate(graph, given).values()
    if form.swish != "operator":  # of opset 24, which ONNX Runtime lacks
        (reference,) = run_onnxruntime(proto, given).values()
        np.testing.assert_allclose(in_float, reference, atol=1e-5)
    module = quantised(graph, inputs_of(form, 12, 5), ROWS)
    inside = [step for step in module.steps if isinstance(step, int)]
    first = module.steps.index(inside[0])
    after = [module.graph.producer(str(step)) for step in module.steps[first + 1 :]]
    assert inside == [0], [node.op for node in module.graph.nodes]
    assert [node.op for node in after if node and node.op != "reshape"] == ["dequantize"]
    (found,) = Session(module, open_device("sim", ROWS)).run(given).outputs.values()
    (expected,) = evaluate(module.graph, given).values()
    assert np.array_equal(found, expected)
    noise = np.square(found - in_float).mean()
    assert 10 * np.log10(np.square(in_float).mean() / noise) > 18


# Sequences as images ------------------------------------------------------------------------------

SHAPE = 2, 3, 7


def sunk(emit):
    """Lift a function of a sequence that comes from an image; return both graphs."""
    image = Value("x", TensorType("float32", (*SHAPE[:2], 1, SHAPE[2])))
    other = Value("y", TensorType("float32", SHAPE))
    builder = Builder("sunk", [image, other])
    sequence = builder.emit(ops.Reshape(SHAPE), ["x"])
    graph = builder.graph([Output("z", emit(builder, sequence))])
    return graph, lift_sequences(graph)


CASES = {
    "constant": lambda b, s: b.emit(
        ops.Binary("Sub"), [b.constant(np.arange(3, dtype=np.float32)[:, None], "c"), s]
    ),
    "sum": lambda b, s: b.emit(ops.Binary("Add"), [s, "y"]),
    "table": lambda b, s: b.emit(ops.Unary("Tanh"), [s]),
    "slice": lambda b, s: b.emit(ops.Slice((0, 1, 2), (2, 3, 7), (1, 1, 2)), [s]),
    "pad": lambda b, s: b.emit(ops.Pad((0, 0, 3), (0, 1, 0), 0.5), [s]),
    "concat of channels": lambda b, s: b.emit(ops.Concat(1), [s, "y"]),
    "concat of frames": lambda b, s: b.emit(ops.Concat(2), ["y", s]),
    "scales of channels": lambda b, s: b.emit(
        ops.Quantize((0.1, 0.2, 0.3), (0, 1, 2), "int8", axis=1), [s]
    ),
    "scales of frames": lambda b, s: b.emit(
        ops.Quantize((0.1,) * 6 + (0.3,), (0,) * 7, "int8", axis=2), [s]
    ),
}


@pytest.mark.parametrize("emit", CASES.values(), ids=CASES)
def test_functions_of_sequences_become_functions_of_images(emit):
    graph, lifted = sunk(emit)
    assert lifted.nodes[-1].op == "reshape"
    function = lifted.producer(lifted.nodes[-1].inputs[0])
    assert function is not None
    assert len(function.output.type.shape) == 4
    chance = np.random.default_rng(2)
    given = {
        value.name: chance.normal(0, 1, value.type.shape).astype(np.float32)
        for value in graph.inputs
    }
    assert np.array_equal(evaluate(lifted, given)["z"], evaluate(graph, given)["z"])


def test_a_sequence_that_is_broadcast_stays():
    def emit(builder, sequence):
        wide = builder.constant(np.ones((4, 1, 1, 1), np.float32), "wide")
        return builder.emit(ops.Binary("Mul"), [sequence, wide])

    graph, lifted = sunk(emit)
    assert lifted.nodes == graph.nodes

"""Recurrent layers of few steps become dense layers, which the accelerator runs in int8."""

import json
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import recognise_layers
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate, verify
from tilewright.compiler.graph.operators import QBlend, Recurrent
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes import expand_recurrent_layers
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import Batches, accelerated_share, quantise
from tilewright.compiler.quantiser.options import QuantiserOptions
from tilewright.errors import InputError
from tilewright.flows.cli.main import main
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Session, open_device

from .onnx_models import model, node, run_onnxruntime, value

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
SAMPLES, FEATURES, HIDDEN = 2, 3, 5


def layer(
    kind: str,
    steps: int,
    direction: str = "forward",
    zeros: bool = False,
    names: tuple[str, ...] = (),
    of_bytes: bool = False,
    **flags,
) -> Graph:
    """A layer of which all outputs are shown."""
    random, directions = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    state = TensorType("float32", (directions, SAMPLES, HIDDEN))
    inputs = [Value("x", TensorType("float32", (steps, SAMPLES, FEATURES)))]
    states = ["h", "c"][: 2 if kind == "LSTM" else 1]
    if not zeros:
        inputs += [Value(name, state) for name in states]
    builder = Builder("net", inputs)
    gates = GATES[kind] * HIDDEN
    weights = [(directions, gates, n) for n in (FEATURES, HIDDEN)] + [(directions, 2 * gates)]
    operands = [
        "x",
        *(builder.constant(random.normal(0, 0.7, shape).astype(np.float32)) for shape in weights),
    ]
    operands.append(builder.constant(np.full(SAMPLES, flags.pop("lengths", steps), np.int32)))
    empty = np.zeros(state.shape, np.float32)
    operands += [builder.constant(empty) for _ in states] if zeros else states
    if kind == "LSTM":
        operands.append(builder.constant(np.zeros((directions, 3 * HIDDEN), np.float32)))
    activations = tuple((name, 0.0, 0.0) for name in names or USUAL[kind]) * directions
    if of_bytes:
        for place in (1, 2):
            w = random.integers(-127, 128, weights[place - 1]).astype(np.int8)
            operands[place] = builder.constant(w)
            operands.append(builder.constant(np.full(w.shape[:2], 0.007, np.float32)))
    operator = Recurrent(kind, direction, activations, **flags)
    outputs = ["all", "last", "cell"][: len(states) + 1]
    made = builder.emit_outputs(operator, operands, "layer", outputs)
    return builder.graph([Output(name, name) for name in made])


def draw_inputs(graph: Graph, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        each.name: random.normal(0, 1, each.type.shape).astype(np.float32) for each in graph.inputs
    }


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("RNN", {}),
        ("RNN", {"names": ("Relu",)}),
        ("RNN", {"names": ("ThresholdedRelu",)}),
        ("LSTM", {}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": True}),
        ("GRU", {"of_bytes": True}),
        ("LSTM", {"of_bytes": True}),
    ],
)
def test_cells_are_the_layer(kind, flags, direction, steps, zeros) -> None:
    graph = layer(kind, steps, direction, zeros, **flags)
    cells = verify(expand_recurrent_layers(graph))
    assert "recurrent" not in {node.op for node in cells.nodes}
    inputs = draw_inputs(graph)
    found, expected = evaluate(cells, inputs), evaluate(graph, inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        layer("GRU", 65),
        layer("LSTM", 2, clip=1.0),
        layer("LSTM", 2, input_forget=True),
        layer("LSTM", 3, lengths=2),
        layer("RNN", 2, names=("Affine",)),
    ],
    ids=["long", "clipped", "coupled", "ragged", "affine"],
)
def test_other_layers_stay(graph) -> None:
    assert expand_recurrent_layers(graph) is graph


def test_a_layer_with_scales_that_are_inputs_stays() -> None:
    builder = Builder("net", [Value("x", TensorType("float32", (2, 1, 3)))])
    scales = [
        builder.input(Value("w_scale", TensorType("float32", (1, 4)))),
        builder.constant(np.ones((1, 4), np.float32)),
    ]
    operands = [
        "x",
        builder.constant(np.ones((1, 4, 3), np.int8)),
        builder.constant(np.ones((1, 4, 4), np.int8)),
        builder.constant(np.zeros((1, 8), np.float32)),
        builder.constant(np.full(1, 2, np.int32)),
        builder.constant(np.zeros((1, 1, 4), np.float32)),
    ]
    operator = Recurrent("RNN", "forward", (("Tanh", 0.0, 0.0),))
    made = builder.emit_outputs(operator, [*operands, *scales], "layer", ["all", "last"])
    graph = builder.graph([Output(name, name) for name in made])
    assert expand_recurrent_layers(graph) is graph


def test_a_long_sequence_stays_with_a_sentence() -> None:
    random = np.random.default_rng(4)
    held = {
        "w": random.normal(0, 0.3, (1, 20, 8)).astype(np.float32),
        "r": random.normal(0, 0.3, (1, 20, 5)).astype(np.float32),
        "k": random.normal(0, 0.3, (8, 8)).astype(np.float32),
    }
    nodes = [
        node("MatMul", ["x", "k"], ["z"]),
        node("LSTM", ["z", "w", "r"], ["y"], hidden_size=5),
    ]
    given = model(nodes, [value("x", np.float32, (65, 1, 8))], ["y"], held)
    samples = {"x": random.normal(0, 1, (4, 65, 1, 8)).astype(np.float32)}
    graph = import_onnx(given.SerializeToString())
    integer = quantise(graph, Batches(samples, 1)).integer_graph()
    (row,) = compile_module(integer, DEFAULT).report["host_products"]
    assert row["sentence"].startswith("1 of 1 recurrent layer runs on the host: more than 64 steps")
    assert "give the sequence in parts, with the states as inputs and outputs" in row["sentence"]


FRAME, STATE, FRAMES = 24, 32, 40


def streaming(kind: str) -> bytes:
    """A network that takes one frame and its states: recurrent layer, dense layer, clamp.

    The weights of the layer are int8 behind DequantizeLinear, as weight-only quantisation has it.
    """
    random, gates = np.random.default_rng(2), GATES[kind] * STATE
    held: dict[str, Any] = {
        name: random.integers(-127, 128, shape).astype(np.int8)
        for name, shape in (("wi", (1, gates, FRAME)), ("ri", (1, gates, STATE)))
    }
    held |= {"scale": np.float32(0.003), "zero": np.int8(0)}
    held["k"] = random.normal(0, 0.3, (STATE, FRAME)).astype(np.float32)
    held["b"] = random.normal(0, 0.3, (1, 2 * gates)).astype(np.float32)
    states = ["h", "c"][: 2 if kind == "LSTM" else 1]
    flags: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [
        node("DequantizeLinear", ["wi", "scale", "zero"], ["w"]),
        node("DequantizeLinear", ["ri", "scale", "zero"], ["r"]),
        node(kind, ["x", "w", "r", "b", "", *states], ["all", *(f"{s}_out" for s in states)],
             hidden_size=STATE, **flags),
        node("MatMul", ["h_out", "k"], ["y"]),
    ]  # fmt: skip
    inputs = [value("x", np.float32, (1, 1, FRAME))]
    inputs += [value(name, np.float32, (1, 1, STATE)) for name in states]
    return model(nodes, inputs, ["y", *(f"{s}_out" for s in states)], held).SerializeToString()


def frames() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, (FRAMES, 1, 1, FRAME)).astype(np.float32)


def states_of(kind: str) -> dict[str, str]:
    return {name: f"{name}_out" for name in (("h", "c") if kind == "LSTM" else ("h",))}


def in_sequence(graph: Graph, kind: str, x: np.ndarray) -> tuple[np.ndarray, dict]:
    """The first output for each frame, and the states ahead of each."""
    held = {name: np.zeros((1, 1, STATE), np.float32) for name in states_of(kind)}
    outputs, ahead = [], {name: [] for name in held}
    for frame in x:
        for name, array in held.items():
            ahead[name].append(array)
        found = evaluate(graph, {"x": frame, **held})
        outputs.append(found["y"])
        held = {name: found[output] for name, output in states_of(kind).items()}
    return np.stack(outputs), {name: np.stack(arrays) for name, arrays in ahead.items()}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_stream_runs_its_products_in_int8_and_keeps_its_state(kind) -> None:
    graph, x = import_onnx(streaming(kind)), frames()
    expected, ahead = in_sequence(graph, kind, x)
    integer = quantise(graph, Batches({"x": x, **ahead}, 1)).integer_graph()
    assert accelerated_share(integer) == 1
    meaning, _ = in_sequence(integer, kind, x)
    module = compile_module(integer, DEFAULT)
    assert len(module.segments) == 1, "gates and states stay on the accelerator"
    with open_device("sim", DEFAULT) as device:
        session = Session(module, device, states=states_of(kind))
        ours = np.stack([session.run({"x": frame}).outputs["y"] for frame in x])
        again = session.run(x[0]).outputs["y"]
        session.reset()
        fresh = session.run(x[0]).outputs["y"]
    np.testing.assert_array_equal(ours, meaning)
    np.testing.assert_array_equal(fresh, ours[0])
    assert not np.array_equal(again, fresh), "the state of the last frame matters"
    assert np.square(ours - expected).sum() < 1e-3 * np.square(expected).sum()


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(
    ("kind", "flags"), [("LSTM", {}), ("GRU", {"linear_before_reset": True}), ("GRU", {})]
)
def test_the_steps_of_a_sequence_keep_states_of_16_bits(kind, flags, direction) -> None:
    graph, count = layer(kind, 3, direction, **flags), 12
    samples = [draw_inputs(graph, seed) for seed in range(count)]
    batches = Batches({name: np.stack([one[name] for one in samples]) for name in samples[0]}, 1)
    integer = quantise(graph, batches, QuantiserOptions(effort="quick")).integer_graph()
    assert accelerated_share(integer) == 1
    steps = 3  # of both directions side by side
    blends = [node.attributes for node in integer.nodes if isinstance(node.attributes, QBlend)]
    assert sorted(one.low for one in blends) == [False] * steps + [True] * steps
    signal, noise = 0.0, 0.0
    for sample in samples:
        found, expected = (evaluate(one, sample)["all"] for one in (integer, graph))
        signal += float(np.square(expected).sum())
        noise += float(np.square(found - expected).sum())
    assert noise < 1e-3 * signal


def test_a_state_that_is_given_replaces_the_held_one() -> None:
    graph = recognise_layers(import_onnx(streaming("GRU")))
    x, given = frames()[0], np.full((1, 1, STATE), 0.5, np.float32)
    module = compile_module(graph, DEFAULT)
    with open_device("sim", DEFAULT) as device:
        session = Session(module, device, states={"h": "h_out"})
        run = session.run({"x": x, "h": given})
    assert run.inputs["h"] is given
    expected = evaluate(graph, {"x": x, "h": given})["y"]
    np.testing.assert_allclose(run.outputs["y"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("states", "got"),
    [({"h": "y"}, "float32[1, 1, 32] and float32[1, 1, 24]"), ({"g": "h_out"}, "nothing and")],
)
def test_a_state_is_an_input_and_an_output_of_one_type(states, got) -> None:
    module = compile_module(recognise_layers(import_onnx(streaming("GRU"))), DEFAULT)
    with open_device("sim", DEFAULT) as device, pytest.raises(InputError) as caught:
        Session(module, device, states=states)
    assert f"expected an input and an output of one type, got {got}" in str(caught.value)
    assert "inputs are `x`, `h`, outputs `y`, `h_out`" in str(caught.value)


def test_the_command_line_streams(tmp_path, capsys) -> None:
    source, file = tmp_path / "stream.onnx", tmp_path / "frames.npz"
    source.write_bytes(streaming("LSTM"))
    x = frames()
    proto_outputs, held = [], {name: np.zeros((1, 1, STATE), np.float32) for name in "hc"}
    for frame in x:
        found = run_onnxruntime(onnx.load_from_string(source.read_bytes()), {"x": frame, **held})
        proto_outputs.append(found["y"])
        held = {name: found[f"{name}_out"] for name in "hc"}
    np.savez(file, x=x, outputs=np.stack(proto_outputs))
    states = ("--state", "h=h_out", "--state", "c=c_out")
    asked = ("run", str(source), "--input", str(file), *states, "--json", "-", "--compare")
    assert main([*asked]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["comparison"]["equal"]
    assert said["sqnr_db"] > 100
    assert main([*asked, "--calibrate", str(file)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["comparison"]["equal"]
    assert said["totals"]["macs"] == 4 * STATE * (FRAME + STATE) + STATE * FRAME
    assert said["sqnr_db"] > 25

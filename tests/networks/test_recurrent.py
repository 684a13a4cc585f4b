"""Networks with LSTM and GRU, from the file to the outputs, beside ONNX Runtime."""

import json

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QConv, evaluate, is_accelerated
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser import accelerated_share, make_batches, quantise
from tilewright.compiler.quantiser.macs import macs
from tilewright.flows.cli.main import main

from ..compiler.onnx_models import run_onnxruntime
from .builder import run_on_sim
from .recurrent import FEATURES, FORMS, HIDDEN, TAGS, draw_inputs, lstm, tagger

on_each_level = pytest.mark.processor
"""For tests in which the host computes layers. Where the accelerator does, the kernels that are
left are those of `tests/compiler/host`."""

STEPS = 3
"""Of the sequences of `written`: a first step, a last one, and one between them both ways."""

CLOSE = 2e-6
"""Absolute; states and probabilities are at most 1, and libraries differ in `exp` and `tanh`."""


def peer(model: bytes, inputs) -> list[np.ndarray]:
    return list(run_onnxruntime(onnx.load_from_string(model), inputs).values())


def assert_close(ours, theirs, tolerance: float = CLOSE) -> None:
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@on_each_level
@pytest.mark.parametrize(
    ("directions", "batch", "steps"), [(2, 1, 12), (2, 3, 5), (1, 1, 1), (1, 2, 30)]
)
def test_a_tagger_agrees_with_onnxruntime(directions, batch, steps):
    model, inputs = tagger(directions), draw_inputs(directions, batch, steps)
    graph = import_model(model, dims={"batch": batch, "steps": steps})
    assert_close(run_on_sim(graph, inputs), peer(model, inputs))


@on_each_level
def test_states_that_the_caller_carries_give_what_one_long_sequence_gives():
    model, inputs = tagger(1), draw_inputs(1, 1, 12)
    whole = peer(model, inputs)
    graph = import_model(model, dims={"batch": 1, "steps": 3})
    states = {name: inputs[name] for name in ("h0", "c0", "g0")}
    for first in range(0, 12, 3):
        results = run_on_sim(graph, {"tokens": inputs["tokens"][:, first : first + 3], **states})
        states = dict(zip(states, results[1:], strict=True))
    assert_close(results, whole)
    forgetful = run_on_sim(graph, {**inputs, "tokens": inputs["tokens"][:, 9:]})
    assert np.abs(forgetful[0] - whole[0]).max() > 1e-3, "what is carried matters"


@on_each_level
@pytest.mark.parametrize("form", FORMS)
def test_an_lstm_is_the_same_as_operator_scan_and_loop(form):
    inputs = {"x": np.random.default_rng(3).normal(0, 1, (9, 1, FEATURES)).astype(np.float32)}
    model = lstm(form, steps=9)
    graph = import_model(model)
    assert {node.op for node in graph.nodes} >= {"recurrent" if form == "LSTM" else "matmul"}
    ours = run_on_sim(graph, inputs)
    assert ours[0].shape == (9, 1, HIDDEN)
    assert_close(ours, peer(model, inputs))
    assert_close(ours, peer(lstm("LSTM", steps=9), inputs))


@pytest.mark.parametrize("form", ["Scan", "Loop"])
def test_an_unrolled_cell_runs_on_the_accelerator(form):
    """Each step has two layers for each gate, but one where states are zeros; then the tags."""
    steps = 6
    graph = import_onnx(lstm(form, steps))
    samples = np.random.default_rng(4).normal(0, 1, (16, steps, 1, FEATURES)).astype(np.float32)
    result = quantise(graph, make_batches(graph, {"x": samples}))
    integer = result.integer_graph()
    layers = [node.attributes for node in integer.nodes if is_accelerated(node)]
    assert sum(isinstance(layer, QConv) for layer in layers) == 8 * (steps - 1) + 2
    assert accelerated_share(integer) == 1
    inputs = {"x": samples[0]}
    ours, meaning = run_on_sim(integer, inputs), evaluate(integer, inputs).values()
    assert all(np.array_equal(one, other) for one, other in zip(ours, meaning, strict=True))
    assert_close(ours, evaluate(graph, inputs).values(), tolerance=0.05)


def test_multiplications_of_recurrent_layers_count():
    graph = import_onnx(lstm("LSTM", steps=6))
    gates = 4 * HIDDEN * (FEATURES + HIDDEN)
    assert macs(graph) == (0, 6 * (gates + HIDDEN * TAGS))
    unrolled = import_onnx(lstm("Scan", steps=6))
    zeros = 4 * HIDDEN * HIDDEN
    assert macs(unrolled) == (0, macs(graph)[1] - zeros), "the first states' product is known"


@pytest.fixture
def written(tmp_path):
    """A tagger and its samples as files."""
    model = tmp_path / "tagger.onnx"
    model.write_bytes(tagger(2))
    drawn = [draw_inputs(2, 1, STEPS, seed) for seed in range(20)]
    outputs = np.stack([peer(model.read_bytes(), each)[0] for each in drawn])
    tokens, h0, c0, g0 = (
        np.stack([each[name] for each in drawn]) for name in ("tokens", "h0", "c0", "g0")
    )
    path = tmp_path / "samples.npz"
    np.savez(path, tokens=tokens, h0=h0, c0=c0, g0=g0, outputs=outputs)
    return model, path, ("--dim", f"steps={STEPS}")


def run_command(capsys, *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@on_each_level
def test_the_command_line_runs_a_tagger(written, capsys):
    model, samples, dims = written
    said = run_command(capsys, "run", model, *dims, "--input", samples)
    assert said["samples"] == 20
    assert said["sqnr_db"] > 120, "float, beside ONNX Runtime's"


@on_each_level
def test_random_tokens_are_words_of_the_embedding(written, capsys):
    model, _, dims = written
    assert run_command(capsys, "run", model, *dims, "--samples", 5)["samples"] == 5


def test_a_tagger_is_quantised_with_its_recurrent_layers(written, capsys):
    model, samples, dims = written
    asked = ("--input", samples, "--calibrate", samples, "--compare")
    said = run_command(capsys, "run", model, *dims, *asked)
    assert said["comparison"]["equal"]
    one_way = STEPS * 3 * HIDDEN * (2 * HIDDEN + HIDDEN)
    both_ways = 2 * STEPS * 4 * HIDDEN * (FEATURES + HIDDEN)
    assert said["totals"]["macs"] == both_ways + one_way + TAGS * HIDDEN
    assert said["sqnr_db"] > 30

"""The committed digits network is what its script describes, and is good enough to demonstrate."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate

FOLDER = Path(__file__).parents[2] / "examples"
MODEL = FOLDER / "digits" / "digits_int8_qdq.onnx"
SCANS = FOLDER / "digits" / "test_digits.npz"


@pytest.fixture(scope="module")
def script():
    """The training script as a module; the examples are no package."""
    spec = importlib.util.spec_from_file_location("train_digits", FOLDER / "train_digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def scans():
    return np.load(SCANS)


def test_model_exercises_every_kind_of_layer():
    kinds = {node.op_type for node in onnx.load(MODEL).graph.node}
    assert kinds >= {"Conv", "Add", "GlobalAveragePool", "Gemm", "QuantizeLinear"}


def test_committed_files_are_small():
    assert MODEL.stat().st_size < 300_000
    assert SCANS.stat().st_size < 300_000


def test_committed_scans_are_the_scripts_test_split(script, scans):
    training, test = script.load_scans()
    assert len(training.labels) == 1437
    np.testing.assert_array_equal(scans["inputs"], test.images)
    np.testing.assert_array_equal(scans["labels"], test.labels)


def assert_recognised(logits: np.ndarray, scans) -> None:
    right = np.mean(logits.argmax(axis=1) == scans["labels"])
    assert right >= 0.975
    # Other releases and processors may round the last bit of an int8 another way.
    step = 0.18883353
    assert np.mean(np.abs(logits - scans["outputs"]) < step / 2) > 0.99


def test_the_integer_definition_recognises_the_test_scans(scans):
    graph = import_model(MODEL, len(scans["inputs"]))
    (logits,) = evaluate(graph, {"scan": scans["inputs"]}).values()
    assert_recognised(logits, scans)


def test_onnxruntime_recognises_the_test_scans(script, scans):
    """Nothing is fused, so that it computes in float32 between roundings on every processor."""
    assert_recognised(script.logits_of(MODEL.read_bytes(), scans["inputs"]), scans)


def test_gradients_are_the_slopes_of_the_loss(script):
    """Central differences in float64 for ten weights of each parameter."""
    random = np.random.default_rng(1)
    p = {k: v.astype(np.float64) for k, v in script.initial_parameters(random).items()}
    x = random.random((4, 1, 8, 8))
    labels = np.array([3, 1, 4, 1])

    def loss() -> float:
        logits, _ = script.forward(p, x)
        logits = logits - logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(4), labels] - np.log(np.exp(logits).sum(axis=1))
        return -chosen.mean()

    g = script.gradients(p, x, labels)
    for name, value in p.items():
        for index in random.integers(0, value.size, 10):
            kept, step = value.flat[index], 1e-5
            value.flat[index] = kept + step
            above = loss()
            value.flat[index] = kept - step
            below = loss()
            value.flat[index] = kept
            slope = (above - below) / (2 * step)
            assert abs(slope - g[name].flat[index]) < 1e-4 * (1 + abs(slope)), name


@pytest.mark.slow
def test_script_reproduces_the_committed_accuracy(script, scans, tmp_path, monkeypatch):
    """On another machine single weights may differ, hence outputs; how good it is may not."""
    monkeypatch.setattr(sys, "argv", ["train_digits.py", "--output", str(tmp_path)])
    script.main()
    outputs = np.load(tmp_path / SCANS.name)["outputs"]
    labels = scans["labels"]
    committed = np.mean(scans["outputs"].argmax(axis=1) == labels)
    assert abs(np.mean(outputs.argmax(axis=1) == labels) - committed) < 0.01

"""ResNet-18, as its script writes it: the right network, and every layer right on `sim`."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.frontend import import_and_quantise
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Comparison, Session, open_device

SCRIPT = Path(__file__).parents[2] / "examples" / "resnet18.py"
MULTIPLICATIONS = 1_814_073_344
"""Of the network at 224x224, classifier included."""


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("resnet18", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def written(script, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("resnet18")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["resnet18.py", str(folder)])
        script.main()
    return folder


def test_the_float_network_has_the_published_layers(script):
    model = script.float_model()
    kinds = [node.op_type for node in model.graph.node]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {
        "Conv": 20, "Relu": 17, "Add": 8, "MaxPool": 1, "GlobalAveragePool": 1, "Flatten": 1,
        "Gemm": 1,
    }  # fmt: skip
    weights = [
        numpy_helper.to_array(w) for w in model.graph.initializer if w.name.endswith("weight")
    ]
    assert sum(array.size for array in weights) == 11_678_912


def test_the_same_bytes_are_written_each_time(script, written, tmp_path):
    again = tmp_path / script.MODEL
    images = script.draw_images(script.CALIBRATION_IMAGES, script.SEED)
    script.quantise(script.float_model(), images, again)
    assert again.read_bytes() == (written / script.MODEL).read_bytes()


def test_the_classes_do_not_all_score_alike(script, written):
    """Random weights, but alive: no layer saturates or dies."""
    outputs = np.load(written / script.IMAGES)["outputs"]
    assert outputs.shape == (script.TEST_IMAGES, script.CLASSES)
    assert outputs.std(axis=1).min() > 0.5
    assert np.abs(outputs[0] - outputs[1]).mean() > 0.01


@pytest.mark.slow
def test_every_layer_equals_the_integer_reference_on_sim(script, written):
    graph = import_and_quantise(written / script.MODEL)
    module = compile_graph(graph, DEFAULT, keep_all=True)
    samples = np.load(written / script.IMAGES)
    comparison = Comparison(module)
    with open_device("sim", DEFAULT) as sim:
        session = Session(module, sim)
        for image, expected in zip(samples["inputs"], samples["outputs"], strict=True):
            run = session.run(image[None])
            comparison.add({"image": image[None]}, run)
            (logits,) = run.outputs.values()
            assert np.corrcoef(logits[0], expected)[0, 1] > 0.99
    assert comparison.first_difference() is None
    assert comparison.not_kept == []
    assert len(comparison.layers) == 31
    assert run.profile.macs == MULTIPLICATIONS

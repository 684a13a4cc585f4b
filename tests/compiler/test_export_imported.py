"""Graphs of `import_model` as ONNX: ONNX Runtime opens them with all its passes, and agrees."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.compiler.frontend import import_model, recognise_layers
from tilewright.compiler.graph import Graph, evaluate
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.fuzz_runs import random_inputs
from tilewright.flows.verify.fuzz.random_models import random_model
from tilewright.flows.verify.fuzz.styled_models import styled_model

from .onnx_models import run_onnxruntime

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"
MODELS = Path(__file__).parents[3] / "shared" / "models"
SHARED = ("ad01_autoencoder/ad01_fp32", "ic_resnet8/ic_int8_qdq", "kws_dscnn/kws_fp32")


def assert_same_outside(graph: Graph, source: bytes, seed: int) -> None:
    """Compare ONNX Runtime's outputs, of all its optimisations too, with those of the source."""
    proto = tilewright.export_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    inputs, original = random_inputs(graph, seed), onnx.load_from_string(source)
    for optimise in (False, True):
        found = run_onnxruntime(proto, inputs, optimise)
        for name, expected in run_onnxruntime(original, inputs, optimise).items():
            assert found[name].dtype == expected.dtype
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)


def test_a_quantised_network_has_the_same_bits() -> None:
    graph = import_model(DIGITS)
    assert any(node.op == "qavgpool" for node in graph.nodes)
    inputs = random_inputs(graph, 0)
    found = run_onnxruntime(tilewright.export_onnx(graph), inputs)
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", [random_model, styled_model])
def test_random_networks_mean_the_same(build, seed) -> None:
    source = build(seed)
    assert_same_outside(import_model(source), source, seed)


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`")
@pytest.mark.parametrize("name", SHARED)
def test_models_of_others_mean_the_same(name) -> None:
    source = (MODELS / f"{name}.onnx").read_bytes()
    assert_same_outside(import_model(source), source, 0)


def test_the_name_and_a_cut_are_kept() -> None:
    whole = import_model(DIGITS)
    nodes = onnx.load(DIGITS).graph.node
    shown = next(node.output[0] for node in nodes if node.op_type == "GlobalAveragePool")
    graph = replace(import_model(DIGITS, outputs=[shown]), name="front")
    made = tilewright.export_onnx(graph).graph
    assert (made.name, [output.name for output in made.output]) == ("front", [shown])
    assert len(made.node) < len(tilewright.export_onnx(whole).graph.node)


def test_recognising_twice_keeps_what_was_read() -> None:
    graph = import_model(DIGITS)
    again = recognise_layers(graph)
    assert again.imported is graph.imported


@pytest.mark.parametrize(("network", "operator"), [(DIGITS, "qconv"), ("float", "conv")])
def test_a_changed_graph_is_refused(network, operator) -> None:
    """Its layers are integers, or images with channels last, which ONNX would misread."""
    if network == "float":
        network = float_convolution()
    changed = replace(import_model(network), imported=None)
    with pytest.raises(CompileError) as refusal:
        tilewright.export_onnx(changed)
    assert f"got `{operator}`; export the graph as it was imported" in str(refusal.value)


def float_convolution() -> bytes:
    """A float convolution of an image."""
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 6, 6])
    shown = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 4, 4])
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])],
        "float", [given], [shown], [onnx.numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return onnx.helper.make_model(graph, ir_version=9).SerializeToString()

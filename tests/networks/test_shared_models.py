"""Models of others, unedited, from the command line: accuracy, and ONNX Runtime's outputs."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.graph.operators import QBlend
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import Batches, evaluate_quality, quantise
from tilewright.compiler.quantiser.options import QuantiserOptions
from tilewright.flows.cli.main import main
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Session, open_device

from ..compiler.onnx_models import run_onnxruntime

MODELS = Path(__file__).parents[3] / "shared" / "models"
SAMPLES = 100

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`")


@dataclass(frozen=True)
class Model:
    """What the first samples of a model's file give.

    `accuracy` is None without labels, `multiplications` is what the accelerator does for each
    sample, `share` the least share of all outputs that equals ONNX Runtime's.
    """

    path: str
    accuracy: float | None
    multiplications: int = 0
    share: float = 0.0


INT8 = (
    Model("kws_dscnn/kws_int8_qdq", 0.93, 2_656_768, 1.0),
    Model("ic_resnet8/ic_int8_qdq", 0.95, 12_501_632, 0.93),
    Model("ad01_autoencoder/ad01_int8_qdq", None, 264_192, 1.0),
    Model("vww_int8/vww_int8", None, 7_489_664, 1.0),
)
FLOAT = (
    Model("kws_dscnn/kws_fp32", 0.94),
    Model("ic_resnet8/ic_fp32", 0.95),
    Model("ad01_autoencoder/ad01_fp32", None),
    Model("mnist8/model", 0.99),
    Model("alibaba_vww/model_vww", None),
)


def run(capsys, model: Model, *more: object) -> dict:
    files = MODELS / f"{model.path}.onnx", "--input", MODELS / f"{model.path}.npz"
    arguments = ("run", *files, "--samples", SAMPLES, "--json", "-", *more)
    assert main([str(argument) for argument in arguments]) == 0
    return json.loads(capsys.readouterr().out)


def named(models: tuple[Model, ...]):
    return pytest.mark.parametrize("model", models, ids=[model.path for model in models])


@named(INT8)
def test_an_int8_model_runs_on_the_accelerator(model, capsys):
    found = run(capsys, model)
    assert found.get("accuracy") == model.accuracy
    assert found["totals"]["macs"] == model.multiplications
    assert found["equal_values"] >= model.share


@named(FLOAT)
def test_a_float_model_runs_on_the_host(model, capsys):
    found = run(capsys, model)
    assert found.get("accuracy") == model.accuracy
    assert found["totals"]["macs"] == model.multiplications
    assert found["sqnr_db"] > 110


def test_a_stream_is_quantised_and_keeps_its_state(capsys):
    path = MODELS / "dtln2" / "dtln2"
    files = (f"{path}.onnx", "--input", f"{path}.npz", "--state", "input_5=tf_op_layer_stack_5")
    asked = ("--calibrate", files[2], "--effort", "quick", "--compare", "--json", "-")
    assert main(["run", *files, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["comparison"]["equal"]
    assert found["totals"]["macs"] == 622_592, "products of a frame in int8"


@pytest.mark.slow
def test_dtln_runs_whole_and_keeps_its_states_in_16_bits():
    """Only the host's split of the states stands before its program, and their sum behind it."""
    path = MODELS / "dtln2" / "dtln2"
    with np.load(f"{path}.npz") as samples:
        batches = Batches(dict(samples.items()), 1)
    found = quantise(import_onnx(f"{path}.onnx"), batches, QuantiserOptions(effort="quick"))
    integer = found.integer_graph()
    quality = evaluate_quality(found, integer, batches, None)
    db = {output.name: output.sqnr_db for output in quality.outputs}
    assert db["tf_op_layer_stack_5"] > 34
    machine = DEFAULT.replace(row_statistics="all")
    module = compile_module(integer, machine)
    assert len(module.segments) == 1
    blends = [node for node in module.graph.nodes if isinstance(node.attributes, QBlend)]
    assert len(blends) == 4


@pytest.mark.slow
def test_gtcrn_runs_whole_but_for_its_filter_banks():
    """Four bidirectional GRUs of 33 steps are cells; between its programs, pixels are turned."""
    path = MODELS / "gtcrn" / "gtcrn"
    with np.load(f"{path}.npz") as samples:
        batches = Batches(dict(samples.items()), 1)
    found = quantise(import_onnx(f"{path}.onnx"), batches, QuantiserOptions(effort="quick"))
    integer = found.integer_graph()
    quality = evaluate_quality(found, integer, batches, None)
    assert next(one.sqnr_db for one in quality.outputs if one.name == "enh") > 29.5
    machine = DEFAULT.replace(row_statistics="all")
    module = compile_module(integer, machine)
    programs = [[layer.name for layer in each.layers] for each in module.segments]
    assert max(map(len, programs)) > 0.9 * sum(map(len, programs))
    assert programs[1][0] == "MatMul_26"  # a filter bank, before all but the caches
    assert programs[2] == ["MatMul_1757"]
    assert len(programs) == 3
    sample = {name: array[3] for name, array in batches.inputs.items()}
    with open_device("sim", machine) as device:
        run = Session(module, device).run(sample)
    for name, array in evaluate(module.graph, sample).items():
        np.testing.assert_array_equal(run.outputs[name], array)


@pytest.mark.parametrize(("positions", "past"), [(12, 0), (1, 12), (3, 4)])
def test_a_decoder_of_onnxruntime_genai_computes_what_onnxruntime_computes(positions, past):
    """As it comes: 4-bit weights, GroupQueryAttention with a cache, fused norms."""
    path = MODELS / "stories260k" / "stories_genai_int4.onnx"
    tokens = np.load(MODELS / "stories260k" / "stories_greedy.npz")["genai_int4_tokens"]
    extents = {"batch": 1, "seq": positions, "past": past, "total": past + positions}
    graph = import_model(path, dims=extents)
    generator = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {
        "input_ids": tokens[None, :positions].astype(np.int64),
        "attention_mask": np.ones((1, past + positions), np.int64),
    }
    for value in graph.inputs[2:]:
        inputs[value.name] = generator.normal(0, 0.3, value.type.shape).astype(np.float32)
    expected = run_onnxruntime(onnx.load(path), inputs)
    found = evaluate(graph, inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)

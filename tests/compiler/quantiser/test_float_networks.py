"""The shared float networks, unedited: what int8 costs them, and the same bits on the hardware.

Accuracy is measured on samples that calibration has not seen where the file has enough of them.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import (
    accelerated_share,
    evaluate_quality,
    quantise,
)
from tilewright.flows.cli.calibration_options import CalibrationOptions
from tilewright.flows.execution.quantise_model import QuantisedModel, quantise_model
from tilewright.flows.execution.run_samples import run_samples
from tilewright.flows.execution.samples import Samples
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import open_device

from ..onnx_models import run_onnxruntime

MODELS = Path(__file__).parents[4] / "shared" / "models"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`"),
]


@dataclass(frozen=True)
class Network:
    """A float model, how many layers it has, and what it may lose.

    Parameters
    ----------
    unseen
        Whether its file has samples that calibration leaves out.
    loss
        Most accuracy that it may lose, of 1.
    sqnr_db
        Least ratio of signal to noise at its output.
    """

    path: str
    layers: int
    unseen: bool
    loss: float
    sqnr_db: float


NETWORKS = {
    "kws": Network("kws_dscnn/kws_fp32", 11, True, 0.01, 28),
    "mnist": Network("mnist8/model", 3, True, 0.005, 35),
    "resnet8": Network("ic_resnet8/ic_fp32", 14, False, 0.01, 33),
    "autoencoder": Network("ad01_autoencoder/ad01_fp32", 10, False, 0.0, 44),
    "wake words": Network("alibaba_vww/model_vww", 29, False, 0.0, 28),
}


@cache
def calibrated(name: str) -> QuantisedModel:
    model = MODELS / f"{NETWORKS[name].path}.onnx"
    calibration = CalibrationOptions(model.with_suffix(".npz"))
    return quantise_model(model, calibration, lambda text: None)


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_costs_little(name: str) -> None:
    network, made = NETWORKS[name], calibrated(name)
    integer = made.result.integer_graph()
    assert len(made.result.layers) == network.layers
    assert made.result.rescued == ()
    assert accelerated_share(integer) >= 0.95
    assert (len(made.others) > 0) == network.unseen
    rows = made.others if network.unseen else made.rows
    labels = made.samples.labels
    agreement = evaluate_quality(
        made.result, integer, made.batches(rows), None if labels is None else labels[rows]
    )
    print(f"\n{name}: {agreement}")
    assert agreement.sqnr_db >= network.sqnr_db
    if agreement.accuracy is not None and agreement.float_accuracy is not None:
        assert agreement.accuracy >= agreement.float_accuracy - network.loss
    if agreement.same_class is not None:
        assert agreement.same_class >= 0.98


@pytest.mark.parametrize("name", ["resnet8", "wake words"])
def test_few_samples_carry_over_to_one_that_was_left_out(name: str) -> None:
    model = MODELS / f"{NETWORKS[name].path}.onnx"
    full = calibrated(name)
    kept = []
    for left_out in range(min(full.samples.count, 8)):
        rows = np.delete(full.rows, left_out)
        result = quantise(import_onnx(model), full.batches(rows))
        one = full.batches(full.rows[[left_out]])
        kept.append(evaluate_quality(result, result.integer_graph(), one, None).same_class)
    assert np.mean(kept) == 1.0


@pytest.mark.parametrize("name", NETWORKS)
def test_the_exported_file_has_the_same_bits_in_onnxruntime(name: str) -> None:
    made = calibrated(name)
    proto = export_onnx(made.result.graph)
    batches = made.batches(made.rows[:20])
    ours = batches.output(made.result.integer_graph())
    (x,) = batches.inputs.items()
    singles = [run_onnxruntime(proto, {x[0]: sample}, optimise=False) for sample in x[1]]
    theirs = np.concatenate([array for outputs in singles for array in outputs.values()])
    # Softmax at the end is float, so that its last bit may differ; ONNX Runtime averages in
    # binary32, so that ties of resnet8's average pooling fall either way.
    alike = np.isclose(ours, theirs, rtol=0, atol=1e-6)
    assert alike.mean() >= (0.9 if name == "resnet8" else 1.0)
    np.testing.assert_array_equal(ours.argmax(axis=1), theirs.argmax(axis=1))


@pytest.mark.parametrize("device", ["sim", "rtl"])
@pytest.mark.parametrize("name", NETWORKS)
def test_devices_give_the_bits_of_the_integer_reference(name: str, device: str) -> None:
    made, machine = calibrated(name), PRESETS["16x16"]
    module = compile_module(made.result.integer_graph(), machine, keep_all=True)
    samples = Samples("some", {k: v[:2] for k, v in made.samples.inputs.items()})
    with open_device(device, machine) as opened:
        outcome = run_samples(module, opened, samples, compare=True, compare_with=device == "rtl")
    assert outcome.comparison is not None
    assert outcome.comparison.equal, outcome.comparison.first_difference()
    assert outcome.comparison.not_kept == []

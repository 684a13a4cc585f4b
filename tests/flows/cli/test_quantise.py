"""`tilewright quantise`, and `--calibrate` of the commands that compile."""

import json
import re
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.quantiser import AUTO, EFFORTS, METHODS, QuantiserOptions
from tilewright.flows.cli import calibration_options, progress
from tilewright.flows.cli.calibration_options import calibration_rows
from tilewright.flows.cli.main import main
from tilewright.flows.cli.progress import line_progress, progress_about, progress_bar, steady_lines
from tilewright.flows.execution import quantise_model

from ...compiler.onnx_models import model, node, value
from ...compiler.quantiser.networks import Net, output_of, small_network


@pytest.fixture
def float_model(tmp_path) -> Path:
    net, output = small_network()
    onnx.save(net.model(output), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def samples(tmp_path) -> Path:
    """100 samples in float, labelled by the float network itself."""
    net, output = small_network()
    inputs = net.inputs(100)
    outputs = output_of(net.graph(output), inputs)
    path = tmp_path / "samples.npz"
    np.savez(path, inputs=inputs["x"][:, 0], outputs=outputs, labels=outputs.argmax(axis=1))
    return path


def said_by(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_report_names_inputs_that_are_taken_for_masks(tilewright, tmp_path):
    chance = np.random.default_rng(0)
    held = {name: chance.standard_normal((8, 8)).astype(np.float32) for name in ("k", "v")}
    nodes = [
        node("MatMul", ["x", "k"], ["scores"]),
        node("Add", ["scores", "mask"], ["some"]),
        node("Softmax", ["some"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["y"]),
    ]
    inputs = [value("x", np.float32, [1, 4, 8]), value("mask", np.float32, [1, 1, 8])]
    onnx.save(model(nodes, inputs, ["y"], held), tmp_path / "net.onnx")
    masks = np.where(np.arange(8) < chance.integers(1, 9, (6, 1, 1)), 0, -1e9)
    given = chance.standard_normal((6, 4, 8)).astype(np.float32)
    np.savez(tmp_path / "given.npz", x=given, mask=masks.astype(np.float32))
    words = tmp_path / "net.onnx", "--calibrate", tmp_path / "given.npz", "--effort", "quick"
    target = tmp_path / "int8.onnx"
    said = tilewright("quantise", *words, "-o", target, "--json", tmp_path / "it.json")
    assert (
        "masks          `mask`: only a mask's values in all samples; others are rounded\n"
    ) in said
    assert json.loads((tmp_path / "it.json").read_text("utf-8"))["calibration"]["masks"] == ["mask"]


def test_the_report_says_what_each_layer_and_the_whole_lose(tilewright, float_model, samples):
    target = float_model.with_name("int8.onnx")
    said = tilewright("quantise", float_model, "--calibrate", samples, "-o", target).splitlines()
    assert said[0] == "network        net: 6 layers in int8, 100.0% of the MACs on the accelerator"
    assert said[1] == (
        f"calibration    50 of 100 samples of {samples}, ranges by mse"
    )  # fmt: skip
    (headings,) = (line.split() for line in said if line.startswith("layer"))
    assert headings == ["layer", "kind", "low", "high", "alone", "through", "clipped"]
    rows = [line.split() for line in said if line.count(" dB ") == 2]
    assert [row[1] for row in rows] == ["conv", "conv", "conv", "add", "pool", "dense"]
    assert "evaluated on 50 samples that calibration did not see" in said
    (accuracy,) = (line for line in said if line.startswith("accuracy: "))
    assert accuracy.startswith("accuracy: 100.00% in float, ")
    assert any(line.startswith("same class as in float: ") for line in said)
    assert said[-1] == f"{target}: {target.stat().st_size:,} bytes"
    integer = import_model(target)
    assert sum(node.op.startswith("q") for node in integer.nodes) >= 6


def test_a_sample_that_has_most_of_the_noise_is_named(tilewright, float_model, samples):
    inputs = np.load(samples)["inputs"]
    common = (
        "quantise",
        float_model,
        "--calibrate",
        samples,
        "-o",
        float_model.with_name("q.onnx"),
    )
    assert "of the noise" not in tilewright(*common)
    inputs[77] *= 20  # beyond the ranges: half of the samples, the even ones, calibrate
    np.savez(samples, inputs=inputs)
    found = json.loads(tilewright(*common, "--json", "-"))["evaluation"]
    odd = found["noisiest_sample"]
    assert odd["sample"] == 77
    assert odd["noise_share"] > 0.9
    assert odd["others_db"] > found["sqnr_db"] + 10
    assert (
        f"sample 77 has {odd['noise_share']:.0%} of the noise; without it: "
        f"{odd['others_db']:.1f} dB"
    ) in tilewright(*common)


def test_labels_say_nothing_of_an_output_that_has_no_classes(tilewright, float_model, samples):
    target = float_model.with_name("front.onnx")
    front = onnx.load(float_model).graph.node[0].output[0]
    cut = ("quantise", float_model, "--calibrate", samples, "--outputs", front, "-o", target)
    assert "accuracy" not in tilewright(*cut)
    assert json.loads(tilewright(*cut, "--json"))["evaluation"]["accuracy"] is None
    assert "accuracy" not in tilewright("run", target, "--config", "4x4", "--input", samples)


@pytest.mark.parametrize(
    ("shape", "number", "warning"),
    [
        ((1,), 0, "one sample says little about ranges; give a hundred"),
        ((9,), 0, "all samples are zero and give no ranges; give real ones"),
        ((9,), 1, "all samples are equal and say as little as one; give different ones"),
    ],
)
def test_samples_that_show_little_are_pointed_out(capsys, float_model, shape, number, warning):
    (value,) = onnx.load(float_model).graph.input
    extents = [each.dim_value for each in value.type.tensor_type.shape.dim[1:]]
    path, target = float_model.with_name("few.npz"), float_model.with_name("int8.onnx")
    np.savez(path, inputs=np.full((*shape, *extents), number, np.float32))
    command = ["quantise", float_model, "--calibrate", path, "-o", target]
    assert said_by(capsys, *command)[2].endswith(f"warning: `x`: {warning}\n")


def test_json_has_what_the_report_says(tilewright, float_model, samples):
    target = float_model.with_name("int8.onnx")
    arguments = ("quantise", float_model, "--calibrate", samples, "-o", target, "--json", "-")
    found = json.loads(
        tilewright(*arguments, "--calibration-samples", "20", "--method", "percentile")
    )
    assert found["calibration"]["samples"] == 20
    assert found["calibration"]["method"] == "percentile"
    assert found["accelerated_macs"] == 1.0
    assert found["evaluation"]["samples"] == 80
    assert found["evaluation"]["unseen"] is True
    assert found["evaluation"]["float_accuracy"] == 1.0
    assert found["evaluation"]["accuracy"] == found["evaluation"]["same_class"] >= 0.9
    assert [layer["kind"] for layer in found["layers"]][-1] == "dense"
    assert all(layer["alone_db"] > 25 for layer in found["layers"])


def test_a_float_model_runs_as_the_quantised_file_does(tilewright, float_model, samples):
    target = float_model.with_name("int8.onnx")
    tilewright("quantise", float_model, "--calibrate", samples, "-o", target)
    common = ("--config", "8x8", "--input", samples, "--samples", 3, "--compare", "--json", "-")
    whole = json.loads(tilewright("run", float_model, "--calibrate", samples, *common))
    file = json.loads(tilewright("run", target, *common))
    assert whole["comparison"]["equal"]
    assert whole["totals"] == file["totals"]
    assert whole["sqnr_db"] == file["sqnr_db"] > 25
    assert whole["accuracy"] == 1.0


def test_a_compiled_float_model_knows_how_it_was_quantised(tilewright, float_model, samples):
    target = float_model.with_name("net.tw")
    arguments = ("compile", float_model, "--calibrate", samples, "--config", "8x8", "-o", target)
    tilewright(*arguments, "--keep-float", "conv0")
    said = tilewright("run", target, "--input", samples, "--samples", "2")
    assert re.search(r"\bconv\b", said.splitlines()[0]), "the first layer runs on the host"
    assert "signal to noise, against the input file's outputs: " in said
    tilewright(*arguments)
    said = tilewright("run", target, "--input", samples, "--samples", "2")
    assert not re.search(r"\bconv\b", said.splitlines()[0]), "kept modules follow from the options"


@pytest.mark.slow
def test_every_command_that_compiles_quantises_float_models(tilewright, float_model, samples):
    wish = ("--calibrate", samples, "--calibration-samples", "20", "--json")
    common = ("--config", "8x8")
    reported = json.loads(
        tilewright("report", float_model, *common, "-o", float_model.with_name("p.html"), *wish)
    )
    tried = json.loads(tilewright("what-if", float_model, *common, "--latency", "64", *wish))
    assert tried["base"]["cycles"] == reported["summary"]["cycles"] > 0
    measured = json.loads(tilewright("ablation", float_model, *common, *wish))
    assert measured["network"] == "net"
    passed = json.loads(tilewright("passes", float_model, *wish))
    assert passed[0]["accelerated"] == 0
    assert passed[-1]["accelerated"] >= 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["ablation", "--calibrate", "s.npz"], "`--calibrate`: expected a float ONNX model too, "
         "got none; give MODEL"),
        (["passes", "m.onnx", "--method", "mse"], "`--method`, `--effort`, `--weights`, "
         "`--weights-db`, `--keep-float` and `--calibration-samples` say how to quantise: expected "
         "`--calibrate FILE` too, got none; give samples of the float model"),
        (["quantise", "m.onnx", "--calibrate", "s.npz", "--weights-db", "9"], "`--weights-db`: "
         "expected `--weights 4` too; add it or leave both out"),
        (["quantise", "m.onnx", "--calibrate", "s.npz", "--weights", "4", "--weights-db", "nan"],
         "`--weights-db nan`: expected 0 dB or more; correct it"),
    ],
)  # fmt: skip
def test_quantisation_without_what_it_needs(capsys, given, message):
    assert said_by(capsys, *given) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("effort", ["0", "-3", "nan", "inf", "normall"])
def test_an_effort_is_a_name_or_seconds(capsys, effort):
    code, _, said = said_by(capsys, "quantise", "m.onnx", "--calibrate", "s", "--effort", effort)
    assert code == 2
    expected = f"expected quick, normal, thorough or seconds above 0, got `{effort}`; choose one"
    assert expected in " ".join(said.split())


def test_an_effort_in_seconds_quantises(tilewright, float_model, samples):
    target = float_model.with_name("int8.onnx")
    arguments = ("quantise", float_model, "--calibrate", samples, "-o", target, "--json", "-")
    assert json.loads(tilewright(*arguments, "--effort", "60"))["evaluation"]["sqnr_db"] > 20


@pytest.mark.parametrize("command", ["ablation", "report", "what-if", "run"])
def test_an_artifact_is_quantised_already(capsys, artifact, samples, command):
    capsys.readouterr()
    code, _, said = said_by(capsys, command, artifact, "--calibrate", samples)
    assert code == 2
    assert said == (
        f"error: `--calibrate`: expected a float ONNX model, got the artifact `{artifact}`, which "
        "is compiled already; give the model\n"
    )


def test_the_command_line_has_the_methods_of_the_quantiser():
    assert (*METHODS, AUTO) == calibration_options.METHODS
    assert QuantiserOptions().method == calibration_options.DEFAULT_METHOD
    assert tuple(EFFORTS) == calibration_options.EFFORTS
    assert QuantiserOptions().effort == calibration_options.DEFAULT_EFFORT


def test_samples_are_spread_over_the_file_and_some_are_left():
    np.testing.assert_array_equal(calibration_rows(100, 4), [0, 25, 50, 75])
    assert [len(calibration_rows(count, None)) for count in (1, 39, 40, 1000)] == [1, 39, 20, 100]
    assert len(calibration_rows(5, 9)) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["run", "m.onnx", "--keep-float", "conv0"],
            2,
            "`--method`, `--effort`, `--weights`, `--weights-db`, `--keep-float` and "
            "`--calibration-samples` say how to quantise: expected `--calibrate FILE` too, got "
            "none; give samples of the float model",
        ),
        (
            ["quantise", "m.onnx", "--calibrate", "s.npz", "--calibration-samples", "0"],
            2,
            "calibration with 0 samples: expected 1 or more; correct it",
        ),
        (
            ["quantise", "m.onnx"],
            2,
            "the following arguments are required: --calibrate; `tilewright quantise --help` shows "
            "what there is",
        ),
    ],
)
def test_usage(capsys, arguments, code, message):
    assert said_by(capsys, *arguments) == (code, "", f"error: {message}\n")


def test_an_artifact_cannot_be_quantised(capsys, artifact, samples):
    code, _, said = said_by(capsys, "run", artifact, "--calibrate", samples)
    assert code == 2
    assert said == (
        f"error: `--calibrate`: expected a float ONNX model, got the artifact `{artifact}`, which "
        "is compiled already; give the model\n"
    )


def test_what_cannot_be_exported_is_refused_before_it_is_calibrated(capsys, monkeypatch, tmp_path):
    net = Net(3, 8, 8)
    x = net.conv("x", 4, 3)
    wide = net.node("Cast", x, to=onnx.TensorProto.DOUBLE)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    output = net.node("Resize", wide, "", scales, mode="linear")
    onnx.save(net.model(output), tmp_path / "net.onnx")
    np.savez(tmp_path / "samples.npz", inputs=np.ones((4, 3, 8, 8), np.float32))
    monkeypatch.setattr(quantise_model, "make_batches", None)
    code, _, said = said_by(
        capsys, "quantise", tmp_path / "net.onnx", "--calibrate", tmp_path / "samples.npz"
    )
    assert code == 1
    assert said == (
        "error: graph `net`: node `resize2`: expected an operator that ONNX export knows, got "
        "`interpolate`; export the graph as it was imported, or run the model with `--calibrate`\n"
    )


def test_samples_that_cannot_be_read(capsys, float_model):
    for command in ("run", "compile"):
        code, _, said = said_by(capsys, command, float_model, "--calibrate", "missing.npz")
        assert code == 1
        assert said == (
            "error: input file `missing.npz`: expected a readable file, got `No such file or "
            "directory`; check the path\n"
        )


def test_a_file_that_cannot_be_written(capsys, float_model, samples, tmp_path):
    target = tmp_path / "nowhere" / "int8.onnx"
    code, out, said = said_by(capsys, "quantise", float_model, "--calibrate", samples, "-o", target)
    assert (code, out) == (2, "")
    assert said == (
        f"error: `--output {target}`: cannot be written, got `No such file or directory`; choose "
        "another path\n"
    )


def test_a_quantised_model_needs_no_calibration(capsys, model, scans):
    code, _, said = said_by(capsys, "quantise", model, "--calibrate", scans)
    assert code == 1
    assert said.endswith(
        "give the float model that it was made from, or run it as it is, without calibration\n"
    )


def test_a_float_model_is_told_how_to_reach_the_accelerator(tilewright, float_model, tmp_path):
    run = tilewright("run", float_model)
    (told,) = (line for line in run.splitlines() if line.startswith("nothing runs on the acc"))
    assert "convolutions run on the host: in float" in told
    assert told.endswith(
        "a float model is to be quantised first: see `tilewright quantise`; `run` and `compile` "
        "take `--calibrate FILE` too"
    )
    assert "cycles per sample" not in run
    assert re.search(r"nothing on the accelerator; on the host, .*conv", run)
    assert told in tilewright("compile", float_model, "-o", tmp_path / "net.tw").splitlines()


def test_progress_without_a_terminal_is_a_line_every_few_seconds(capsys):
    now = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    advance = line_progress(lambda: next(now))
    for step in range(4):
        advance("calibrating", step, 4)
    assert capsys.readouterr().err == "6 s: calibrating, 1 of 4\n12 s: calibrating, 3 of 4\n"


def test_progress_goes_on_while_a_step_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENCE_S", 0.01)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    said = ""
    with steady_lines() as tell:
        tell("placing", 0, 1)
        end = time.monotonic() + 30
        while said.count("s: placing, 0 of 1\n") < 3 and time.monotonic() < end:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said.count("s: placing, 0 of 1\n") >= 3
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == "", "it ends with the work"


def test_a_step_that_begins_soon_after_a_line_is_told_though_it_says_nothing_more(
    monkeypatch, capsys
):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    said = ""
    with progress_about("Board-1"), progress_bar() as tell:
        time.sleep(0.03)
        tell("first", 0, None)
        tell("second", 0, None)
        end = time.monotonic() + 30
        while "second" not in said and time.monotonic() < end:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said == "0 s: Board-1: first\n0 s: Board-1: second\n"

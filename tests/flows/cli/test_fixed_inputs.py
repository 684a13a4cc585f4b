"""`--fix`, `--dim`, and inputs of the sample file that shapes depend on."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.flows.cli.main import main


@pytest.fixture
def reshaping(tmp_path):
    """A model that reshapes its input `x` to its input `shape`."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape"),
        helper.make_node("Softmax", ["y"], ["z"], name="softmax"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "reshaping", inputs, outputs)
    path = tmp_path / "reshaping.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def fail(capsys):
    """Run a command line that fails; its exit code and what it says on stderr."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err.removesuffix("\n")

    return call


def samples(path, shapes):
    x = np.ones((len(shapes), 2, 6), np.float32)
    np.savez(path, x=x, shape=np.array(shapes, np.int64))
    return path


def test_run_fixes_what_the_sample_file_gives(reshaping, tmp_path, tilewright):
    said = tilewright("run", reshaping, "--input", samples(tmp_path / "s.npz", [[3, 4]] * 3))
    assert said.startswith(
        "fixed          `shape`: shapes depend on it; the network is compiled for this value\n"
    )
    assert "3 samples of" in said


def test_a_value_on_the_command_line_is_taken(reshaping, tmp_path, tilewright):
    assert "1 sample of random inputs" in tilewright("run", reshaping, "--fix", "shape=[4,3]")
    artifact = tmp_path / "reshaping.tw"
    tilewright("compile", reshaping, "--fix", "shape=[4,3]", "-o", artifact)
    assert "1 sample of random inputs" in tilewright("run", artifact)


def test_an_artifact_is_not_fixed_again(reshaping, tmp_path, tilewright, fail):
    artifact = tmp_path / "reshaping.tw"
    tilewright("compile", reshaping, "--fix", "shape=[4,3]", "-o", artifact)
    assert fail("run", artifact, "--fix", "shape=[3,4]") == (
        2,
        "error: `--fix`, `--dim`, `--outputs` and `--mask`: expected an ONNX model, got the "
        f"artifact `{artifact}`, which is compiled already; give the model",
    )


def test_values_that_nothing_gives_are_asked_for(reshaping, fail):
    code, said = fail("run", reshaping)
    assert code == 1
    assert "fix the input that it depends on (`shape`; `--fix NAME=VALUE`)" in said


def test_samples_of_different_shapes_are_refused(reshaping, tmp_path, fail):
    path = samples(tmp_path / "s.npz", [[3, 4], [4, 3]])
    assert fail("run", reshaping, "--input", path) == (
        1,
        f"error: input file `{path}`: `shape`: expected the same value for all samples, as shapes "
        "depend on it, got 2 that differ; run them one by one",
    )


@pytest.mark.parametrize("text", ["shape", "shape=", "=[1]", "shape=abc", "shape=['a']"])
def test_a_fix_that_is_no_number_is_refused(reshaping, fail, text):
    assert fail("run", reshaping, "--fix", text) == (
        2,
        f"error: `--fix {text}`: expected NAME=VALUE with a number or a list of numbers, for "
        "example `--fix shape=[2,3]`",
    )


@pytest.mark.parametrize("text", [",", "y,", "y,,z"])
def test_outputs_without_names_are_refused(reshaping, fail, text):
    assert fail("run", reshaping, "--outputs", text) == (
        2,
        f"error: `--outputs {text}`: expected names with single commas between them; correct it",
    )


@pytest.mark.parametrize("text", ["height", "height=1.5", "height=-1", "height=x", "=3"])
def test_a_dimension_that_is_no_extent_is_refused(reshaping, fail, text):
    assert fail("compile", reshaping, "--dim", text) == (
        2,
        f"error: `--dim {text}`: expected NAME=EXTENT with a whole number, for example `--dim "
        "height=224`",
    )


@pytest.fixture
def open_height(tmp_path):
    """A model, all of it the host's, with an open dimension `height`."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "height"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    nodes = [helper.make_node("Softmax", ["x"], ["y"], name="softmax")]
    graph = helper.make_graph(nodes, "open", inputs, outputs)
    path = tmp_path / "open.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_a_named_dimension_takes_its_extent(open_height, tilewright, fail):
    assert "softmax" in tilewright("run", open_height, "--dim", "height=7")
    code, said = fail("run", open_height)
    assert code == 1
    assert re.search(r"got none for `height` .* give `--dim height=EXTENT`", said)


@pytest.mark.parametrize("command", ["passes", "report", "what-if", "ablation"])
def test_every_command_with_a_model_takes_dimensions(open_height, tilewright, fail, command):
    if command == "passes":
        assert "import" in tilewright(command, open_height, "--dim", "height=7")
        return
    code, said = fail(command, open_height, "--dim", "height=7")
    assert code == 1
    assert "expected layers on the accelerator, got none" in said


def test_ablation_does_not_fix_an_artifact_again(open_height, tmp_path, tilewright, fail):
    artifact = tmp_path / "open.tw"
    tilewright("compile", open_height, "--dim", "height=7", "-o", artifact)
    code, said = fail("ablation", artifact, "--dim", "height=8")
    assert code == 2
    assert said.startswith(
        "error: `--fix`, `--dim`, `--outputs` and `--mask`: expected an ONNX model"
    )


@pytest.mark.parametrize("past", [0, 2])
def test_a_prompt_may_have_an_empty_past(tmp_path, tilewright, past):
    """A step of a decoder appends to what it kept, which is nothing at first."""
    kinds = [("past", [1, "P", 4]), ("now", [1, 3, 4])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, kind) for name, kind in kinds]
    nodes = [
        helper.make_node("Concat", ["past", "now"], ["kept"], axis=1),
        helper.make_node("Softmax", ["kept"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "step", inputs, outputs)
    path, samples = tmp_path / "step.onnx", tmp_path / "samples.npz"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    chance = np.random.default_rng(0)
    arrays = {
        "past": chance.normal(size=(2, 1, past, 4)).astype(np.float32),
        "now": chance.normal(size=(2, 1, 3, 4)).astype(np.float32),
    }
    np.savez(samples, past=arrays["past"], now=arrays["now"])
    said = tilewright("run", path, "--dim", f"P={past}", "--input", samples, "--compare")
    assert "2 samples of" in said


def test_a_mask_is_an_input_of_the_model(reshaping, fail):
    code, said = fail("compile", reshaping, "--fix", "shape=[4,3]", "--mask", "shape")
    assert (code, said.rpartition("; ")[0]) == (
        1,
        "error: model `reshaping`: expected float inputs for masks, got `shape`",
    )

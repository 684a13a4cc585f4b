"""A model that is not as it should be: one line and exit code 1."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper


def test_a_truncated_model(fail, model, tmp_path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(model.read_bytes()[:-1000])
    assert fail("run", cut) == (
        1,
        f"error: model `cut`: expected an ONNX file, got {cut.stat().st_size} bytes that are not "
        "one or are cut off; export or copy it again",
    )


def test_a_file_that_is_no_model(fail, tmp_path):
    text = tmp_path / "notes.onnx"
    text.write_text("not a model\n")
    assert fail("compile", text, "-o", tmp_path / "notes.tw") == (
        1,
        "error: model `notes`: expected an ONNX file, got 12 bytes that are not one or are cut "
        "off; export or copy it again",
    )
    assert not (tmp_path / "notes.tw").exists()


def test_a_model_that_is_not_there(fail, tmp_path):
    assert fail("run", tmp_path / "absent.onnx") == (
        1,
        f"error: model `{tmp_path / 'absent.onnx'}`: expected a readable file, got `No such file "
        "or directory`; check the path and its permissions",
    )


def test_an_unsupported_operator(fail, spoilt):
    def change(proto: onnx.ModelProto) -> None:
        (pool,) = (node for node in proto.graph.node if node.op_type == "GlobalAveragePool")
        pool.op_type = "ImageDecoder"

    assert fail("run", spoilt(change)) == (
        1,
        "error: model `spoilt`: expected supported operators, got `ImageDecoder` (node `pool`); "
        "replace them before export; `--outputs relu3.out_DequantizeLinear_Output` cuts the model "
        "there",
    )


def test_a_dynamic_shape(fail, spoilt):
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"

    assert fail("run", spoilt(change)) == (
        1,
        "error: model `spoilt`: expected the extents of all dimensions, got none for `height` "
        "(dimension 2 of `scan`); export the model with a static shape or give `--dim "
        "height=EXTENT`",
    )


def test_a_scale_that_is_not_a_number(fail, spoilt):
    def change(proto: onnx.ModelProto) -> None:
        (scale,) = (t for t in proto.graph.initializer if t.name == "scan_scale")
        scale.CopyFrom(numpy_helper.from_array(np.asarray(np.nan, np.float32), scale.name))

    assert fail("run", spoilt(change)) == (
        1,
        "error: model `spoilt`: node `scan_QuantizeLinear` (QuantizeLinear): expected positive, "
        "finite scales, got `nan`; quantise the model again with calibration data that reaches "
        "this tensor",
    )


@pytest.mark.parametrize(
    "words", [("report", "-o", "page.html"), ("what-if",), ("run", "--trace", "t")]
)
def test_a_model_of_which_nothing_runs_on_the_accelerator(fail, tmp_path, words):
    kind = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, kind, [1, 4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Softmax", ["x"], ["y"])], "floats", values[:1], values[1:]
    )
    opset = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset), tmp_path / "floats.onnx")
    command, *options = words
    assert fail(command, tmp_path / "floats.onnx", *options) == (
        1,
        "error: model `floats`: expected layers on the accelerator, got none, so there are no "
        "cycles to tell of; no convolution and no matrix product depends on the network's inputs",
    )


@pytest.mark.parametrize(
    ("suffix", "remedy"),
    [
        (".pt", "export it with `torch.onnx.export`, or call `tilewright.from_torch(module, "),
        (".tflite", "convert it with tf2onnx (`pip install tf2onnx tensorflow`): `python -m "
         "tf2onnx.convert --tflite {model} --output model.onnx`"),
        (".pb", "convert it with tf2onnx (`pip install tf2onnx tensorflow`): `python -m "
         "tf2onnx.convert --graphdef {model} --inputs NAME:0 --outputs NAME:0 --output "
         "model.onnx`"),
        (".npz", "it has samples, which `--input` and `--calibrate` take; name the network"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "compile", "sweep"])
def test_a_model_of_another_tool(fail, tmp_path, suffix, remedy, command):
    """PyTorch's files are zip files, as artifacts are."""
    model = tmp_path / f"model{suffix}"
    model.write_bytes(b"other" if suffix == ".pb" else b"PK\x03\x04 and more")
    code, line = fail(command, model)
    assert code == 1
    assert line.startswith(
        f"error: model `{model}`: expected an ONNX file, got another format; "
        + remedy.format(model=model)
    )


@pytest.mark.parametrize("part", ["", "saved_model.pb"])
def test_a_folder_of_tensorflow_is_told_the_way_to_onnx(fail, tmp_path, part):
    folder = tmp_path / "my net"
    folder.mkdir()
    (folder / "saved_model.pb").touch()
    assert fail("run", folder / part) == (
        1,
        f"error: model `{folder / part}`: expected an ONNX file, got another format; convert it "
        "with tf2onnx (`pip install tf2onnx tensorflow`): `python -m tf2onnx.convert "
        f"--saved-model '{folder}' --output 'my net.onnx'`",
    )

"""`tilewright export`: the folder, the sizes, and what cannot be exported."""

import json
import shlex
import subprocess

import pytest

from tilewright.flows.cli.main import main

from ...networks.builder import Builder

FILES = [
    "Makefile", "host_steps.c", "network.c", "network.h", "network_data.c", "tilewright.c",
    "tilewright.h", "tilewright_platform.h", "tilewright_registers.h",
]  # fmt: skip


def test_export_writes_a_folder_and_tells_sizes(tilewright, model, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "gcc")
    folder = tmp_path / "digits"
    shown = tilewright("export", "--c", folder, model, "--config", "4x4").splitlines()
    assert shown[0] == f"network        digits_int8_qdq, in `{folder}`"
    assert [line.split()[0] for line in shown[1:]] == [
        "configuration", "program", "constants", "memory", "values", "code", "next",
        "then",
    ]  # fmt: skip
    (tmp_path / "board.h").write_text(
        "#define TILEWRIGHT_REGISTERS 0x40000000u\n#define TILEWRIGHT_MEMORY 0x80000000u\n"
    )
    subprocess.run(shlex.split(shown[-1].removeprefix("then")), check=True)
    (folder / "libnetwork.a").unlink()
    for path in folder.glob("*.o"):
        path.unlink()
    assert sorted(path.name for path in folder.glob("[!.]*")) == FILES
    header = (folder / "network.h").read_text()
    assert "int network_run(const float in_scan[64] /* 1 x 1 x 8 x 8 */,\n" in header
    assert "                float out_logits[10] /* 1 x 10 */);\n" in header


def test_export_again_takes_the_place_of_an_earlier_one(tilewright, artifact, tmp_path):
    folder = tmp_path / "digits"
    first = json.loads(tilewright("export", "--c", folder, artifact, "--json"))
    (folder / "libnetwork.a").touch()
    assert json.loads(tilewright("export", "--c", folder, artifact, "--json")) == first
    assert first["files"] == FILES
    assert first["configuration"]["name"] == "8x8"
    sizes = first["bytes"]
    assert sizes["memory"] > sizes["program"] + sizes["clearing"] + sizes["constants"]
    text = (folder / "network_data.c").read_text()
    assert f"network_constants_0[{sizes['constants']}] = {{" in text
    assert f"network_program_0[{sizes['clearing']}] = {{" in text
    assert f"network_program_1[{sizes['program']}] = {{" in text


def test_without_a_compiler_the_size_of_the_code_is_left_out(
    tilewright, artifact, tmp_path, monkeypatch
):
    monkeypatch.setenv("CC", "no-such-compiler")
    said = json.loads(tilewright("export", "--c", tmp_path / "c", artifact, "--json"))
    assert said["code"] is None


def refused(capsys, *arguments):
    """Return exit code and message of a command that writes no folder."""
    code = main(["export", *map(str, arguments)])
    return code, capsys.readouterr().err.splitlines()[-1]


def test_a_folder_with_other_files_is_refused(artifact, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    artifact = artifact.rename(tmp_path.parent / artifact.name)
    assert refused(capsys, "--c", tmp_path, artifact) == (
        2,
        f"error: `--c {tmp_path}`: expected a new folder or an earlier export, got one with "
        "`notes.txt`; choose another folder",
    )


def test_a_file_in_place_of_the_folder_is_refused(artifact, capsys):
    assert refused(capsys, "--c", artifact, artifact) == (
        2,
        f"error: `--c {artifact}`: expected a folder, got `Not a directory`; choose another path",
    )


def test_an_artifact_for_another_configuration_is_refused(artifact, tmp_path, capsys):
    code, message = refused(capsys, "--c", tmp_path / "c", artifact, "--config", "tiny")
    assert code == 1
    assert "expected a program for configuration `tiny`, got one for `8x8`" in message


def model_of(path, builder, output):
    path.write_bytes(builder.model({"x": ("float32", [1, 4])}, [output]))
    return path


def test_a_host_step_of_integers_is_not_to_be_quantised(tmp_path, capsys):
    builder = Builder()
    scale, zero = builder.hold(0.1), builder.hold(0, "int8")
    levels = builder.add("QuantizeLinear", dense(builder), scale, zero)
    path = model_of(tmp_path / "most.onnx", builder, builder.add("ReduceMax", levels))
    code, said = refused(capsys, "--c", tmp_path / "c", path)
    assert code == 1
    assert said.endswith("got `reduce` of int8[1, 4]; cut it from the network")


def test_a_network_without_accelerator_layers_is_refused(tmp_path, capsys):
    builder = Builder()
    path = model_of(tmp_path / "float.onnx", builder, builder.add("Softmax", "x", axis=1))
    assert refused(capsys, "--c", tmp_path / "c", path) == (
        1,
        "error: model `float`: expected layers on the accelerator, got none, so there are no "
        "programs to export; no convolution and no matrix product depends on the network's inputs",
    )


def dense(builder):
    """A dense layer on the accelerator."""

    def quantised(x, scale):
        parameters = builder.hold(scale), builder.hold(0, "int8")
        levels = builder.add("QuantizeLinear", x, *parameters)
        return builder.add("DequantizeLinear", levels, *parameters)

    product = builder.add("MatMul", quantised("x", 0.1), quantised(builder.draw(4, 4), 0.01))
    return quantised(product, 0.1)


@pytest.mark.parametrize(("kind", "op"), [("Sin", "unary"), ("ReduceSum", "reduce")])
def test_a_host_step_that_c_lacks_is_named(tmp_path, capsys, kind, op):
    builder = Builder()
    path = model_of(tmp_path / "sums.onnx", builder, builder.add(kind, dense(builder)))
    assert refused(capsys, "--c", tmp_path / "c", path) == (
        1,
        f"error: layer `{kind}_7`: expected a layer of the accelerator or a host step that C can "
        "express (quantize, dequantize, reshape, transpose, slice, concat, shift, softmax, "
        "sigmoid, argmax, gather, cast, where, round, arithmetic or a comparison), got "
        f"`{op}` of float32[1, 4]; quantise it, or cut it from the network",
    )
    assert not (tmp_path / "c").exists()


def test_an_output_that_is_constant_is_refused(tmp_path, capsys):
    builder = Builder()
    builder.add("Shape", output := dense(builder))
    builder.nodes[-1].output[0] = "extents"
    path = tmp_path / "constant.onnx"
    path.write_bytes(builder.model({"x": ("float32", [1, 4])}, [output, "extents"]))
    assert refused(capsys, "--c", tmp_path / "c", path) == (
        1,
        "error: output `extents`: expected a computed value, got a constant; remove it from the "
        "network",
    )

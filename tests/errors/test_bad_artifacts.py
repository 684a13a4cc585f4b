"""An artifact that is damaged or for another machine: one line and exit code 1."""

from pathlib import Path

import pytest

from tilewright.flows.cli.main import main


@pytest.fixture
def artifact(model, tmp_path, capsys) -> Path:
    path = tmp_path / "digits.tw"
    assert main(["compile", str(model), "-o", str(path), "--config", "8x8"]) == 0
    capsys.readouterr()
    return path


def test_an_artifact_for_another_configuration(fail, artifact):
    assert fail("run", artifact, "--config", "8x16") == (
        1,
        f"error: artifact `{artifact}`: expected a program for configuration `8x16`, got one for "
        "`8x8`: `lanes_out` 8 against 16, `acc_depth` 512 against 1024; compile the model again "
        "for this configuration, or run it on its own",
    )


def test_a_truncated_artifact(fail, artifact):
    whole = artifact.read_bytes()
    artifact.write_bytes(whole[: len(whole) // 2])
    assert fail("run", artifact) == (
        1,
        f"error: artifact `{artifact}`: expected a whole file, got {len(whole) // 2} bytes that "
        "are cut off or damaged; copy it again, or compile the model again",
    )


def test_a_corrupted_artifact(fail, artifact):
    damaged = bytearray(artifact.read_bytes())
    damaged[2000] ^= 0xFF
    artifact.write_bytes(damaged)
    assert fail("run", artifact) == (
        1,
        f"error: artifact `{artifact}`: expected a whole file, got {len(damaged)} bytes that are "
        "cut off or damaged; copy it again, or compile the model again",
    )


def test_a_model_where_an_artifact_is_expected(fail, model):
    assert fail("inspect", model) == (
        1,
        f"error: artifact `{model}`: expected a file made by `tilewright compile`, got "
        f"{model.stat().st_size:,} bytes of another kind; compile the model first, with "
        "`tilewright compile MODEL`",
    )


def test_a_folder_that_is_not_there(fail, model, tmp_path):
    target = tmp_path / "nowhere" / "digits.tw"
    assert fail("compile", model, "-o", target, "--config", "8x8") == (
        2,
        f"error: artifact `{target}`: cannot be written, got `No such file or directory`; choose "
        "another path",
    )


def test_a_layer_that_is_not_there(fail, artifact):
    assert fail("inspect", artifact, "--layer", "conv9") == (
        2,
        "error: `--layer conv9`: expected the name of a layer on the accelerator; did you mean "
        "`conv3`, `conv2`, `conv1`?",
    )

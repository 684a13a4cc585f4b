"""The command that compares integer meanings with ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.flows.verify.meanings import cases
from tilewright.flows.verify.meanings.__main__ import main
from tilewright.isa import meanings

ROOT = Path(__file__).parents[3]
MODELS = ROOT.parent / "shared" / "models"
DRAWN = ["--rows", "60", "--steps", "40", "--seed", "3"]


def test_all_meanings_agree_with_onnxruntime(capsys):
    assert main(DRAWN) == 0
    printed = capsys.readouterr().out
    assert "softmax, 197 keys, deviation 1" in printed
    assert printed.endswith("all agree with ONNX Runtime as far as they must\n")


def test_a_meaning_that_agrees_less_is_reported(monkeypatch, capsys):
    right = meanings.layer_norm

    def off_by_one(x, constants, y_zero_point):
        y = right(x, constants, y_zero_point)
        return np.where(np.arange(y.shape[-1]) % 100 == 0, np.minimum(y, 126) + 1, y)

    monkeypatch.setattr(cases.meanings, "layer_norm", off_by_one)
    assert main(DRAWN) == 1
    assert "too far from ONNX Runtime: layer norm, 64 channels" in capsys.readouterr().err


def test_the_page_has_the_comparisons_that_the_command_makes():
    page = (ROOT / "docs" / "design" / "meanings.md").read_text("utf-8")
    for one in cases.draw_all(seed=0, rows=4):
        assert f"| {one.name} |" in page


def test_a_difference_of_two_is_too_much():
    found, expected = np.zeros(10_000, np.int8), np.zeros(10_000, np.int8)
    found[0] = 1
    assert cases.Agreement.of("", found, expected, 0.99).holds
    found[0] = 2
    assert not cases.Agreement.of("", found, expected, 0.99).holds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "0"], "`--rows`, `--steps` and `--count` must be at least 1"),
        (["--model", "a.onnx"], "expected one `--samples` for each `--model`"),
    ],
)
def test_misuse_is_reported(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"meanings: {message}\n"


@pytest.mark.cpu_kernels
@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`")
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("stories260k/stories_prefill", ["5 softmax", "11 norm"]),
        ("kwt1/kwt1", ["12 softmax", "24 norm"]),
    ],
)
def test_values_of_real_networks_agree(name, lines, capsys):
    files = [f"--model={MODELS / name}.onnx", f"--samples={MODELS / name}.npz"]
    assert main([*DRAWN, "--count", "1", *files]) == 0
    printed = capsys.readouterr().out
    for line in lines:
        assert f"{Path(name).name}.onnx: {line}" in printed

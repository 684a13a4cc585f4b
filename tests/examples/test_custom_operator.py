"""The example of an operator of one's own runs, and shows what it promises."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "custom_operator.py"


@pytest.fixture(scope="module")
def script():
    """The example as a module; the examples are no package."""
    spec = importlib.util.spec_from_file_location("custom_operator", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def cycles(text: str, device: str) -> list[int]:
    """Cycles by depth, as printed."""
    found = re.findall(r"^depth (\d): \d+ instructions, (\d+) cycles on (\w+),", text, re.MULTILINE)
    assert [(depth, name) for depth, _, name in found] == [("1", device), ("2", device)]
    return [int(count) for _, count, _ in found]


def test_the_example_runs_and_hides_latency(script, capsys):
    assert script.main([]) == 0
    shown = capsys.readouterr().out
    single, double = cycles(shown, "sim")
    assert double < 0.75 * single
    assert "instruction gemm:" in shown
    assert "# pipelined, depth 2" in shown


def test_a_wrong_score_is_noticed(script, monkeypatch, capsys):
    right = script.expected

    def wrong(*arguments: np.ndarray) -> np.ndarray:
        scores = right(*arguments)
        scores[3, 5, 7] ^= 1
        return scores

    monkeypatch.setattr(script, "expected", wrong)
    assert script.main([]) == 1
    assert capsys.readouterr().err == "reference: the scores differ from NumPy's\n"


@pytest.mark.slow
def test_the_hardware_takes_the_same_cycles(script, capsys):
    assert script.main([]) == 0
    on_sim = cycles(capsys.readouterr().out, "sim")
    assert script.main(["--device", "rtl"]) == 0
    assert cycles(capsys.readouterr().out, "rtl") == on_sim

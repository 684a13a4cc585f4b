"""The example of a VECTOR operation of one's own runs, and shows what it promises."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "vector_operation.py"


@pytest.fixture(scope="module")
def script():
    """The example as a module; the examples are no package."""
    spec = importlib.util.spec_from_file_location("vector_operation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_operation_is_everywhere(script, capsys):
    assert script.main([]) == 0
    shown = capsys.readouterr().out
    assert "| 5 | `absolute_difference` | `abs(a - b)` |" in shown
    assert shown.count("\nvector combine=absolute_difference scale zero_point=-128 ") == 4
    assert "no instruction matches" in shown
    assert "configuration `4x4` has no operation `absolute_difference = abs(a - b)`" in shown
    assert "reference: all 2048 distances equal NumPy's; no clock" in shown
    assert re.search(r"^sim: all 2048 distances equal NumPy's; \d+ cycles$", shown, re.MULTILINE)


def test_a_wrong_distance_is_noticed(script, monkeypatch, capsys):
    right = script.expected

    def wrong(*arguments: np.ndarray) -> np.ndarray:
        distances = right(*arguments)
        distances[3, 5, 7] ^= 1
        return distances

    monkeypatch.setattr(script, "expected", wrong)
    assert script.main([]) == 1
    assert capsys.readouterr().err == "reference: the distances differ from NumPy's\n"


def test_a_machine_that_takes_the_program_all_the_same_is_noticed(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "PLAIN", script.MACHINE)
    assert script.main([]) == 1
    capsys.readouterr()


@pytest.mark.slow
def test_the_hardware_takes_the_same_cycles(script, capsys):
    assert script.main(["--device", "rtl"]) == 0
    shown = capsys.readouterr().out
    cycles = re.findall(r"^(\w+): all 2048 distances equal NumPy's; (\d+) cycles$", shown, re.M)
    assert [name for name, _ in cycles] == ["sim", "rtl"]
    assert len({count for _, count in cycles}) == 1

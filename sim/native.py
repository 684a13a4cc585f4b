"""C++ files of this folder to shared libraries, compiled for this processor and kept.

A library is kept by a hash of its sources, the flags, the compiler and the processor; two processes
never build the same one twice, and none ever loads half a file. It takes a second or two, so it is
told on a terminal alone and leaves no trace in a log.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from .cache import cache_folder, digest, keep_file, kept_folder
from .toolchain import call, find_compiler, machine_fingerprint, progress

NATIVE_FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-pthread", "-Wall", "-Wextra")

_TASK = "simulation"


def build_native(
    name: str,
    sources: Sequence[str | Path],
    flags: Sequence[str] = NATIVE_FLAGS,
    generated: Mapping[str, str] | None = None,
) -> Path:
    """Compile C++ files into a shared library, or find the library built before.

    Parameters
    ----------
    name
        What progress lines and the kept file call it.
    sources
        Files beside this one (or absolute paths): each `.cpp` is compiled, headers count for the
        hash; all can be included by name.
    flags
        For the compiler.
    generated
        Headers by name with their text, which the sources may include.

    Raises
    ------
    ToolError
        When there is no compiler, it refuses a source, or the cache cannot be written.
    """
    compiler = find_compiler(_TASK, "or set `CXX`")
    paths = [Path(__file__).parent / source for source in sources]
    texts = dict(generated or {}) | {path.name: path.read_text() for path in paths}
    parts = [_fingerprint(compiler), *flags]
    parts += [part for file in sorted(texts.items()) for part in file]
    return keep_file(
        kept_folder("native", _TASK) / f"{name}-{digest(parts)}.so",
        lambda folder: _compile(compiler, name, folder, texts, flags),
    )


_fingerprint = cache(machine_fingerprint)


def _compile(
    compiler: str, name: str, folder: Path, texts: Mapping[str, str], flags: Sequence[str]
) -> Path:
    if sys.stderr.isatty():
        progress(f"compiling `{name}` (once; kept in {cache_folder()})", "sim")
    for file, text in texts.items():
        (folder / file).write_text(text)
    compiled = [str(folder / file) for file in texts if file.endswith(".cpp")]
    library = folder / "library.so"
    command = [compiler, *flags, "-shared", f"-I{folder}", "-o", str(library), *compiled]
    call(command, f"`{name}`", _TASK)
    return library

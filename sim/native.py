"""Compile C++ files of this folder into shared libraries for this processor, and cache them.

The cache key is a hash of the sources, the flags, the compiler and the processor. Two processes
never build the same library twice, and no process loads an incomplete file. A build takes a second
or two; its progress appears only on a terminal, never in a log. If the cache cannot be written, the
library is built for this process alone.
"""

import atexit
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..errors import ToolError
from .cache import (
    CacheError,
    cache_folder,
    digest,
    keep_file,
    kept_folder,
    say_nothing_is_kept,
)
from .toolchain import call, find_compiler, machine_fingerprint, progress

NATIVE_FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-pthread", "-Wall", "-Wextra")

_TASK = "simulation"


def build_native(
    name: str,
    sources: Sequence[str | Path],
    flags: Sequence[str] = NATIVE_FLAGS,
    generated: Mapping[str, str] | None = None,
) -> Path:
    """Compile C++ files into a shared library, or find the cached one.

    Parameters
    ----------
    name
        Name in progress lines and of the cached file.
    sources
        Files in this folder, or absolute paths. Each `.cpp` is compiled; headers count in the hash;
        all can be included by name.
    flags
        Compiler flags.
    generated
        Text of generated headers that the sources may include, by name.

    Raises
    ------
    ToolError
        When there is no compiler, a source does not compile, or no folder can be written.
    """
    compiler = find_compiler(_TASK, "or set `CXX`")
    paths = [Path(__file__).parent / source for source in sources]
    texts = dict(generated or {}) | {path.name: path.read_text("utf-8") for path in paths}
    parts = [_fingerprint(compiler), *flags]
    parts += [part for file in sorted(texts.items()) for part in file]
    file = f"{name}-{digest(parts)}.so"

    def make(folder: Path) -> Path:
        return _compile(compiler, name, folder, texts, flags)

    try:
        return keep_file(kept_folder("native", _TASK) / file, make)
    except CacheError as problem:
        say_nothing_is_kept(cache_folder(), problem.reason)
        return make(_temporary_folder())


def _temporary_folder() -> Path:
    """A folder that is removed when the process ends."""
    try:
        folder = tempfile.mkdtemp(prefix="tilewright-")
    except OSError as problem:
        raise ToolError(
            f"{_TASK}: no folder for temporary files can be written ({problem.strerror}); make "
            "room, or set `TMPDIR`"
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_fingerprint = cache(machine_fingerprint)


def _compile(
    compiler: str, name: str, folder: Path, texts: Mapping[str, str], flags: Sequence[str]
) -> Path:
    if sys.stderr.isatty():
        progress(f"compiling `{name}` (once; kept in {cache_folder()})", "sim")
    for file, text in texts.items():
        (folder / file).write_text(text, "utf-8")
    compiled = [str(folder / file) for file in texts if file.endswith(".cpp")]
    library = folder / "library.so"
    command = [compiler, *flags, "-shared", f"-I{folder}", "-o", str(library), *compiled]
    call(command, f"`{name}`", _TASK, makes=library)
    return library

"""C++ files of this folder to shared libraries, compiled for this processor and kept.

A library is kept by a hash of its sources, the flags, the compiler and the processor; two processes
never build the same one twice, and none ever loads half a file. It takes a second or two, so it is
told on a terminal alone and leaves no trace in a log. Where the cache cannot be written, the
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
        When there is no compiler, it refuses a source, or no folder can be written.
    """
    compiler = find_compiler(_TASK, "or set `CXX`")
    paths = [Path(__file__).parent / source for source in sources]
    texts = dict(generated or {}) | {path.name: path.read_text() for path in paths}
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
        (folder / file).write_text(text)
    compiled = [str(folder / file) for file in texts if file.endswith(".cpp")]
    library = folder / "library.so"
    command = [compiler, *flags, "-shared", f"-I{folder}", "-o", str(library), *compiled]
    call(command, f"`{name}`", _TASK)
    return library

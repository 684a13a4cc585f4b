"""`kill -9` before each line of every kind of write: readers find the old content or the new one.

A writer kills itself before its first line of the code that writes, the next writer before its
second, and so on until one completes. What it leaves is read by another process, and a later write
must succeed.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from .... import atomic_write, signing
from ....atomic_write import write_output
from ....runtime import artifact, kernel_cache
from ....runtime.kernel_cache import keep_kernels, kept_kernel
from ....sim import cache
from ....sim.cache import keep_file, keep_text, kept_folder
from ...execution import compile_cache
from ...execution.compile_cache import CompileCache, source_digest
from ...sweep import records
from ...sweep.records import Database, Record, RecordKey
from . import network
from .processes import KILLED, StressError, outcomes

OLD, NEW, NOTHING = "old", "new", "nothing"
"""States of a file that a reader finds."""

WATCHED = {
    str(module.__file__)
    for module in (atomic_write, signing, kernel_cache, cache, compile_cache, records)
}
"""Files with the code that writes."""


@dataclass(frozen=True, slots=True)
class WriteKind:
    """A kind of write: functions of a folder, which holds the cache and the user's key too.

    Parameters
    ----------
    write
        Writes the new content.
    read
        Reads as the tool does: `OLD`, `NEW` or `NOTHING`.
    prepare
        Writes the old content; None where there is none.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], str]
    prepare: Callable[[Path], object] | None = None


def _read_artifact(folder: Path) -> str:
    return artifact.load(folder / "network.tw").name.replace(network.module().name, NEW)


def _compiled() -> CompileCache:
    return CompileCache.of_request(network.request())


def _read_key(folder: Path) -> str:
    """A key that cannot be read would be one of this process, which has no name."""
    return NEW if signing.key_path().exists() and signing.key_name() else NOTHING


def _build(folder: Path) -> Path:
    (folder / "made").write_text(NEW, "utf-8")
    return folder / "made"


def _read_built(folder: Path) -> str:
    path = kept_folder("built") / "it.txt"
    return path.read_text("utf-8") if path.is_file() else NOTHING


KEY = RecordKey("stress", "1", "", "", "")


def _add_record(folder: Path) -> None:
    with Database(folder / "records.db") as database:
        database.add([(KEY, Record({"cycles": 1}))])


def _read_record(folder: Path) -> str:
    with Database(folder / "records.db") as database:
        return NEW if KEY in database.find([KEY]) else NOTHING


KINDS: Mapping[str, WriteKind] = {
    "output": WriteKind(
        lambda folder: write_output(folder / "out", NEW, "`--output`", durable=True),
        lambda folder: (folder / "out").read_text("utf-8"),
        lambda folder: (folder / "out").write_text(OLD, "utf-8"),
    ),
    "artifact": WriteKind(
        lambda folder: artifact.save(network.module(), folder / "network.tw"),
        _read_artifact,
        lambda folder: artifact.save(network.renamed(OLD), folder / "network.tw"),
    ),
    "compiled network": WriteKind(
        lambda folder: _compiled().save(network.module()),
        lambda folder: NEW if _compiled().load() else NOTHING,
    ),
    "kernel": WriteKind(
        lambda folder: keep_kernels({"kernel": NEW.encode()}),
        lambda folder: (kept_kernel("kernel") or NOTHING.encode()).decode(),
    ),
    "key": WriteKind(lambda folder: signing.sign(b""), _read_key),
    "built file": WriteKind(
        lambda folder: keep_file(kept_folder("built") / "it.txt", _build), _read_built
    ),
    "kept text": WriteKind(
        lambda folder: keep_text(["stress"], "text", lambda: NEW),
        lambda folder: next(
            (path.read_text("utf-8") for path in kept_folder().glob("*-text")), NOTHING
        ),
    ),
    "record": WriteKind(_add_record, _read_record),
}
"""Every kind of write, by its name."""


def kill_writers(name: str, step: int = 1) -> Iterator[str]:
    """Kill a writer at every line, and yield what readers find; the last writer completes.

    Parameters
    ----------
    name
        One of `KINDS`.
    step
        Lines from one kill to the next.

    Raises
    ------
    StressError
        When a reader finds anything else than it may, or a later write fails.
    """
    kind = KINDS[name]
    allowed = (OLD if kind.prepare else NOTHING, NEW)
    network.module()  # made here once, not in each process
    source_digest()
    for line in count(1, step):
        with TemporaryDirectory() as place:
            (end,) = outcomes(_killed_write, [(kind, Path(place), line)])
            (seen,) = outcomes(_read_and_write, [(kind, Path(place))])
        found, _, again = seen.partition(" then ")
        if found not in allowed[end != KILLED :] or again != NEW or end not in (KILLED, NEW):
            raise StressError(f"{name}, killed before line {line}: {end}; {seen}")
        yield found
        if end != KILLED:
            return


def _enter(folder: Path) -> None:
    """Let a folder be the cache, and the place of a new user's key."""
    os.environ["TILEWRIGHT_CACHE"] = os.environ["XDG_DATA_HOME"] = str(folder)
    signing._key.cache_clear()


def _read_and_write(kind: WriteKind, folder: Path) -> str:
    """What is there, and what is there after a write."""
    _enter(folder)
    found = kind.read(folder)
    kind.write(folder)
    return f"{found} then {kind.read(folder)}"


def _killed_write(kind: WriteKind, folder: Path, line: int) -> str:
    """Write, but be killed before a line of the watched code, counted from 1."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in WATCHED:
            return None
        left -= event == "line"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    _enter(folder)
    if kind.prepare:
        kind.prepare(folder)
        signing._key.cache_clear()
    sys.settrace(trace)
    try:
        kind.write(folder)
    finally:
        sys.settrace(None)
    return NEW

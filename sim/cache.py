"""The cache: what takes long to make is made once, and kept under a hash of all that went into it.

Two processes never make the same thing twice, and none ever reads half a file.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ..atomic_write import write_atomically
from ..errors import ToolError
from .toolchain import progress


class CacheError(ToolError):
    """The cache folder cannot be written, or is full.

    Parameters
    ----------
    reason
        What the operating system says.
    """

    def __init__(self, message: str, reason: str | None) -> None:
        super().__init__(message)
        self.reason = reason or "unknown reason"


def cache_folder() -> Path:
    """Where things are kept: `TILEWRIGHT_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("TILEWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


def kept_folder(kind: str = "rtl", task: str = "RTL simulation") -> Path:
    """The part of the cache for one kind of thing, made where it is missing.

    Raises
    ------
    CacheError
        When it cannot be made; `task` is what could then not go on.
    """
    folder = cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CacheError(
            f"{task}: cannot create the cache folder `{folder}` ({problem.strerror}); "
            "set `TILEWRIGHT_CACHE` to a folder that you may write",
            problem.strerror,
        ) from None
    return folder


@cache
def say_nothing_is_kept(folder: Path, reason: str) -> None:
    """Say once, on stderr, that the cache is not there and what that costs."""
    progress(
        f"`{folder}` cannot be written ({reason}): what is built or compiled now is not kept; make "
        "room, or set `TILEWRIGHT_CACHE` to a folder that you may write",
        "cache",
    )


def digest(parts: list[str]) -> str:
    """The name that something made from `parts` alone is kept under."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def keep_text(parts: list[str], suffix: str, make: Callable[[], str]) -> str:
    """A text that follows from `parts` alone: made once, then read from the cache."""
    kept = kept_folder() / f"{digest(parts)}-{suffix}"
    if kept.is_file():
        return kept.read_text()
    text = make()
    write_atomically(kept, text.encode())
    return text


def keep_file(
    kept: Path, make: Callable[[Path], Path], when_waiting: Callable[[], None] = lambda: None
) -> Path:
    """A file that tools write: made once, however many processes ask for it at a time.

    Parameters
    ----------
    kept
        Its place in the cache, named after all that it follows from.
    make
        Writes it, given an empty folder that is removed afterwards, and returns its path there.
    when_waiting
        Called where another process makes it just now.

    Returns
    -------
    Path
        `kept`.

    Raises
    ------
    CacheError
        When the folder cannot be written.
    """
    if kept.is_file():
        return kept
    try:
        with kept.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                when_waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            if kept.is_file():
                return kept
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix="build-") as folder:
                os.replace(make(Path(folder)), kept)
    except OSError as problem:
        raise CacheError(
            f"cannot write the cache folder `{kept.parent}` ({problem.strerror}); make room, or "
            "set `TILEWRIGHT_CACHE` to a folder that you may write",
            problem.strerror,
        ) from None
    return kept

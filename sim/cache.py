"""The cache of slow results, stored under a hash of their inputs.

Two processes never make the same file twice, and no process reads an incomplete file.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from ..atomic_write import UNFINISHED_SUFFIX, write_atomically
from ..errors import ToolError
from .toolchain import progress

SECONDS_KEPT = 30 * 24 * 60 * 60
"""Seconds without use after which a file is removed from the cache."""


class CacheError(ToolError):
    """The cache folder cannot be written, or is full.

    Parameters
    ----------
    reason
        Message of the operating system.
    """

    def __init__(self, message: str, reason: str | None) -> None:
        super().__init__(message)
        self.reason = reason or "unknown reason"


def cache_folder() -> Path:
    """The cache folder: `TILEWRIGHT_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("TILEWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


def kept_folder(kind: str = "rtl", task: str = "RTL simulation") -> Path:
    """Subfolder of the cache for one kind of file; created if missing.

    Raises
    ------
    CacheError
        When it cannot be created; the message names the failed `task`.
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
    """Print one warning on stderr that the cache cannot be used and what that costs."""
    progress(
        f"`{folder}` cannot be written ({reason}): builds and compiled programs are not kept; make "
        "room, or set `TILEWRIGHT_CACHE` to a folder that you may write",
        "cache",
    )


@contextlib.contextmanager
def saying_why_not() -> Iterator[None]:
    """Turn a failure to write the cache into one warning on stderr; the result is made again."""
    try:
        yield
    except CacheError as problem:
        say_nothing_is_kept(cache_folder(), problem.reason)
    except OSError as problem:
        say_nothing_is_kept(cache_folder(), problem.strerror or str(problem))


def remove_unused(folder: Path, *suffixes: str) -> None:
    """Remove files of these suffixes, and unfinished ones, that nobody has asked for any more.

    Raises
    ------
    OSError
        When the folder cannot be read, or a file cannot be removed.
    """
    oldest = time.time() - SECONDS_KEPT
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            if path.suffix in (*suffixes, UNFINISHED_SUFFIX) and path.stat().st_mtime < oldest:
                path.unlink()


def digest(parts: list[str]) -> str:
    """File name for a result that depends only on `parts`."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def keep_text(parts: list[str], suffix: str, make: Callable[[], str]) -> str:
    """Text that depends only on `parts`; made once, then read from the cache."""
    kept = kept_folder() / f"{digest(parts)}-{suffix}"
    if kept.is_file():
        return kept.read_text()
    text = make()
    write_atomically(kept, text.encode())
    return text


def keep_file(
    kept: Path, make: Callable[[Path], Path], when_waiting: Callable[[], None] = lambda: None
) -> Path:
    """File made by tools; made once even if several processes ask for it.

    Parameters
    ----------
    kept
        Path in the cache, named after all inputs.
    make
        Writes the file to the given empty folder and returns its path; the folder is removed
        afterwards.
    when_waiting
        Called if another process is making the file.

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

"""The cache of slow results, stored under a hash of their inputs.

Two processes never make the same file twice, and no process reads an incomplete file. Libraries
from here run in this process. So folders and files belong to this user, nobody else may write them,
and beside each file lies this user's mark of its name and content; any other file is made anew.
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
from typing import TextIO

from ..atomic_write import UNFINISHED_SUFFIX, write_atomically
from ..errors import ToolError
from ..file_access import is_private, private_folder, read_part
from ..signing import is_signed, sign
from .toolchain import progress

MARK_SUFFIX = ".mark"
"""Added to a file's name for the file with its mark."""
_MARK = "file in the cache"
"""The purpose of these marks."""

BUILD_PREFIX = "build-"
"""Prefix of folders of builds. A killed process may leave one behind."""

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
    for place in (folder.parent, folder):
        try:
            private_folder(place)
        except OSError as problem:
            raise CacheError(
                f"{task}: cannot use the cache folder `{place}` ({problem.strerror}); "
                "set `TILEWRIGHT_CACHE` to a folder of your own",
                problem.strerror,
            ) from None
    return folder


@cache
def say_nothing_is_kept(folder: Path, reason: str) -> None:
    """Print one warning on stderr that the cache cannot be used and what that costs."""
    progress(
        f"`{folder}` cannot be used ({reason}): builds and compiled programs are not kept; make "
        "room, or set `TILEWRIGHT_CACHE` to a folder of your own",
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
            is_ours = path.suffix in (*suffixes, UNFINISHED_SUFFIX)
            if is_ours and path.stat().st_mtime < oldest:
                path.unlink()


def digest(parts: list[str]) -> str:
    """File name for a result that depends only on `parts`."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def keep_text(parts: list[str], suffix: str, make: Callable[[], str]) -> str:
    """Text that depends only on `parts`; made once, then read from the cache."""
    kept = kept_folder() / f"{digest(parts)}-{suffix}"
    if _is_ours(kept):
        return kept.read_text("utf-8")
    text = make()
    data = text.encode()
    with saying_why_not():
        write_atomically(_mark_file(kept), _mark_of(kept.name, data).encode())
        write_atomically(kept, data, mode=0o600)
    return text


def _mark_file(kept: Path) -> Path:
    return kept.with_name(kept.name + MARK_SUFFIX)


def _mark_of(name: str, data: bytes) -> str:
    return sign(_signed(name, data), _MARK)


def _signed(name: str, data: bytes) -> bytes:
    return name.encode() + b"\0" + hashlib.sha256(data).digest()


def _is_ours(kept: Path) -> bool:
    """Whether a kept file exists with this user's mark, and nobody else can change it later."""
    if not is_private(kept):
        return False
    try:
        mark, data = read_part(_mark_file(kept)), read_part(kept)
    except OSError:
        return False
    return is_signed(_signed(kept.name, data), mark.decode(errors="replace"), _MARK)


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
    if _is_ours(kept):
        return kept
    try:
        with _open_lock(kept.with_suffix(".lock")) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                when_waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_ours(kept):
                return kept
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix=BUILD_PREFIX) as folder:
                made = make(Path(folder))
                made.chmod(made.stat().st_mode & ~0o022)
                mark = _mark_of(kept.name, made.read_bytes())
                write_atomically(_mark_file(kept), mark.encode())
                os.replace(made, kept)
    except OSError as problem:
        raise CacheError(
            f"cannot write the cache folder `{kept.parent}` ({problem.strerror}); make room, or "
            "set `TILEWRIGHT_CACHE` to a folder of your own",
            problem.strerror,
        ) from None
    return kept


def _open_lock(path: Path) -> TextIO:
    """Open a lock, which another user's link cannot lead elsewhere."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "w")

"""Files that others may have made: read within bounds; and folders that only this user may write.

A path that a user or a model names may lead to a pipe or a device, whose reader waits or never
ends. Only regular files are read, and no more of them than their stated size.
"""

import errno
import json
import math
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 32
"""Default limit for a file."""
MAX_TEXT_BYTES = 1 << 24
"""Limit for a file of settings."""
MAX_DOTS = 100
"""Most dots in a line of TOML, whose dotted keys make tables in tables."""

MAX_DIGITS = 20
"""Characters of a whole number in JSON; reading more of them takes long."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnreadableError(OSError):
    """A path does not lead to a regular file, or the file is larger than the limit."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))


def read_part(
    path: str | os.PathLike[str],
    offset: int = 0,
    size: int | None = None,
    *,
    limit: int = MAX_BYTES,
) -> bytes:
    """Return a part of a regular file.

    Parameters
    ----------
    path : str or path
        The file; links are followed.
    offset : int
        Where the part begins.
    size : int or None
        Bytes of the part; None for all up to the end.
    limit : int
        The part may have so many bytes.

    Raises
    ------
    OSError
        When the file cannot be read; an `UnreadableError` when it is not a regular file, the part
        is longer than the limit, or the file ends before the part does.
    """
    if "\0" in os.fspath(path):
        raise UnreadableError(path, "a path with a NUL character")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except UnicodeEncodeError:
        raise UnreadableError(path, "a path that is not text") from None
    except OSError as problem:
        if problem.errno == errno.ENXIO:  # a socket
            raise UnreadableError(path, "not a regular file but a socket") from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = next((kind for test, kind in _KINDS if test(status.st_mode)), "another kind")
        raise UnreadableError(path, f"not a regular file but {kind}")
    with os.fdopen(descriptor, "rb") as file:
        wanted = max(status.st_size - offset, 0) if size is None else size
        if wanted > limit:
            raise UnreadableError(path, f"{wanted:,} bytes, where at most {limit:,} are read")
        if offset + wanted > status.st_size and wanted:
            raise UnreadableError(
                path, f"{status.st_size:,} bytes, where {offset + wanted:,} are needed"
            )
        file.seek(offset)
        return file.read(wanted)


def read_json(
    path: str | os.PathLike[str], limit: int = MAX_TEXT_BYTES, encoding: str = "utf-8"
) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    OSError
        As for `read_part`.
    ValueError
        When it is not JSON, or nested too deeply.
    """
    return parse_json(read_part(path, limit=limit).decode(encoding))


def parse_json(text: str | bytes) -> Any:
    """Return the content of JSON text; its numbers are finite, and whole ones fit 64 bits.

    Raises
    ------
    ValueError
        When it is not JSON, nested too deeply, or has a number such as `NaN`, `1e999` or 2^64.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of TOML text.

    Raises
    ------
    ValueError
        When it is not TOML, nested too deeply, or has a line that would take `tomllib` minutes.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS:  # a key of many parts takes time by their square
            raise ValueError(f"line {number} has more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text:.20} is not a finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS or abs(number := int(text)) >= 1 << 63:
        raise ValueError(f"{text:.20} is a whole number of more than 64 bits")
    return number


def reason(problem: Exception) -> str:
    """Return in a few words why a file could not be read."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


def is_private(path: Path) -> bool:
    """Whether a path is a regular file of this user, no link, which nobody else may write."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return is_own and not status.st_mode & 0o022


def private_folder(path: Path) -> None:
    """Make a folder and its parents where they are missing, for this user alone.

    Whatever the umask is, nobody else can write there. Permissions of others to write a folder
    that this user owns are removed.

    Raises
    ------
    OSError
        When it cannot be made, or belongs to another user.
    """
    for folder in (*reversed(path.parents), path):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        except OSError:
            if not folder.is_dir():  # on a read-only disk, folders that exist fail likewise
                raise
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if status.st_mode & 0o022:
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~0o022)

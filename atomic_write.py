"""Writing a file at once: readers find the old file or the new one, never a part of either."""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .errors import TilewrightError, UsageError
from .file_access import MAX_BYTES, read_json, read_part

PAGE_SUFFIXES = (".html", ".htm")
"""Of pages, which browsers show as text under another name."""

UNFINISHED_SUFFIX = ".part"
"""Suffix of an incomplete file. A killed process may leave one behind, which may be removed."""

RECORD = ".tilewright.json"
"""In each folder of files that the user did not name: their SHA-256, by their names."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers that mean that there is no room."""


def write_output(
    path: Path,
    data: bytes | str,
    what: str,
    *,
    error: type[TilewrightError] = UsageError,
    durable: bool = False,
) -> None:
    """Write a file that the user asked for; see `write_atomically`.

    Parameters
    ----------
    path : Path
        The file.
    data : bytes or str
        Its content; text is written as UTF-8.
    what : str
        How a message calls it, such as "`--json out.json`".
    error : type
        The exception to raise.
    durable : bool
        As for `write_atomically`.

    Raises
    ------
    error
        When the file cannot be written.
    """
    try:
        write_atomically(
            path,
            data.encode(errors="backslashreplace") if isinstance(data, str) else data,
            durable=durable,
        )
    except OSError as problem:
        raise error(_refusal(what, problem)) from None


def check_output(
    path: Path | None,
    what: str,
    inputs: Iterable[Path | None] = (),
    suffixes: Sequence[str] = (),
) -> None:
    """Reject a file that `write_output` could not write, before a long computation.

    A file beside it is made and removed, because permissions alone do not tell of full or
    read-only file systems.

    Parameters
    ----------
    path : Path or None
        The file; None if the user asked for none.
    what : str
        As for `write_output`.
    inputs : iterable of Path or None
        Files that are read meanwhile, which the output must not replace.
    suffixes : sequence of str
        Ends of a file's name by which other programs know the format; any if empty.

    Raises
    ------
    UsageError
        When the file cannot be written, is one of `inputs`, or its name promises another format.
    """
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_regular_or_new(path):
            place = Path(os.path.realpath(path))
            beside = place.with_name(f".{secrets.token_hex(8)}{UNFINISHED_SUFFIX}")
            beside.open("xb").close()
            beside.unlink()
        taken = path.exists() and any(
            given is not None and given.exists() and path.samefile(given) for given in inputs
        )
    except OSError as problem:
        raise UsageError(_refusal(what, problem)) from None
    if taken:
        raise UsageError(f"{what}: expected another file than the input; choose another path")
    if suffixes and _is_regular_or_new(path) and path.suffix.lower() not in suffixes:
        ends = " or ".join(f"`{suffix}`" for suffix in suffixes)
        raise UsageError(f"{what}: expected a name that ends in {ends}; rename it")


def _refusal(what: str, problem: OSError) -> str:
    remedy = "make room, or choose" if problem.errno in FULL else "choose"
    return f"{what}: cannot be written, got `{problem.strerror}`; {remedy} another path"


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files into a folder that the user asked for, and return their paths.

    The user did not choose their names. So neither a link is followed, nor a pipe written to, that
    has one of them: in a folder that others can write to, it may be theirs.

    Raises
    ------
    UsageError
        When a file cannot be written, or something else has its name: a file that was not written
        here, or was changed since.
    """
    refuse_foreign(folder, files)
    paths = [folder / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        write_output(path, text, f"`{path}`")
    record_files(folder, files)
    return paths


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Refuse to replace files of a folder that are not as `record_files` found them.

    Raises
    ------
    UsageError
        With the first such file.
    """
    ours = _recorded(folder)
    for name in names:
        path = folder / name
        if path.is_symlink() or not _is_regular_or_new(path):
            raise UsageError(
                f"`{path}`: expected a file or nothing there, got a link, a folder or a device; "
                "remove it, or choose another folder"
            )
        if path.exists() and _digest(path) != ours.get(name):
            raise UsageError(
                f"`{path}`: expected no file or one as Tilewright wrote it, got another, which "
                "stays; rename it, or choose another folder"
            )


def record_files(folder: Path, names: Iterable[str]) -> None:
    """Note that files of a folder were written here, so that they may be replaced.

    Raises
    ------
    UsageError
        When the record cannot be written.
    """
    digests = _recorded(folder) | {name: _digest(folder / name) for name in names}
    path = folder / RECORD
    write_output(path, json.dumps(digests, indent=2) + "\n", f"`{path}`")


def _recorded(folder: Path) -> dict[str, str]:
    """The digests in a folder's record; none where it has no record that can be read."""
    try:
        found = read_json(folder / RECORD)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_part(path, limit=MAX_BYTES)).hexdigest()
    except OSError:
        return ""


def write_atomically(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a file beside its place and rename it; an older one stays whole until then.

    The user's mask decides who may read the file. After a failure, only the older file is there.
    A symbolic link stays; the file that it leads to is written. A device or a pipe is written
    directly.

    Parameters
    ----------
    path : Path
        The file; its folder exists.
    data : bytes
        Its content.
    durable : bool
        Whether to wait until the bytes have reached the disk, for a file that must survive a loss
        of power.
    mode : int
        Permissions of the file, from which the user's mask takes some away.

    Raises
    ------
    OSError
        When it cannot be written, or is a folder.
    """
    if not _is_regular_or_new(path):
        path.write_bytes(data)
        return
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{secrets.token_hex(8)}{UNFINISHED_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(beside, flags, mode), "wb") as file:
        try:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.replace(beside, place)
        except BaseException:
            beside.unlink()
            raise


def _is_regular_or_new(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def make_output_folder(folder: Path, option: str = "--output") -> None:
    """Make the folder that an option names.

    Raises
    ------
    UsageError
        When it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(
            f"`{option} {folder}`: cannot be made ({problem.strerror}); choose another folder"
        ) from None

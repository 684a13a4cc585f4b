"""This user's key: it marks what Tilewright made for this user, and runs or trusts later.

The key is 32 random bytes in a file that only the user can read, made on first use. It does not
lie in the cache folder, so that artifacts keep their marks when the cache is removed. Where no such
file can be kept, a process has a key of its own, and other processes take its marks for foreign.
"""

import hashlib
import hmac
import os
import secrets
import stat
import sys
from functools import cache
from pathlib import Path

from .file_access import private_folder

KEY_BYTES = 32
FILE = "signing.key"
CODE = "machine code"
"""The purpose of marks in kernels."""


def sign(data: bytes, purpose: str = CODE) -> str:
    """The mark of data under this user's key, as 64 hexadecimal digits.

    A mark made for one purpose does not fit another one.
    """
    text = f"tilewright {purpose}\0".encode() + data
    return hmac.new(_key()[0], text, hashlib.sha256).hexdigest()


def is_signed(data: bytes, mark: str, purpose: str = CODE) -> bool:
    """Whether this user's key made the mark of these data for this purpose."""
    return hmac.compare_digest(sign(data, purpose).encode(), mark.encode(errors="replace"))


def key_name() -> str:
    """A name of the key that does not reveal it; empty for the key of one process."""
    key, is_kept = _key()
    return hashlib.sha256(b"tilewright key name\0" + key).hexdigest()[:16] if is_kept else ""


def key_path() -> Path:
    """The key's file: in `XDG_DATA_HOME`, or in the user's data folder.

    Raises
    ------
    RuntimeError
        When the user has no home folder.
    """
    base = os.environ.get("XDG_DATA_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return folder / "tilewright" / FILE


@cache
def _key() -> tuple[bytes, bool]:
    """The key, and whether it is kept in its file."""
    try:
        path = key_path()
        private_folder(path.parent)
        if not path.exists():
            _create(path)
        return _read(path), True
    except OSError as problem:
        reason = f"`{problem.filename or FILE}`: {problem.strerror or problem}"
    except (RuntimeError, ValueError) as problem:
        reason = str(problem)
    print(
        f"key: {reason}; machine code of this process is signed for this process alone, and other "
        "processes compile it anew",
        file=sys.stderr,
    )
    return secrets.token_bytes(KEY_BYTES), False


def _create(path: Path) -> None:
    """Make the key, unless another process was faster; no process ever sees a part of it."""
    beside = path.with_name(f".{secrets.token_hex(8)}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()


def _read(path: Path) -> bytes:
    """The key in a file; raises as `read_private`, and `ValueError` for another length."""
    key = read_private(path, KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise ValueError(f"`{path}`: expected {KEY_BYTES} bytes; remove it, so that it is made new")
    return key


def read_private(path: Path, max_bytes: int) -> bytes:
    """The content of a key's file.

    Raises
    ------
    OSError
        When it cannot be read.
    ValueError
        When it is larger, not a regular file, or others may read or change it.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        key = file.read(max_bytes + 1)
    if len(key) > max_bytes or not stat.S_ISREG(status.st_mode):
        raise ValueError(
            f"`{path}`: expected {max_bytes} bytes at most; remove it, so that it is made new"
        )
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ValueError(
            f"`{path}`: expected a file that only you can read and write; remove it, so that it "
            "is made new"
        )
    return key

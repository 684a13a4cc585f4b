"""Writing a file at once: readers find the old file or the new one, never a part of either."""

import os
import secrets
import stat
from pathlib import Path

UNFINISHED_SUFFIX = ".part"
"""Of a file until it is whole; one that a killed process left behind may be removed."""


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file beside its place and rename it; an older one stays whole until then.

    The file is as readable as the user's mask lets new files be. After a failure nothing is left
    beside the older file. A link stays, and what it leads to is written. What is no regular file,
    such as a device or a pipe, is written where it is.

    Parameters
    ----------
    path
        The file; its folder exists.
    data
        What it shall hold.
    durable
        Whether the bytes reach the disk before the rename, for a file that must outlive a loss of
        power; what can be made again need not wait for the disk.

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
    with beside.open("xb") as file:
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

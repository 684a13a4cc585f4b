"""Writing a file at once: readers find the old file or the new one, never a part of either."""

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file beside its place and rename it; an older one stays whole until then.

    The file is as readable as the user's mask lets new files be. After a failure nothing is left
    beside the older file.

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
        When it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with beside.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink()
            raise

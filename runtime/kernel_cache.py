"""The cache of host kernels: code that a session had to compile is compiled once.

A file holds one kernel under its key, the hash of all that its code follows from, with this user's
mark. It is used as a kernel of an artifact is: code that another key signed is compiled anew.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from ..atomic_write import write_atomically
from ..file_access import read_part
from ..signing import key_name
from ..sim.cache import cache_folder, kept_folder, remove_unused, saying_why_not

CACHE_FOLDER = "kernels"
SUFFIX = ".bin"


def kept_kernel(key: str) -> bytes | None:
    """Return the kernel of a key; None if there is none."""
    path = _path(key)
    try:
        data = read_part(path)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # somebody asked for it
    return data


def keep_kernels(kernels: Mapping[str, bytes]) -> None:
    """Keep kernels by their keys; if that fails, say so on stderr.

    Nothing is kept that only this process can read.
    """
    if not kernels or not key_name():
        return
    with saying_why_not():
        folder = kept_folder(CACHE_FOLDER, "keeping kernels")
        for key, data in kernels.items():
            write_atomically(_path(key), data)
        remove_unused(folder, SUFFIX)


def _path(key: str) -> Path:
    return cache_folder() / CACHE_FOLDER / f"{key}{SUFFIX}"

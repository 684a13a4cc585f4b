"""Memory for the buffers of running kernels, kept between calls and shared by all kernels.

Kernels that run one after the other use the same memory, which is then in the caches already.
Kernels that run at the same time have separate memory. The number and size of kept spaces are
bounded.
"""

import numpy as np

from ....aligned import ALIGNMENT_BYTES

MIN_BYTES = 1 << 22
"""From this size on NumPy asks for large pages; untouched pages take no memory."""

MAX_BYTES = 1 << 28
"""Larger memory is not kept: kernels that need it run so long that allocating it costs nothing."""

MAX_SPACES = 16
"""Number of spaces kept at once."""


class Workspace:
    """Memory that begins at a cache line.

    Parameters
    ----------
    size
        Bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = max(size, MIN_BYTES)
        self._room = np.empty(self.size + ALIGNMENT_BYTES, np.uint8)
        start = self._room.ctypes.data
        self.address = start + -start % ALIGNMENT_BYTES


_free: list[Workspace] = []


def take(size: int) -> Workspace:
    """Memory of at least `size` bytes, reserved until it is given back."""
    while fitting := [space for space in tuple(_free) if space.size >= size]:
        space = min(fitting, key=lambda space: space.size)
        try:
            _free.remove(space)
        except ValueError:  # another thread took it since
            continue
        return space
    return Workspace(size)


def give_back(space: Workspace) -> None:
    """Keep memory for the next call."""
    if space.size <= MAX_BYTES and len(_free) < MAX_SPACES:
        _free.append(space)

"""Memory for the buffers of running kernels, kept from call to call and shared by all kernels.

One kernel after the other uses the same memory, which is then in the caches already: a sequence of
kernels needs no more than the largest of them. Kernels that run at the same time have memory of
their own. What is kept is bounded in number and in size.
"""

import numpy as np

from ..codegen.buffers import ALIGNMENT

LEAST_BYTES = 1 << 22
"""From this size on NumPy asks for large pages; what is never touched takes no memory."""

MOST_BYTES = 1 << 28
"""Larger memory is not kept: what needs it runs so long that asking for it is nothing."""

MOST_SPACES = 16
"""Kept at once."""


class Space:
    """Memory from a cache line on.

    Parameters
    ----------
    size
        Bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = max(size, LEAST_BYTES)
        self._room = np.empty(self.size + ALIGNMENT, np.uint8)
        start = self._room.ctypes.data
        self.address = start + -start % ALIGNMENT


_free: list[Space] = []


def take(size: int) -> Space:
    """Memory of at least so many bytes, nobody else's until it is given back."""
    while fitting := [space for space in tuple(_free) if space.size >= size]:
        space = min(fitting, key=lambda space: space.size)
        try:
            _free.remove(space)
        except ValueError:  # another thread took it since
            continue
        return space
    return Space(size)


def give_back(space: Space) -> None:
    """Keep memory for a next call."""
    if space.size <= MOST_BYTES and len(_free) < MOST_SPACES:
        _free.append(space)

"""Memory for the buffers of running kernels, kept from call to call and shared by all kernels.

One kernel after the other uses the same memory, which is then in the caches already; together they
need no more than the largest. Kernels that run at the same time have memory of their own.
"""

import numpy as np

LEAST_BYTES = 1 << 22
"""From this size on NumPy asks for large pages; what is never touched takes no memory."""


class Space:
    """Memory from a cache line on.

    Parameters
    ----------
    size
        Bytes.
    alignment
        Bytes of a cache line.
    """

    def __init__(self, size: int, alignment: int) -> None:
        self.size = max(size, LEAST_BYTES)
        self._room = np.empty(self.size + alignment, np.uint8)
        start = self._room.ctypes.data
        self.address = start + -start % alignment


_free: list[Space] = []


def take(size: int, alignment: int) -> Space:
    """Memory of at least so many bytes, which is nobody else's until it is given back."""
    try:  # at once, since other threads take spaces too
        space = _free.pop()
    except IndexError:
        return Space(size, alignment)
    return space if space.size >= size else Space(size, alignment)


def give_back(space: Space) -> None:
    """Keep memory for the next call."""
    _free.append(space)

"""Sizes and arrays in whole cache lines, and addresses of arrays."""

import ctypes
import math
from typing import Any

import numpy as np

ALIGNMENT_BYTES = 64
"""A cache line of the host, and the alignment of constants and activations of the accelerator."""


def round_down(number: int, step: int) -> int:
    """Return the last multiple of `step` up to a number."""
    return number // step * step


def round_up(number: int, step: int) -> int:
    """Return the next multiple of `step`."""
    return -(-number // step) * step


def align(size: int) -> int:
    """Round a number of bytes up to whole cache lines."""
    return round_up(size, ALIGNMENT_BYTES)


def aligned_empty(shape: tuple[int, ...], dtype: str | type[np.generic]) -> np.ndarray:
    """Allocate an array at the start of a cache line, where vectors are fastest; NumPy rarely does.

    Parameters
    ----------
    shape : tuple of int
        Extents of the array.
    dtype : str or type
        NumPy's element type, or its name.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    return np.ndarray(shape, dtype, room, -address_of(room) % ALIGNMENT_BYTES)


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element, faster if it is writable and contiguous."""
    if array.flags.writeable:
        elements: Any = array
        try:
            return ctypes.addressof(ctypes.c_char.from_buffer(elements))
        except (TypeError, ValueError):  # empty, not contiguous, or of a type that Python lacks
            pass
    return array.ctypes.data

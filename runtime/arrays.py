"""Arrays in NumPy's `.npy` form; no header makes the reader allocate more than the file holds."""

import io
import math
from tokenize import TokenError

import numpy as np

MAX_HEADER_BYTES = 10_000
"""Maximum header of an array, as in NumPy."""

MALFORMED = (
    ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError, MemoryError,
    RecursionError,
)  # fmt: skip
"""Exceptions that NumPy raises for malformed headers."""


def to_npy(array: np.ndarray) -> bytes:
    """Return an array in the `.npy` form."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def from_npy(data: bytes) -> np.ndarray:
    """Read an array, as a view of the given bytes.

    Raises
    ------
    ValueError
        If the bytes are not exactly one array without objects; the message says what was found.
    """
    buffer = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(buffer)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"format version {version}")
        shape, is_column_major, dtype = read(buffer, max_header_size=MAX_HEADER_BYTES)
    except MALFORMED as problem:
        raise ValueError(" ".join(str(problem).split())[:100] or "a malformed header") from None
    if dtype.hasobject or dtype.fields or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"elements of type {dtype}"[:100])
    room = len(data) - buffer.tell()
    if (
        bool in map(type, shape)
        or min(shape, default=0) < 0
        or math.prod(shape) * dtype.itemsize != room
    ):
        raise ValueError(f"{room} bytes of elements for shape {list(shape)} of {dtype}"[:100])
    try:
        array = np.frombuffer(data, dtype, math.prod(shape), buffer.tell())
        array = array.reshape(shape, order="F" if is_column_major else "C")
    except (ValueError, OverflowError):
        raise ValueError(f"shape {list(shape)}"[:100]) from None
    return array if array.flags.aligned else array.copy()

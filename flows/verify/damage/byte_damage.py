"""Damage to bytes, as from a disk or a bad copy; the random numbers determine everything."""

import random
from collections.abc import Callable


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    """Invert a few bits anywhere."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(chance: random.Random, data: bytes) -> bytes:
    """Keep the beginning only."""
    return data[: chance.randrange(len(data))]


def overwrite(chance: random.Random, data: bytes) -> bytes:
    """Put noise, zeros or another part of the file over a stretch of it."""
    length = min(chance.choice((1, 4, 16, 64)), len(data))
    at = chance.randrange(len(data) - length + 1)
    other = chance.randrange(len(data) - length + 1)
    filling = chance.choice((chance.randbytes(length), bytes(length), data[other:][:length]))
    return data[:at] + filling + data[at + length :]


def remove_bytes(chance: random.Random, data: bytes) -> bytes:
    """Remove a stretch."""
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice((1, 2, 8, 100)) :]


BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip_bits,
    truncate,
    overwrite,
    remove_bytes,
)
"""Damage to the file."""

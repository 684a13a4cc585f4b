"""Constants in main memory: their addresses; packed weights, interleaved parameters, tables.

Every chunk that a LOAD fetches is contiguous, so that weights stream in long bursts.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ...aligned import align
from ..te.box import Box, extents_of, intersection, whole_box


@dataclass(slots=True)
class ConstantPool:
    """Bytes collected for the data window; equal constants are stored once."""

    base: int = 0
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    offsets: dict[bytes, int] = field(default_factory=dict)

    def copy(self) -> "ConstantPool":
        """Return a copy; constants added to either pool do not reach the other."""
        return replace(self, chunks=self.chunks.copy(), offsets=self.offsets.copy())

    def moved(self, base: int) -> "ConstantPool":
        """The same constants from another address on."""
        offsets = {data: base + offset - self.base for data, offset in self.offsets.items()}
        return ConstantPool(base, self.chunks.copy(), self.size, offsets)

    def add(self, data: bytes) -> int:
        """Byte offset of `data` in the data window."""
        if data not in self.offsets:
            self.offsets[data] = self.base + self.size
            padded = data + bytes(align(len(data)) - len(data))
            self.chunks.append(padded)
            self.size += len(padded)
        return self.offsets[data]

    def image(self) -> bytes:
        """All bytes collected; the first one lies at `base`."""
        return b"".join(self.chunks)


def pack_parameters(bias: np.ndarray | None, scale: np.ndarray | None) -> bytes:
    """Bias int32[channels] and scale float32[channels], interleaved per channel."""
    given = bias if bias is not None else scale
    assert given is not None
    pairs = np.zeros((given.size, 2), dtype=np.uint32)
    if bias is not None:
        pairs[:, 0] = bias.astype(np.int32).reshape(-1).view(np.uint32)
    if scale is not None:
        pairs[:, 1] = scale.astype(np.float32).reshape(-1).view(np.uint32)
    return pairs.tobytes()


def padded_box(data: np.ndarray, box: Box, held: Box, pad: int) -> np.ndarray:
    """A box of a constant in a buffer of the box `held`, padded outside the constant."""
    if box == held and all(
        low >= 0 and high <= size for (low, high), size in zip(box, data.shape, strict=True)
    ):
        return data[tuple(slice(*pair) for pair in box)]
    values = np.zeros(extents_of(held), dtype=data.dtype)
    values[_slices(box, held)] = pad
    inside = intersection(box, whole_box(data.shape))
    values[_slices(inside, held)] = data[tuple(slice(*pair) for pair in inside)]
    return values


def _slices(box: Box, held: Box) -> tuple[slice, ...]:
    return tuple(
        slice(low - first, high - first) for (low, high), (first, _) in zip(box, held, strict=True)
    )

"""Affine loop nests: addresses, strides and jumps.

Instructions have strides, their words have jumps. When a level steps, the levels inside it start
again; the jump is the distance that the address moves in all. An address generator that adds jumps
needs one register and one adder.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import IsaError


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop level: its extent, and the stride of each operand."""

    extent: int
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.extent < 1:
            raise IsaError(f"loop extent must be at least 1, got {self.extent}")


def nest_addresses(base: int, loops: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Addresses of an affine nest in execution order, int64[product of extents]."""
    addresses = np.array([base], dtype=np.int64)
    for extent, stride in loops:
        steps = np.arange(extent, dtype=np.int64) * stride
        addresses = (addresses[:, None] + steps).reshape(-1)
    return addresses


def nest_jumps(loops: Sequence[tuple[int, int]]) -> list[int]:
    """The jump of each level, given `(extent, stride)` per level, outermost first.

    It is the level's stride less the distance that the levels inside it cover:
    `stride - sum((n - 1) * s for n, s in levels inside)`.
    """
    jumps, inside = [], 0
    for extent, stride in reversed(loops):
        jumps.append(stride - inside)
        inside += (extent - 1) * stride
    return jumps[::-1]

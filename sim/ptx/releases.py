"""Order between blocks: an atomic after a fence releases, an atomic on the same word acquires.

It is the pattern by which the last block of a grid adds up the others' results. Blocks are taken
as wholes, so a write that follows the release counts as ordered too.
"""

import numpy as np

FENCES = ("membar", "fence")
MAX_BLOCKS = 4096
"""Grids beyond this size get no order between blocks."""


class BlockReleases:
    """Blocks whose writes each block has synchronised with.

    Attributes
    ----------
    seen : bool[blocks, blocks]
        `seen[a, b]` says that block `a` goes on after what block `b` did before its release.
    """

    def __init__(self, blocks: int):
        self.seen = np.eye(min(blocks, MAX_BLOCKS), dtype=bool)
        self._at: dict[int, np.ndarray] = {}

    def atomics(self, blocks: np.ndarray, addresses: np.ndarray, released: np.ndarray) -> None:
        """Follow atomics in their order; `released` tells which ones a fence precedes."""
        if not released.any() and not self._at:
            return
        for block, address, fenced in zip(blocks, addresses, released, strict=True):
            if block >= len(self.seen):
                continue
            known = self._at.get(int(address))
            if known is not None:
                self.seen[block] |= known
            if fenced:
                before = np.zeros(len(self.seen), bool) if known is None else known
                self._at[int(address)] = before | self.seen[block]

    def ordered(self, blocks: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Tell for each block which of `others`, `[lanes, n]`, it has synchronised with."""
        last = len(self.seen) - 1
        inside = (others >= 0) & (others <= last) & (blocks[:, None] <= last)
        rows = np.minimum(blocks, last)[:, None]
        return inside & self.seen[rows, np.clip(others, 0, last)]

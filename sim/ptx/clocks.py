"""Happens-before between the warps of a block, as vector clocks.

Each warp counts its own epochs. `known[w, v]` is the last epoch of warp `v` of the same block that
warp `w` has synchronised with, so that an access of `v` in epoch `e` is ordered before what `w`
does now exactly if `known[w, v] >= e`. Barriers publish rows of `known` and hand them on.
"""

import numpy as np


class Clocks:
    """Vector clocks of all warps of a batch of blocks.

    Attributes
    ----------
    epochs : uint32[warps]
        The current epoch of each warp; the first one is 1.
    known : uint32[warps, warps of a block]
        See the module.
    floor : int
        Accesses in epochs up to this one are ordered before everything that can still happen.
    """

    def __init__(self, blocks: int, warps: int):
        self.epochs = np.ones(blocks * warps, np.uint32)
        self.known = np.zeros((blocks * warps, warps), np.uint32)
        self.floor = 0
        self._own = np.tile(np.arange(warps), blocks)

    def publish(self, warps: np.ndarray) -> np.ndarray:
        """End the epoch of `warps`; return what whoever synchronises with them learns."""
        self.known[warps, self._own[warps]] = self.epochs[warps]
        self.epochs[warps] += 1
        return self.known[warps]

    def learn(self, warps: np.ndarray, rows: np.ndarray) -> None:
        """Let `warps` continue after everything in `rows`, one row for each."""
        self.known[warps] = np.maximum(self.known[warps], rows)
        self.floor = int(self.known.min())

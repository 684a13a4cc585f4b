"""Happens-before between the warps of a block, as vector clocks.

Each warp counts its own epochs. `known[w, v]` is the last epoch of warp `v` of the same block that
warp `w` has synchronised with, so that an access of `v` in epoch `e` is ordered before what `w`
does now exactly if `known[w, v] >= e`. Barriers publish rows of `known` and hand them on.

Where a kernel uses the asynchronous proxy (bulk copies, `wgmma`), `known` has one more column: the
number of bulk copies that a warp has waited for. `proxied[w, t]` is then the last epoch of thread
`t` whose writes a proxy fence has made visible to what warp `w` lets the asynchronous proxy read.
"""

import numpy as np


class Clocks:
    """Vector clocks of all warps in a block batch.

    Attributes
    ----------
    epochs : uint32[warps]
        The current epoch of each warp; the first one is 1.
    known : uint32[warps, warps of a block (+ 1)]
    proxied : uint32[warps, threads of a block (or 0)]
        See the module.
    floor : int
        Accesses in epochs up to this one are ordered before everything that can still happen.
    """

    def __init__(self, blocks: int, warps: int, has_async_proxy: bool):
        self.epochs = np.ones(blocks * warps, np.uint32)
        columns = warps + has_async_proxy
        self.rows = np.zeros((blocks * warps, columns + 32 * warps * has_async_proxy), np.uint32)
        self.known, self.proxied = self.rows[:, :columns], self.rows[:, columns:]
        self.floor = 0
        self._warps, self._own = warps, np.tile(np.arange(warps), blocks)
        self._copies = np.zeros(blocks, np.uint32)

    def publish(self, warps: np.ndarray) -> np.ndarray:
        """End the epoch of `warps`; return what whoever synchronises with them learns."""
        self.known[warps, self._own[warps]] = self.epochs[warps]
        self.epochs[warps] += 1
        return self.rows[warps]

    def learn(self, warps: np.ndarray, rows: np.ndarray) -> None:
        """Let `warps` continue after everything in `rows`, one row for each."""
        self.rows[warps] = np.maximum(self.rows[warps], rows)
        self.floor = int(self.known.min())

    def fence_proxy(self, warps: np.ndarray, threads: np.ndarray) -> None:
        """Show the asynchronous proxy what `threads` of `warps` wrote, and what they know of."""
        if not self.proxied.size:
            return
        unique = np.unique(warps)
        known = np.repeat(self.known[unique, : self._warps], 32, axis=1)
        self.proxied[unique] = np.maximum(self.proxied[unique], known)
        self.proxied[warps, threads] = self.epochs[warps]
        self.epochs[unique] += 1

    def end_copy(self, block: int) -> int:
        """End a bulk copy; return its epoch in the column of the copies."""
        self._copies[block] += 1
        return int(self._copies[block])

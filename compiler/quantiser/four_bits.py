"""Weights of 4 bits with a factor for each block of inputs, which LOAD can unpack.

A weight is int4 x factor x scale: one factor from 1 to 15 for each output, tap and `BLOCK` inputs,
one scale for each output. As int8 (int4 x factor) they run everywhere; a machine with
`packed_weights=int4` loads them in half the time.
"""

from dataclasses import dataclass

import numpy as np

from ...isa.packed_weights import MAX_FACTOR, MAX_WEIGHT, MIN_WEIGHT

BLOCK = 16
"""Inputs that share a factor: the rows of a weight tile of a machine with 16 or fewer."""

SHARES = np.linspace(1.0, 0.6, 9)
"""Shares of a channel's largest weight that the search tries as its range."""

FACTORS = 4
"""Factors that are tried for a block, downwards from the one that clips nothing."""


@dataclass(frozen=True, slots=True)
class FourBitForm:
    """The form of weights [outputs, inputs x taps], inputs before taps."""

    inputs: int
    taps: int

    def scales(self, rows: np.ndarray) -> np.ndarray:
        """Return, for each output, the scale with the least squared error, float64[outputs]."""
        largest = np.abs(rows).max(axis=1, initial=0)
        largest = np.where(largest > 0, largest, 1.0)
        best, least = largest, np.full(len(rows), np.inf)
        for share in SHARES:
            scales = (largest * share / (MAX_WEIGHT * MAX_FACTOR)).astype(np.float32)
            error = self.rounded(rows, scales) * scales[:, None] - rows
            total = np.einsum("ij,ij->i", error, error)
            best, least = np.where(total < least, scales, best), np.minimum(total, least)
        return best.astype(np.float64)

    def rounded(self, rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return the integers, int4 x factor, float64[outputs, inputs x taps]."""
        outputs, blocks = len(rows), -(-self.inputs // BLOCK)
        parts = (rows / scales[:, None]).reshape(outputs, self.inputs, self.taps)
        parts = np.pad(parts, ((0, 0), (0, blocks * BLOCK - self.inputs), (0, 0)))
        parts = parts.reshape(outputs, blocks, BLOCK, self.taps)
        widest = np.maximum(parts.max(axis=2) / MAX_WEIGHT, parts.min(axis=2) / MIN_WEIGHT)
        first = np.ceil(widest)
        best, least = np.zeros_like(parts), np.full(first.shape, np.inf)
        for less in range(FACTORS):
            factor = np.clip(first - less, 1, MAX_FACTOR)[:, :, None]
            found = np.clip(np.rint(parts / factor), MIN_WEIGHT, MAX_WEIGHT) * factor
            error = np.square(found - parts).sum(axis=2)
            best = np.where((error < least)[:, :, None], found, best)
            least = np.minimum(error, least)
        return best.reshape(outputs, -1, self.taps)[:, : self.inputs].reshape(outputs, -1)

"""Weight tiles of 4 bits, as LOAD unpacks them: 4.25 bits a weight with 16 rows.

A packed tile has `lanes_in` + 1 rows of `lanes_out` 4-bit values, two to a byte, the first in the
low half. The first row holds unsigned factors, one for each column; the others hold signed weights.
An unpacked weight is the product of the two, which always fits int8.
"""

import numpy as np
import numpy.typing as npt

from ..errors import IsaError
from .configuration import Configuration

MAX_FACTOR = 15
"""Greatest factor of a column."""

MIN_WEIGHT, MAX_WEIGHT = -8, 7
"""Range of a weight of 4 bits."""


def unpack_tiles(
    packed: npt.NDArray[np.uint8], configuration: Configuration
) -> npt.NDArray[np.uint8]:
    """Unpack whole tiles.

    Parameters
    ----------
    packed
        uint8[tiles * packed_tile_bytes].

    Returns
    -------
    uint8[tiles * tile_bytes]
        The int8 weights as bytes of WGT.
    """
    pairs = packed.reshape(-1, configuration.lanes_in + 1, configuration.packed_row_bytes)
    halves = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:2], -1)
    weights = (halves[:, 1:].astype(np.int8) ^ 8) - np.int8(8)
    return (weights * halves[:, :1].astype(np.int8)).view(np.uint8).reshape(-1)


def factors_of(weights: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Find a factor for each column of a tile that leaves weights of 4 bits.

    Parameters
    ----------
    weights
        int8[..., lanes_in, lanes_out].

    Returns
    -------
    uint8[..., lanes_out]
        The least factor, or 0 where the column has none.
    """
    found = np.zeros(weights.shape[:-2] + weights.shape[-1:], dtype=np.uint8)
    wide = weights.astype(np.int16)
    for factor in range(MAX_FACTOR, 0, -1):
        quotient, rest = np.divmod(wide, factor)
        fits = (rest == 0) & (quotient >= MIN_WEIGHT) & (quotient <= MAX_WEIGHT)
        found[fits.all(axis=-2)] = factor
    return found


def pack_tiles(weights: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Pack weight tiles.

    Parameters
    ----------
    weights
        int8[tiles, lanes_in, lanes_out].

    Returns
    -------
    uint8[tiles, packed_tile_bytes]

    Raises
    ------
    IsaError
        When a column has no common factor up to 15 that leaves weights of 4 bits.
    """
    factors = factors_of(weights)
    if not factors.all():
        tile, column = (int(at[0]) for at in np.nonzero(factors == 0))
        raise IsaError(
            f"tile {tile}, column {column}: no common factor up to {MAX_FACTOR} leaves weights of "
            "4 bits; keep them in 8 bits"
        )
    quotients = weights // factors[:, None].astype(np.int16)
    halves = np.concatenate([factors[:, None], quotients.astype(np.uint8)], axis=1)
    low, high = halves[..., ::2] & np.uint8(15), halves[..., 1::2] << np.uint8(4)
    return (low | high).reshape(len(weights), -1)

"""Rows of an ECP5 that stay empty, so that wires find room.

nextpnr's static placer fills the middle of a chip and leaves its edge empty, as far as wires get
shorter by it. A 16x16 machine takes 38 % of the largest chip. In its middle, 80 % of the logic were
taken, and more wires had to pass than the chip has: neither of the two routers came to an end. With
every fourth row of logic empty, wires are 7 % longer in all, and both routers end. Rows stay empty
because cells without connections are fixed there. Carry chains run along rows, so they keep theirs.
"""

from collections.abc import Sequence
from typing import Any

MAX_USED = 0.6
"""Rows stay empty only if a design takes at most this share of the others' look-up tables and
flip-flops."""


def empty_rows(rows: int, special: Sequence[int], columns: range) -> tuple[str, ...]:
    """Return the names of the tiles in every fourth row of logic.

    Parameters
    ----------
    rows
        Rows of the chip.
    special
        Rows that hold memories or multipliers.
    columns
        Columns of the tiles in each row.
    """
    free = (row for row in range(9, rows, 4) if row not in special)
    return tuple(f"X{column}/Y{row}" for row in free for column in columns)


def leave_empty(module: dict[str, Any], tiles: Sequence[str], flip_flops: int) -> None:
    """Fix cells without connections in all places of some tiles, in place.

    A design that takes too much of the chip does not change.

    Parameters
    ----------
    module : dict
        A module as Yosys' `write_json` writes it, mapped to the ECP5 and flat.
    tiles
        From `empty_rows`.
    flip_flops
        Flip-flops of the chip, which are as many as its look-up tables; a tile has eight of each.
    """
    cells = module["cells"]
    types = [cell["type"] for cell in cells.values()]
    luts = sum({"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}.get(kind, 0) for kind in types)
    if max(luts, types.count("TRELLIS_FF")) > MAX_USED * (flip_flops - 8 * len(tiles)):
        return
    for tile in tiles:
        for place in (f"SLICE{letter}.{{}}{index}" for letter in "ABCD" for index in range(2)):
            for kind, bel, outputs in (("LUT4", "K", "Z"), ("TRELLIS_FF", "FF", "Q")):
                site = f"{tile}/{place.format(bel)}"
                cells[f"empty.{site}"] = {
                    "hide_name": 0,
                    "type": kind,
                    "parameters": {},
                    "attributes": {"BEL": site, "keep": "1"},
                    "port_directions": {outputs: "output"},
                    "connections": {outputs: []},
                }

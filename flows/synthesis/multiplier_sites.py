"""Sites for the multipliers of an ECP5, in the order of the design's hierarchy.

nextpnr's static placer scatters multipliers over the chip: in a machine that takes all of them, the
sixteen whose products one pair of columns adds lie in three rows, from edge to edge. With
neighbours in the design as neighbours on the chip, all nets together are 40 % shorter. The lanes of
VECTOR lie among the columns that they serve: with all lanes in one place, the wires around them are
too many for the chip, and a 16x16 machine does not route.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

CELL = "MULT18X18D"

_PAIR, _LANE = re.compile(r"\bpair_(\d+)\b"), re.compile(r"\blane_(\d+)\b")
"""Parts of names: two columns of the array, and a lane of VECTOR."""

_BLOCK = (0, 1, 4, 5)
"""Multipliers of a block: columns after its first one, which are their numbers too."""
_FIRST_COLUMN, _BLOCK_COLUMNS, _SPINE_COLUMNS = 4, 9, 2


def ecp5_sites(rows: Sequence[int], left: int, right: int) -> tuple[str, ...]:
    """Return the names of all multiplier sites, row by row, each next to the one before.

    Parameters
    ----------
    rows
        Rows of the chip that hold multipliers.
    left, right
        Blocks of four multipliers to the left and to the right of the clock's spine.
    """
    starts = [
        _FIRST_COLUMN + _BLOCK_COLUMNS * block + _SPINE_COLUMNS * (block >= left)
        for block in range(left + right)
    ]
    sites: list[str] = []
    for number, row in enumerate(rows):
        across = [f"X{start + n}/Y{row}/MULT18_{n}" for start in starts for n in _BLOCK]
        sites += across[::-1] if number % 2 else across
    return tuple(sites)


def assign_multipliers(module: dict[str, Any], sites: Sequence[str]) -> None:
    """Give every multiplier of a netlist a site, in place.

    The array's multipliers follow the order of its columns, with the lanes of VECTOR in the middle
    of the columns whose results they take: with L lanes, lane l takes those of the columns l, l+L,
    and so on. Together all take the middle of the sites. A design with more multipliers than sites
    does not change.

    Parameters
    ----------
    module : dict
        A module as Yosys' `write_json` writes it, mapped to the ECP5 and flat.
    sites
        From `ecp5_sites`.
    """
    names = [name for name, cell in module["cells"].items() if cell["type"] == CELL]
    if len(names) > len(sites):
        return
    pairs, lanes = (1 + max(map(_number(kind), names), default=-1) for kind in (_PAIR, _LANE))

    lanes = max(lanes, 2)

    def order(name: str) -> tuple[int, int, Any]:
        pair, lane = _number(_PAIR)(name), _number(_LANE)(name)
        if pair < 0:
            return max(lane, 0) // 2, 1, _natural(name)
        turn, first_lane = divmod(2 * pair, lanes)
        return first_lane // 2, 0 if turn < pairs // lanes else 2, _natural(name)

    skipped = (len(sites) - len(names)) // 2
    for name, site in zip(sorted(names, key=order), sites[skipped:], strict=False):
        module["cells"][name].setdefault("attributes", {})["BEL"] = site


def _number(kind: re.Pattern[str]) -> Callable[[str], int]:
    """Return a function that gives the number of a pair or lane in a name, or -1."""
    return lambda name: int(found[1]) if (found := kind.search(name)) else -1


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts numbers in names by value."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]

"""Sites for the multipliers of an ECP5, in the order of the design's hierarchy.

nextpnr's static placer scatters multipliers over the chip: in a machine that takes all of them, the
sixteen whose products one pair of lanes adds lie in three rows, from edge to edge. With neighbours
in the design as neighbours on the chip, all nets together are 40 % shorter.

nextpnr has one source for all zeros of a design and one for all ones. Their wires would lead from
one place to all multipliers, through the most crowded parts of the chip, and the router would take
half of its time for them. So each block of multipliers has its own.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

CELL = "MULT18X18D"

ARRAY = "gemm."
"""Part of the names of the array's cells."""

_WIRED = ("CE", "RST", "SIGNED", "SOURCE")
"""First letters of the pins that take a constant through a wire."""

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
    """Give every multiplier of a netlist a site, and every block its constants, in place.

    The array's multipliers follow the order of their names, with all other multipliers in the
    middle of them. Together they take the middle of the sites, from the start of a block on. A
    design with more multipliers than sites does not change.

    Parameters
    ----------
    module : dict
        A module as Yosys' `write_json` writes it, mapped to the ECP5 and flat.
    sites
        From `ecp5_sites`.
    """
    names = sorted(
        (name for name, cell in module["cells"].items() if cell["type"] == CELL), key=_natural
    )
    array = [name for name in names if ARRAY in name]
    others = [name for name in names if ARRAY not in name]
    order = array[: len(array) // 2] + others + array[len(array) // 2 :]
    if len(order) > len(sites):
        return
    cells = module["cells"]
    blocks: dict[int, list[dict[str, Any]]] = {}
    unused = (len(sites) - len(order)) // (2 * len(_BLOCK)) * len(_BLOCK)
    for place, name in enumerate(order, unused):
        cells[name].setdefault("attributes", {})["BEL"] = sites[place]
        blocks.setdefault(place // len(_BLOCK), []).append(cells[name])
    free = 1 + max(_nets(module))
    for number, block in blocks.items():
        for value in "01":
            if _drive(block, value, free):
                cells[f"multipliers_{number}.constant_{value}"] = {
                    "hide_name": 0,
                    "type": "LUT4",
                    "parameters": {"INIT": value * 16},
                    "attributes": {},
                    "port_directions": {"Z": "output"},
                    "connections": {"Z": [free]},
                }
                free += 1


def _nets(module: dict[str, Any]) -> Iterator[int]:
    """Yield the numbers of all nets, and 0."""
    yield 0
    connected = [cell["connections"] for cell in module["cells"].values()]
    ports = {name: port["bits"] for name, port in module["ports"].items()}
    for pins in (*connected, ports):
        for bits in pins.values():
            yield from (bit for bit in bits if isinstance(bit, int))


def _drive(block: Sequence[dict[str, Any]], value: str, net: int) -> bool:
    """Connect the pins of a block that have a constant value to a net; tell if there are any."""
    pins = [
        (cell["connections"], pin)
        for cell in block
        for pin, bits in cell["connections"].items()
        if pin.startswith(_WIRED) and bits == [value]
    ]
    for connections, pin in pins:
        connections[pin] = [net]
    return bool(pins)


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts numbers in names by value."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]

"""A mapped netlist: the resources that it takes, by unit of the core."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from fractions import Fraction

from .devices import MEMORY, RESOURCES, Family, Resources

TOP = "top"
"""Top module of a design with pins."""

PINS = "(pins)"
"""Unit of the cells outside the core: the registers of `hardware.pins`."""

SCOPE = "$scopeinfo"
"""Type of the cells that Yosys leaves in place of a flattened instance."""

TOP_LEVEL = "(connections)"
"""Unit of the cells between the units, and of those without a name."""

_CELL = re.compile(
    r"_(?:TRELLIS_FF|TRELLIS_DPR16X4|TRELLIS_RAMW|TRELLIS_COMB|LUT\d|CCU2C|PFUMX|L6MUX21|"
    r"MULT18X18D|DP16KD|PDPW16KD|SB_\w+?|CC_\w+?|ALU|DFF[A-Z]*|MUX2_LUT\d|MULT\d+X\d+|MUXF\d|CARRY\d|FD[A-Z]E|\$_\w+?_)"
    r"(?:_.*)?$"
)
"""Suffix with which Yosys names a cell after a signal."""

_TWICE = re.compile(r"\$\d+$")


@dataclass(frozen=True, slots=True)
class Netlist:
    """Cells of a flat netlist, by their place in the hierarchy.

    Parameters
    ----------
    cells
        For the cells of each instance, the names of the instances from the core inwards, and the
        resources.
    """

    cells: tuple[tuple[tuple[str, ...], Resources], ...]

    def units(self, depth: int = 1) -> dict[str, Counter[str]]:
        """Return the resources by unit, the largest first; `depth` instances name a unit."""
        found: dict[str, Counter[str]] = {}
        for path, resources in self.cells:
            found.setdefault(".".join(path[:depth]), Counter()).update(resources)
        order = sorted(found, key=lambda name: [-found[name][key] for key in RESOURCES])
        return {name: found[name] for name in order}

    @property
    def total(self) -> Counter[str]:
        """Resources of all cells."""
        return sum(self.units().values(), Counter[str]())

    @property
    def pins(self) -> Counter[str]:
        """Resources of the registers at the core's ports."""
        return self.units().get(PINS, Counter[str]())


def read_netlist(text: str, top: str, family: Family) -> Netlist:
    """Read the netlist that Yosys' `write_json` writes, flat, without the cells that cost nothing.

    Parameters
    ----------
    top
        Its top module.
    family
        The family, which gives the resources of each cell.
    """
    return Netlist(tuple(_cells(json.loads(text)["modules"][top]["cells"], family)))


def _cells(cells: dict, family: Family) -> Iterator[tuple[tuple[str, ...], Resources]]:
    scopes = {tuple(split_name(name)) for name, cell in cells.items() if cell["type"] == SCOPE}
    found: defaultdict[tuple[str, ...], dict[str, int | Fraction]] = defaultdict(dict)
    for name, cell in cells.items():
        cost = family.cells.get(cell["type"])
        if cost:
            number = _memory_bits(cell) if cell["type"] == MEMORY else 1
            of = found[unit_path(name, scopes)]
            for resource, each in cost.items():
                of[resource] = of.get(resource, 0) + number * each
    for path, of in found.items():
        yield path, {resource: round(count) for resource, count in of.items()}


def _memory_bits(cell: dict) -> int:
    words, bits = (int(cell["parameters"][name], 2) for name in ("SIZE", "WIDTH"))
    return words * bits


def unit_path(name: str, scopes: Set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the instances that contain a cell, from the core inwards.

    Parameters
    ----------
    scopes
        The paths of all instances.
    """
    *parts, signal = split_name(name)
    path = tuple(parts)
    while path and path not in scopes:
        path = path[:-1]
    return path[1:] or ((TOP_LEVEL,) if path or not signal else (PINS,))


def split_name(name: str) -> list[str]:
    """Return the instances of a cell or a net, and the signal after which it is named.

    Yosys joins instances by dots. A name without meaning begins with a dollar sign; a name that
    occurs twice ends in a dollar sign and a number.
    """
    name = _TWICE.sub("", _CELL.sub("", name.removeprefix("$flatten").replace("\\", "")))
    path, dollar, _ = name.partition("$")
    parts = [part for part in path.split(".") if part]
    return [*parts, ""] if dollar else parts

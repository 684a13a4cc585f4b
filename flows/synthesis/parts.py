"""Vendors' names of chips with package and speed grade: the device, and what its placer is told."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .devices import DEVICES, FpgaDevice, ecp5_arguments


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip in its package.

    Parameters
    ----------
    device
        With the placer's arguments for this part.
    sites
        Pattern of the names of its pins.
    """

    device: FpgaDevice
    sites: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Parts that are named alike: a pattern of whole names, an example, the device of a match."""

    names: str
    example: str
    sites: str
    device: Callable[[re.Match[str]], FpgaDevice]


_BALLS = r"[A-Z]{1,2}\d{1,2}"

_ECP5_CHIPS = {"U": "", "UM": "um-", "UM5G": "um5g-"}
_ECP5_PACKAGES = {"BG": "CABGA", "MG": "CSFBGA", "TG": "TQFP"}
_ECP5_DIES = {"12": "25"}
"""The die of a 12F is that of a 25F."""


def _ecp5(found: re.Match[str]) -> FpgaDevice:
    kind, size, speed, package, pins = found.groups()
    chip = f"--{_ECP5_CHIPS[kind]}{size}k"
    device = DEVICES[f"ecp5-{_ECP5_DIES.get(size, size)}"]
    arguments = ecp5_arguments(chip, f"{_ECP5_PACKAGES[package]}{pins}", speed)
    return replace(device, arguments=arguments)


def _named(name: str = "") -> Callable[[re.Match[str]], FpgaDevice]:
    """Return a function that finds a device by its name, or by the first group of the match."""
    return lambda found: DEVICES[name or found[1]]


_KINDS = (
    _Kind(
        r"LFE5(U|UM|UM5G)-(12|25|45|85)F-([678])(BG|MG|TG)(144|256|285|381|554|756)[CI]?",
        "LFE5U-25F-6BG381C",
        _BALLS,
        _ecp5,
    ),
    _Kind(
        r"GW2AR-LV18QN88C8/I7",
        "GW2AR-LV18QN88C8/I7",
        r"\d{1,2}|IO[LRTB]\d{1,2}[AB]",
        _named("gw2ar-18"),
    ),
    _Kind(r"GW2A-LV18PG256C8/I7", "GW2A-LV18PG256C8/I7", r"[A-T]\d{1,2}", _named("gw2a-18")),
    _Kind(r"CCGM1A1", "CCGM1A1", r"IO_[NESW][ABC]_[AB]\d", _named("ccgm1a1")),
    _Kind(r"(xc7z020)clg\d{3}-[123]", "xc7z020clg400-1", _BALLS, _named()),
    _Kind(r"(xc7a35t|xc7a100t)i?[a-z]{3}\d{3}-[123]L?", "xc7a100tcsg324-1", _BALLS, _named()),
    _Kind(r"5CSEBA6U\d{2}[ICA][78]N?", "5CSEBA6U23I7", _BALLS, _named("5csea6")),
    _Kind(r"(xczu3eg)-[a-z]{4}\d{3}-[123]-[ei]", "xczu3eg-sbva484-1-i", _BALLS, _named()),
    _Kind(r"(xck26)-sfvc784-2LV-[ci]", "xck26-sfvc784-2LV-c", _BALLS, _named()),
)

PARTS = tuple(kind.example for kind in _KINDS)
"""A part of each kind, as messages show them."""


def find_part(name: str) -> Chip | None:
    """Find a part by its vendor's name; None for one that is not known."""
    for kind in _KINDS:
        if found := re.fullmatch(kind.names, name):
            return Chip(kind.device(found), kind.sites)
    return None

"""The keys of a board file, and what each of them may hold.

Names reach Tcl, Verilog, constraints, command lines and terminals. So every text is one printable
line of limited length, and each name has a pattern without quotes, braces, spaces or slashes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...hardware.soc.board import Pin
from ...isa.configuration import PRESETS
from ...isa.sdram import SDRAMS
from ..synthesis.parts import PARTS, find_part

STANDARDS = ("LVCMOS33", "LVCMOS25", "LVCMOS18", "LVCMOS15", "LVCMOS12")

SDRAM_SIGNALS = ("clk", "cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq")
"""Signals of an SDRAM. Of these, `OPTIONAL_SIGNALS` may be fixed on the board."""

OPTIONAL_SIGNALS = ("cke", "cs_n", "dqm")

BLOCK_RAM, DDR = "block-ram", "ddr"

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""Pattern of the names of boards, of their programmers, and of bitstreams."""

MAX_TEXT = 160
"""Characters of a text at most."""

MAX_SHOWN = 60
"""Characters of a wrong value that a message shows, at most."""

MAX_LIST = 64
"""Items of a list at most."""


class WrongValueError(ValueError):
    """A value is not what its key expects; the text, if any, replaces the expectation."""


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """A key of a board file.

    Parameters
    ----------
    read
        Returns the value in the form that the program uses, or raises `WrongValueError`.
    expected
        The legal values, for messages.
    required
        Whether the file must have it.
    """

    read: Callable[[Any], Any]
    expected: str
    required: bool = False


Table = Mapping[str, "SchemaKey | Table"]
"""Schema of a board file: keys, some of which hold tables."""


def _matching(pattern: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise WrongValueError
        return value

    return read


def _one_of(*values: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise WrongValueError
        return value

    return read


def _number(least: float, most: float, kinds: tuple[type, ...]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) not in kinds or not least <= value <= most:
            raise WrongValueError
        return value

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise WrongValueError
    return value


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MAX_LIST:
            raise WrongValueError
        return tuple(map(read, value))

    return read_all


def _part(value: Any) -> str:
    if not isinstance(value, str) or find_part(value) is None:
        raise WrongValueError
    return value


_site = _matching(r"[A-Za-z0-9_]{1,16}")


def _pin(value: Any) -> Pin:
    if isinstance(value, str):
        return Pin(_site(value))
    if not isinstance(value, dict) or value.keys() - {"site", "low", "pull"}:
        raise WrongValueError
    low, pull = value.get("low", False), value.get("pull", "")
    if not isinstance(low, bool) or pull not in ("", "UP", "DOWN"):
        raise WrongValueError
    return Pin(_site(value.get("site")), low, pull)


def _sites(value: Any) -> tuple[str, ...]:
    return (_site(value),) if isinstance(value, str) else _list_of(_site)(value)


def _url(value: Any) -> str:
    return _matching(r"https?://[A-Za-z0-9._~:/?#@!&+,;=%-]{3,150}")(value)


_MHZ = (int, float)

_PIN = 'a pin such as "G2" or { site = "G2", low = true, pull = "UP" }'
_SITES = 'a pin such as "G2", or a list of them, lowest bit first'
_LINE = f"one printable line of at most {MAX_TEXT} characters"

_BOARD_FILES = SchemaKey(
    _matching(r"[A-Za-z0-9._*:-]{1,80}"),
    "the pattern of the board's files in Vivado, such as `tul.com.tw:pynq-z2:part0:*`",
)

SCHEMA: Table = {
    "like": SchemaKey(_matching(NAME), "the name of a board that `tilewright boards` lists"),
    "name": SchemaKey(
        _matching(NAME),
        "letters, digits, `-`, `_` and `.`, at most 40, such as `My-Board`",
        required=True,
    ),
    "part": SchemaKey(
        _part, f"a chip with package and speed such as {', '.join(PARTS)}", required=True
    ),
    "preset": SchemaKey(_one_of(*PRESETS), f"one of {', '.join(PRESETS)}", required=True),
    "clock_mhz": SchemaKey(_number(1, 400, _MHZ), "a number from 1 to 400", required=True),
    "programmer": SchemaKey(
        _matching(NAME), "the name by which openFPGALoader knows it, such as `ulx3s`"
    ),
    "url": SchemaKey(_url, "an address that begins with https://", required=True),
    "sources": SchemaKey(_list_of(_text), f"a list of texts, each {_LINE}"),
    "checked": SchemaKey(_list_of(_text), f"a list of texts, each {_LINE}"),
    "oscillator": {
        "mhz": SchemaKey(_number(1, 500, _MHZ), "a number from 1 to 500", required=True),
        "pin": SchemaKey(_pin, _PIN, required=True),
    },
    "serial": {
        "rx": SchemaKey(_pin, _PIN, required=True),
        "tx": SchemaKey(_pin, _PIN, required=True),
        "baud": SchemaKey(
            _number(1_200, 12_000_000, (int,)),
            "an integer from 1,200 to 12,000,000",
            required=True,
        ),
        "adapter": SchemaKey(_text, _LINE, required=True),
    },
    "pins": {
        "leds": SchemaKey(_list_of(_pin), f"a list, each of them {_PIN}"),
        "button": SchemaKey(_pin, _PIN),
        "high": SchemaKey(_list_of(_pin), f"a list, each of them {_PIN}"),
        "standard": SchemaKey(_one_of(*STANDARDS), f"one of {', '.join(STANDARDS)}"),
    },
    "memory": {
        "kind": SchemaKey(
            _one_of(BLOCK_RAM, *SDRAMS, DDR),
            f"one of {', '.join((BLOCK_RAM, *SDRAMS, DDR))}",
            required=True,
        ),
        "max_kib": SchemaKey(_number(4, 1 << 20, (int,)), "an integer from 4 to 1,048,576"),
        "mib": SchemaKey(_number(1, 1 << 12, (int,)), "an integer from 1 to 4,096"),
        "board_files": _BOARD_FILES,
        "interface": SchemaKey(_matching(r"\w{1,40}"), "a name in the board's files, `ddr3_sdram`"),
        "pins": {name: SchemaKey(_sites, _SITES) for name in SDRAM_SIGNALS},
    },
    "zynq": {
        "board_files": replace(_BOARD_FILES, required=True),
    },
}
"""Keys and tables of a board file. A board has either `zynq`, or `oscillator` and `serial`."""


def shown(value: Any) -> str:
    """Return a wrong value for a message: one short line of printable characters."""
    if isinstance(value, dict | list):
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = ascii(value)
    return f"`{text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '...'}`"

"""The boards that `--board` takes: those of this folder by name, and any board file by its path."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import UsageError, did_you_mean
from ...hardware.soc.board import Board
from .amaranth_platform import PREFIX, platform_keys
from .board_file import AnyBoard, board_of, keys_of, load_board_file

FOLDER = Path(__file__).with_name("boards")

SUFFIX = ".toml"

UNFIT: Mapping[str, str] = MappingProxyType(
    {
        "iCEBreaker": "no configuration fits its iCE40UP5K; choose a board with a larger chip",
        "Tang-Nano-9K": "no configuration fits its GW1NR-9, whose 6,480 flip-flops hold no "
        "memory or link beside the smallest core, which took 6,435 when it was last measured; "
        "choose Tang-Nano-20K or Tang-Primer-20K",
        "Tang-Primer-25K": "Yosys does not infer the multipliers of its GW5A, and with multipliers "
        "of logic, `tiny` alone took about 22,700 of its 23,040 LUT when it was last measured; "
        "choose Tang-Nano-20K or Tang-Primer-20K",
    }
)
"""Boards that are not supported, and the reasons."""

OWN_FILE = "describe another one in a file: `tilewright boards --template > my-board.toml`"
MAX_NAMED = 6
"""Boards that a message proposes at most; more than these would repeat the list."""


@cache
def known_boards() -> Mapping[str, AnyBoard]:
    """Return the boards that come with Tilewright, by name."""
    found = (_read(path.stem) for path in FOLDER.glob(f"*{SUFFIX}"))
    return MappingProxyType({each.name: each for each in sorted(found, key=lambda each: each.name)})


def pin_boards() -> dict[str, Board]:
    """Return those boards of `known_boards` whose pins are connected to a system."""
    return {name: each for name, each in known_boards().items() if isinstance(each, Board)}


def find_board(text: str) -> AnyBoard:
    """Find a board by its name, in any case, or read a board file.

    Raises
    ------
    UsageError
        For an unknown name or file.
    HardwareError
        For a file that is wrong.
    """
    if text.startswith(PREFIX):
        keys = platform_keys(text.removeprefix(PREFIX))
        return board_of(keys, f"board `{text}`", _keys_by_name)
    if text.endswith(SUFFIX) or "/" in text:
        return load_board_file(Path(text), _keys_by_name)
    known = {each.lower(): each for each in (*known_boards(), *UNFIT)}
    found = known.get(text.lower().replace("_", "-"))
    if found is not None and found in UNFIT:
        raise UsageError(f"board `{found}`: {UNFIT[found]}")
    if found is not None:
        return known_boards()[found]
    file = f"{text}{SUFFIX}"
    parts = [each for lower, each in known.items() if text.lower() in lower and text]
    parts = parts or [each for each in known.values() if _letters(each) == _letters(text)]
    if os.path.isfile(file):
        hint = f"did you mean the file `{file}`?"
    elif text.lower().startswith("amaranth"):
        hint = f"a platform of amaranth-boards is `{PREFIX}MODULE`"
    elif 0 < len(parts) <= MAX_NAMED:
        hint = f"did you mean {' or '.join(f'`{each}`' for each in parts)}?"
    else:
        hint = did_you_mean(text, known_boards()).removeprefix("; ")
    raise UsageError(
        f"board `{text}`: unknown{f' ({hint})' if hint else ''}; {OWN_FILE}; known: "
        f"{', '.join(known_boards())}"
    )


def _letters(name: str) -> str:
    """A board's name without what tells it from other versions."""
    return re.sub(r"[\d_ -]", "", name.lower())


def _keys(name: str) -> dict[str, Any]:
    return keys_of((FOLDER / f"{name}{SUFFIX}").read_bytes(), f"board file `{name}{SUFFIX}`")


def _keys_by_name(name: str) -> dict[str, Any]:
    """Return the keys of a board that `like` names, with those of the board that it is like."""
    names = {path.stem.lower(): path.stem for path in FOLDER.glob(f"*{SUFFIX}")}
    if name.lower() not in names:
        raise UsageError(
            f'`like = "{name}"`: expected one of {", ".join(sorted(names.values()))}'
            + did_you_mean(name, names.values(), "; choose one")
        )
    keys = _keys(names[name.lower()])
    return {**_keys(keys["like"]), **keys} if "like" in keys else keys


def _read(name: str) -> AnyBoard:
    return board_of(_keys(name), f"board file `{name}{SUFFIX}`", _keys_by_name)

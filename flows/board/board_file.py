"""Boards as files: reads, checks and completes them, as in `docs/guide/add-a-board.md`."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import HardwareError, UsageError, did_you_mean
from ...file_access import parse_toml, reason
from ...hardware.soc.board import Board, BoardDdr, BoardSdram
from ...hardware.technology import Technology
from ...isa.sdram import SDRAMS
from ..synthesis.parts import Chip, find_part
from .board_schema import (
    BLOCK_RAM,
    DDR,
    OPTIONAL_SIGNALS,
    SCHEMA,
    SDRAM_SIGNALS,
    SchemaKey,
    Table,
    WrongValueError,
    shown,
)
from .processors import ZynqBoard

AnyBoard = Board | ZynqBoard

MAX_BYTES = 64 * 1024
"""Size of a board file at most."""

PADS_WITH_REGISTERS = (Technology.ECP5, Technology.GOWIN)
"""Technologies that can have an SDRAM: those of `hardware.soc.sdram_pads.CELLS`."""


def load_board_file(path: Path, find: Callable[[str], Mapping[str, Any]]) -> AnyBoard:
    """Read a board file of a user.

    Parameters
    ----------
    find
        Returns the keys of the board that `like` names.

    Raises
    ------
    UsageError
        If the file cannot be read.
    HardwareError
        If it is not a board file; the message names key, expected and given value.
    """
    where = f"board file `{path}`"
    try:
        if not path.is_file():
            raise UsageError(f"{where}: there is no such file; correct the path")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{where}: cannot be read ({reason(problem)}); correct the path") from None
    if len(data) > MAX_BYTES:
        raise HardwareError(f"{where}: expected at most {MAX_BYTES:,} bytes, got more; shorten it")
    return board_of(keys_of(data, where), where, find)


def keys_of(data: bytes, where: str) -> dict[str, Any]:
    """Parse a board file.

    Raises
    ------
    HardwareError
        If it is not TOML.
    """
    try:
        return parse_toml(data.decode())
    except ValueError as problem:
        raise HardwareError(
            f"{where}: expected TOML, got {ascii(str(problem))[1:-1][:200]}; correct it, or begin "
            "with `tilewright boards --template`"
        ) from None


def board_of(
    given: Mapping[str, Any], where: str, find: Callable[[str], Mapping[str, Any]]
) -> AnyBoard:
    """Return the board of a parsed board file.

    Parameters
    ----------
    where
        The file, for messages.

    Raises
    ------
    HardwareError
        For a key that is unknown, missing or wrong, or keys that do not fit together.
    """
    if "like" in given:
        like = _read(SCHEMA["like"], given["like"], "like", where)
        base = {key: value for key, value in find(like).items() if key != "checked"}
        given = {**base, **given}
    values = dict(_read_table(SCHEMA, given, "", where))
    part = find_part(values["part"])
    assert part is not None
    facts = {name: values[name] for name in ("name", "part", "clock_mhz", "url")}
    facts |= {"device": part.device.name, "configuration": values["preset"]}
    facts |= {name: values.get(name, ()) for name in ("sources", "checked")}
    zynq = part.device.name.startswith(("xc7z", "xczu", "xck"))
    for table in ("zynq",) if zynq else ("oscillator", "serial"):
        if table not in values:
            raise HardwareError(
                f"{where}: `{table}`: expected this table for the chip `{values['part']}`, got "
                f"none; add `[{table}]`"
            )
    if zynq:
        return ZynqBoard(**facts, **values["zynq"])
    return _pin_board(values, facts, part, where)


def _pin_board(
    values: Mapping[str, Any], facts: Mapping[str, Any], part: Chip, where: str
) -> Board:
    oscillator, serial = values["oscillator"], values["serial"]
    memory = values.get("memory", {"kind": BLOCK_RAM})
    board = Board(
        **facts,
        oscillator_hz=round(oscillator["mhz"] * 1e6),
        oscillator=oscillator["pin"],
        **serial,
        **values.get("pins", {}),
        programmer=values.get("programmer", ""),
        sdram=None if memory["kind"] == DDR else _sdram(memory, part, where),
        ddr=_ddr(memory, part, facts["part"], where) if memory["kind"] == DDR else None,
        block_memory_kib=memory.get("max_kib"),
    )
    _check_sites(board, part, where)
    return board


def _sdram(memory: Mapping[str, Any], part: Chip, where: str) -> BoardSdram | None:
    """Return the SDRAM with the pins that its kind has, or None for block RAM."""
    kind, sites = memory["kind"], memory.get("pins", {})
    if kind == BLOCK_RAM:
        if sites:
            raise HardwareError(
                f"{where}: `memory.pins`: expected none for `{BLOCK_RAM}`, got {shown(sites)}; "
                "name another `kind`, or leave the pins out"
            )
        return None
    if part.device.family.technology not in PADS_WITH_REGISTERS:
        raise HardwareError(
            f"{where}: `memory.kind`: expected `{BLOCK_RAM}` for a {part.device.family.name}, got "
            f"`{kind}`; only ECP5 and Gowin have pads for an SDRAM"
        )
    chip = SDRAMS[kind]
    widths = dict.fromkeys(SDRAM_SIGNALS, 1)
    widths |= {"ba": chip.bank_bits, "a": chip.row_bits}
    widths |= {"dqm": chip.data_bits // 8, "dq": chip.data_bits}
    for signal, width in widths.items():
        got = len(sites.get(signal, ()))
        if got != width and (got or signal not in OPTIONAL_SIGNALS):
            count = "1 pin" if width == 1 else f"{width} pins"
            raise HardwareError(
                f"{where}: `memory.pins.{signal}`: expected {count} for `{kind}`, got {got}; "
                "correct the list"
            )
    return BoardSdram(kind=kind, sites={name: sites[name] for name in widths if name in sites})


def _ddr(memory: Mapping[str, Any], part: Chip, given_part: str, where: str) -> BoardDdr:
    """Return the DDR memory, which Vivado's files of the board describe."""
    if part.device.family.technology is not Technology.XILINX7:
        raise HardwareError(
            f"{where}: `memory.kind`: expected another one than `{DDR}` with the chip "
            f"`{given_part}`; only Vivado's projects for an Artix-7 have a controller for it"
        )
    for name in ("mib", "board_files", "interface"):
        if name not in memory:
            raise HardwareError(
                f"{where}: `memory.{name}`: expected it for `{DDR}`, got none; add it"
            )
    return BoardDdr(**{name: memory[name] for name in ("mib", "board_files", "interface")})


def _check_sites(board: Board, part: Chip, where: str) -> None:
    """Reject a pin that the chip's package cannot have, or that is used twice."""
    pins = {name: pin.site for name, pin in board.pins.items()}
    owners: dict[str, str] = {}
    for name, site in pins.items():
        if not re.fullmatch(part.sites, site):
            raise HardwareError(
                f"{where}: pin `{site}` of `{name}`: expected the name of a pin of `{board.part}` "
                f"(pattern {part.sites}); correct it"
            )
        if other := owners.get(site):
            raise HardwareError(
                f"{where}: pin `{site}`: expected one use, got `{other}` and `{name}`; correct one "
                "of them"
            )
        owners[site] = name


def _read_table(table: Table, given: Any, prefix: str, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a table by key, each one checked."""
    if not isinstance(given, dict):
        raise HardwareError(
            f"{where}: `{prefix[:-1]}`: expected a table, got {shown(given)}; write it as "
            f"`[{prefix[:-1]}]`"
        )
    for name in given:
        if name not in table:
            raise HardwareError(
                f"{where}: key {shown(prefix + name)}: expected one of {', '.join(table)}"
                + did_you_mean(name[:40], table, "; correct it or leave it out")
            )
    for name, key in table.items():
        path = prefix + name
        if not isinstance(key, SchemaKey):
            if name in given:
                yield name, dict(_read_table(key, given[name], f"{path}.", where))
        elif name in given:
            yield name, _read(key, given[name], path, where)
        elif key.required:
            raise HardwareError(f"{where}: `{path}`: expected {key.expected}, got none; add it")


def _read(key: "SchemaKey | Table", value: Any, path: str, where: str) -> Any:
    assert isinstance(key, SchemaKey)
    try:
        return key.read(value)
    except WrongValueError:
        raise HardwareError(
            f"{where}: `{path}`: expected {key.expected}, got {shown(value)}; correct it"
        ) from None

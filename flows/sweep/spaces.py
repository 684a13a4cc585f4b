"""Descriptions of sweeps: predefined spaces, and TOML files."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import UsageError, did_you_mean
from ...file_access import MAX_TEXT_BYTES, parse_toml, read_part, reason

SPACES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "quick": {"lanes": "4x4,4x8,8x8,8x16,16x8,16x16", "bus_bits": "32..128"},
        "memory": {"lanes": "8x8,8x16,16x16", "latency": "16..256", "bandwidth": "1/4,1/2,1/1"},
        "sizes": {
            "lanes": "4x4,8x8,16x16",
            "act_depth": "512..2048",
            "wgt_depth": "512..2048",
            "acc_depth": "256..1024",
        },
    }
)
"""Predefined spaces by name: values of the dimensions."""

KEYS = ("base", "chip", "clock_mhz", "minimise", "set", "vary", "weights", "where")
"""Keys of a TOML file."""


@dataclass(frozen=True, slots=True)
class SpaceDescription:
    """The settings of a sweep from a file or a predefined space; options override them.

    Parameters
    ----------
    source
        The name of the description in messages.
    vary
        Values of the varied names.
    base
        A preset, or a JSON file relative to the TOML file.
    changes
        Parameters to change in the base.
    where
        Conditions.
    minimise
        Objectives.
    chip
        The FPGA whose resources limit the machines.
    clock_mhz
        The clock in MHz.
    weights
        Weights of networks, by name.
    """

    source: str = ""
    vary: Mapping[str, object] = field(default_factory=dict)
    base: str | None = None
    changes: Mapping[str, int | str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    minimise: tuple[str, ...] = ()
    chip: str | None = None
    clock_mhz: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)


def read_description(name_or_path: str) -> SpaceDescription:
    """Find a space by its name, or read a TOML file.

    Raises
    ------
    UsageError
        If there is neither, or the file has an unknown key or a value of the wrong type.
    """
    source = f"`--space {name_or_path}`"
    if name_or_path in SPACES:
        return SpaceDescription(source, SPACES[name_or_path])
    path = Path(name_or_path)
    if not os.path.isfile(path):
        raise UsageError(
            f"{source}: neither one of {', '.join(SPACES)} nor a TOML file"
            + did_you_mean(name_or_path, SPACES, "; check the path")
        )
    try:
        values = parse_toml(read_part(path, limit=MAX_TEXT_BYTES).decode())
    except (OSError, ValueError) as problem:
        raise UsageError(f"{source}: not readable as TOML: {reason(problem)}") from None
    for key in values:
        if key not in KEYS:
            raise UsageError(
                f"{source}: unknown key `{key}`; known are {', '.join(KEYS)}"
                + did_you_mean(key, KEYS)
            )
    base = _typed(values, "base", str, None, source)
    return SpaceDescription(
        source=source,
        vary=_typed(values, "vary", dict, {}, source),
        base=str(path.parent / base) if base and os.path.isfile(path.parent / base) else base,
        changes=_numbers(values, "set", (int, str), source),
        where=_texts(values, "where", source),
        minimise=_texts(values, "minimise", source),
        chip=_typed(values, "chip", str, None, source),
        clock_mhz=_typed(values, "clock_mhz", (int, float), None, source),
        weights=_numbers(values, "weights", (int, float), source),
    )


def _typed(values: Mapping[str, Any], key: str, kind: Any, default: Any, source: str) -> Any:
    value = values.get(key, default)
    if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
        name = {str: "a string", dict: "a table", list: "a list"}.get(kind, "a number")
        raise UsageError(f"{source}: `{key}` must be {name}, not `{value}`")
    return value


def _texts(values: Mapping[str, Any], key: str, source: str) -> tuple[str, ...]:
    given = _typed(values, key, list, [], source)
    return tuple(_typed({key: one}, key, str, "", source) for one in given)


def _numbers(values: Mapping[str, Any], key: str, kind: Any, source: str) -> dict[str, Any]:
    given = _typed(values, key, dict, {}, source)
    return {name: _typed(given, name, kind, None, source) for name in given}

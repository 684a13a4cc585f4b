"""Machines and main memories as text: one grammar for options, files, messages and the API.

A machine is `NAME|FILE[,SETTING...]`, such as `16x16,lanes=8x16,act_depth=512`; a main memory is
`SETTING[,...]`, such as `latency=200,bandwidth=1/4`. A setting is `NAME=VALUE`, where NAME is a
parameter of the configuration, `lanes` (which sets `lanes_in` and `lanes_out`), or a property of
main memory. Where several values make sense, `VALUE,VALUE` lists them and `LOW..HIGH` is a range.
Printed names of machines have this form, so that every command accepts them.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from types import MappingProxyType
from typing import Any

from ..argument_types import checked
from ..errors import ConfigurationError, DeviceError, UsageError, did_you_mean
from .configuration import DEFAULT, PARAMETERS, Configuration, read_base
from .memory_model import MemoryModel, SharedBus

Value = Any
"""An integer, a word, or a tuple: lanes in and out, beats and cycles, cycles of a shared bus."""

LANES = "lanes"

MEMORY: Mapping[str, str] = MappingProxyType(
    {
        "latency": "cycles from a read's address to its first beat",
        "bandwidth": "beats per cycles",
        "outstanding": "bursts that main memory keeps open in each direction",
        "shared_bus": "gaps of reads and of writes, cycles of a refresh and its interval",
    }
)
"""Properties of main memory, with their meanings."""

MACHINE = (LANES, *PARAMETERS)
"""Names that belong to the configuration."""
BY_FILE = ("extra_operations", "name")
"""Keys of a configuration's file that no setting changes."""

DEFAULT_MEMORY = MemoryModel()

NO_BUS = "none"
"""Value of `shared_bus` for a memory whose reads and writes are independent."""

_NEXT_SETTING = re.compile(r",(?=\s*\w+\s*=)")
_RANGE = re.compile(r"(\w+)\.\.(\w+)")
_TUPLES = {
    LANES: ("x", 2, "8x16"),
    "bandwidth": ("/", 2, "1/4"),
    "shared_bus": ("/", 4, "6/7/7/781"),
}
"""Values with several numbers: their separator, the numbers, and an example."""


def read_values(
    name: str, values: object, source: str, known: Iterable[str] = (*MACHINE, *MEMORY)
) -> tuple[Value, ...]:
    """Read the values of one name, without duplicates, in the order given.

    Parameters
    ----------
    values
        A text such as `8x8,8x16` or `1024..8192`, an integer, or a list of texts and integers.
    source
        The place to name in messages, for example "`--vary lanes=8x8`".
    known
        The names that make sense there.

    Raises
    ------
    UsageError
        For an unknown name, or a value that no machine or memory has.
    """
    _check_name(name, source, tuple(known))
    parts = values if isinstance(values, list | tuple) else str(values).split(",")
    found = [value for part in parts for value in _values(name, str(part).strip(), source)]
    for value in found:
        _check(name, value, source)
    return tuple(dict.fromkeys(found))


def read_settings(
    texts: Iterable[str], source: str, known: Iterable[str] = (*MACHINE, *MEMORY)
) -> dict[str, Value]:
    """Read settings with one value each; a later one replaces an earlier one of the same name.

    Raises
    ------
    UsageError
        As `read_values`, and for a text that is not a setting.
    """
    found = {}
    for text in texts:
        name, given, value = (part.strip() for part in text.partition("="))
        if not given:
            raise UsageError(
                f"{source}: expected NAME=VALUE such as `act_depth=4096`, got `{text}`; correct it"
            )
        first, *more = read_values(name, value, source, known)
        if more:
            raise UsageError(f"{source}: expected one value of `{name}`, got `{value}`; choose one")
        found[name] = first
    return found


def text_of(name: str, value: Value) -> str:
    """Return a value as text, in the syntax of `read_values`."""
    if value is None:
        return NO_BUS
    return _TUPLES[name][0].join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_parameters(name: str, value: Value) -> dict[str, Any]:
    """Return the parameters of a configuration that a value sets."""
    return {"lanes_in": value[0], "lanes_out": value[1]} if name == LANES else {name: value}


def configuration_with(base: Configuration, chosen: Mapping[str, Value]) -> Configuration:
    """Return a configuration with settings changed, which its name lists.

    Raises
    ------
    ConfigurationError
        If the values break a rule.
    """
    if not chosen:
        return base
    parameters: dict[str, Any] = {}
    for name, value in chosen.items():
        parameters |= as_parameters(name, value)
    texts = (f"{name}={text_of(name, value)}" for name, value in chosen.items())
    return base.replace(name=",".join([base.name, *texts]), **parameters)


@checked("load_configuration", ConfigurationError)
def load_configuration(text: str) -> Configuration:
    """Return a machine: a preset by its name in any case, or a JSON file, then any settings.

    For example, `16x16`, `my_machine.json` or `16x16,lanes=8x16,act_depth=512`; settings alone
    change the default machine.

    Raises
    ------
    ConfigurationError
        For an unknown preset or file, or a broken rule.
    UsageError
        For a setting that is none.
    """
    if os.path.isfile(text):  # its name may have a comma
        return read_base(text)
    first, *settings = (part.strip() for part in text.split(","))
    if "=" in first:
        base, settings = DEFAULT, [first, *settings]
    else:
        base = read_base(first)
    return configuration_with(base, read_settings(settings, f"configuration `{text}`", MACHINE))


def changed(configuration: Configuration, settings: Iterable[str]) -> Configuration:
    """Return a configuration with the settings of `--set`, which its name lists.

    Raises
    ------
    ConfigurationError
        For a broken rule.
    UsageError
        For a setting that is none.
    """
    chosen: dict[str, Value] = {}
    for text in settings:
        chosen |= read_settings(_NEXT_SETTING.split(text), f"`--set {text}`", MACHINE)
    return configuration_with(configuration, chosen)


def read_machine_and_memory(
    text: str,
    source: str,
    base: Configuration | None,
    memory: MemoryModel,
    changes: Iterable[str] = (),
) -> tuple[Configuration | None, MemoryModel]:
    """Read `NAME,SETTING,...` with settings of machine and memory; every part may be left out.

    Parameters
    ----------
    base, memory
        Give what the text does not say.
    changes
        Settings of `--set`, for a machine that the text names.

    Returns
    -------
    configuration
        None if neither the text nor `base` chooses one.

    Raises
    ------
    ConfigurationError
        For an unknown preset or file, or a broken rule.
    UsageError
        For a setting that is none.
    """
    first, *rest = (part.strip() for part in text.split(","))
    if "=" in first:
        rest = [first, *rest]
    else:
        base = changed(read_base(first), changes)
    chosen = read_settings(rest, source)
    machine = {name: value for name, value in chosen.items() if name not in MEMORY}
    if machine:
        base = configuration_with(base or DEFAULT, machine)
    return base, memory_with(memory, chosen)


def read_memory(text: str, source: str) -> MemoryModel:
    """Read a main memory: `default`, or settings; other properties have their defaults.

    Raises
    ------
    UsageError
        For a setting that is none, or that no memory has.
    """
    if text.strip() == "default":
        return DEFAULT_MEMORY
    return memory_with(DEFAULT_MEMORY, read_settings(text.split(","), source, MEMORY))


def memory_with(memory: MemoryModel, chosen: Mapping[str, Value]) -> MemoryModel:
    """Return a memory with some of the properties of `MEMORY` changed.

    Raises
    ------
    DeviceError
        For an impossible memory.
    """
    beats, cycles = chosen.get("bandwidth", (memory.beats, memory.cycles))
    bus = memory.bus
    if "shared_bus" in chosen:
        bus = None if chosen["shared_bus"] is None else SharedBus.of_cycles(*chosen["shared_bus"])
    return MemoryModel(
        latency_cycles=chosen.get("latency", memory.latency_cycles),
        beats=beats,
        cycles=cycles,
        outstanding_bursts=chosen.get("outstanding", memory.outstanding_bursts),
        stall_probability=memory.stall_probability,
        seed=memory.seed,
        bus=bus,
    )


def memory_text(memory: MemoryModel) -> str:
    """Return all properties of a memory as settings; random stalls are left out."""
    values = {
        "latency": memory.latency_cycles,
        "bandwidth": (memory.beats, memory.cycles),
        "outstanding": memory.outstanding_bursts,
    }
    if memory.bus is not None:
        values["shared_bus"] = astuple(memory.bus)
    return ",".join(f"{name}={text_of(name, value)}" for name, value in values.items())


def _check_name(name: str, source: str, known: tuple[str, ...]) -> None:
    if name in known:
        return
    if name in MEMORY:
        option = f"--{name.replace('_', '-')}"
        raise UsageError(
            f"{source}: `{name}` is a property of main memory, not of the machine; use `{option}` "
            f"(in `sweep`, `--vary {name}=VALUES`)"
        )
    if name in BY_FILE:
        raise UsageError(
            f"{source}: `{name}` stands in a file of parameters alone; begin one with `tilewright "
            "config show --json mine.json`, and give `--config mine.json`"
        )
    kinds = ["lanes, or a parameter of the configuration (`tilewright config show`)"]
    kinds = kinds if LANES in known else []
    if set(MEMORY) <= set(known):
        kinds.append(f"a property of main memory ({', '.join(MEMORY)})")
    raise UsageError(
        f"{source}: unknown parameter `{name}`; expected {', or '.join(kinds)}"
        + did_you_mean(name, known)
    )


def _values(name: str, text: str, source: str) -> list[Value]:
    """Return the values of one part of a list."""
    if name == "shared_bus" and text == NO_BUS:
        return [None]
    if name in _TUPLES:
        return [_tuple(name, text, source)]
    if name in PARAMETERS and PARAMETERS[name].choices:
        return [text]
    ends = _RANGE.fullmatch(text)
    if ends is None:
        return [_number(name, text, source)]
    low, high = (_number(name, end, source) for end in ends.groups())
    if not 0 <= low <= high:
        raise UsageError(
            f"{source}: expected a range from a smaller to a larger number, got `{text}`; turn it "
            "round"
        )
    # Values above the limit are refused one by one, so one of them is enough.
    limit = 2 * PARAMETERS[name].high if name in PARAMETERS else 1 << 64
    return _steps(name)(low, min(high, max(low, limit)))


def _steps(name: str) -> Callable[[int, int], list[int]]:
    """Return a function that lists a range: powers of two where legal values are, else all."""
    about = PARAMETERS.get(name)
    if about is not None and not about.power_of_two:
        return lambda low, high: list(range(low, high + 1))
    return _doubles


def _doubles(low: int, high: int) -> list[int]:
    """Double a number up to a limit; 0 is followed by 1."""
    first = max(low, 1)
    return [0] * (low == 0) + [
        first << shift for shift in range(high.bit_length()) if first << shift <= high
    ]


def _number(name: str, text: str, source: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        kind = "a number of cycles" if name == "latency" else "a whole number"
        raise UsageError(
            f"{source}: expected {kind} without a unit, such as `64`, got `{text}`; correct it"
        ) from None


def _tuple(name: str, text: str, source: str) -> tuple[int, ...]:
    sign, count, example = _TUPLES[name]
    parts = text.split(sign)
    if name == "bandwidth" and len(parts) == 1:
        parts.append("1")
    try:
        numbers = tuple(map(int, parts))
    except ValueError:
        numbers = ()
    if len(numbers) != count:
        kind = "pairs" if count == 2 else f"{count} numbers"
        raise UsageError(f"{source}: expected {kind} such as `{example}`, got `{text}`; correct it")
    return numbers


def _check(name: str, value: Value, source: str) -> None:
    """Reject a value that is illegal regardless of all other values."""
    if name in MEMORY:
        try:
            memory_with(DEFAULT_MEMORY, {name: value})
        except DeviceError as problem:
            raise UsageError(f"{source}: {str(problem).removeprefix('memory model: ')}") from None
        return
    for parameter, number in as_parameters(name, value).items():
        about = PARAMETERS[parameter]
        if about.choices:
            if number not in about.choices:
                raise UsageError(f"{source}: `{parameter}` must be {about.legal}, not `{number}`")
            continue
        ragged = about.power_of_two and number & (number - 1)
        if not about.low <= number <= about.high or ragged:
            kind = "a power of two " if about.power_of_two else ""
            raise UsageError(
                f"{source}: `{parameter}` must be {kind}from {about.low} to {about.high}, not "
                f"{number}"
            )

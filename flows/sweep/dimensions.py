"""The names that a sweep can vary, and the syntax of their values.

A dimension is a parameter of `Configuration`, a property of main memory, or `lanes`, which sets
`lanes_in` and `lanes_out` together.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...errors import DeviceError, UsageError, did_you_mean
from ...isa.configuration import PARAMETERS
from ...isa.memory_model import MemoryModel

Value = Any
"""An integer, a word, or a pair: lanes in and out, or beats and cycles."""

LANES = "lanes"

MEMORY: Mapping[str, str] = MappingProxyType(
    {
        "latency": "cycles from a read's address to its first beat",
        "bandwidth": "beats per cycles",
        "outstanding": "bursts that main memory keeps open in each direction",
    }
)
"""Properties of main memory, with their meanings."""

NAMES = (LANES, *PARAMETERS, *MEMORY)
"""Everything that can vary."""

_RANGE = re.compile(r"(\w+)\.\.(\w+)")
_PAIRS = {LANES: "x", "bandwidth": "/"}
"""The separator between the two numbers of a pair."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A name with the values that it takes.

    Parameters
    ----------
    name
        One of `NAMES`.
    values
        Without duplicates, in the order given.
    """

    name: str
    values: tuple[Value, ...]

    @property
    def in_memory(self) -> bool:
        """Whether it is a property of main memory. Programs do not depend on these."""
        return self.name in MEMORY


def read_dimension(name: str, values: object, source: str) -> Dimension:
    """Read a dimension.

    Parameters
    ----------
    name
        The name to vary.
    values
        A text such as `8x8,8x16` or `1024..8192`, an integer, or a list of texts and integers.
    source
        The place to name in messages, for example "`--vary lanes=8x8`".

    Raises
    ------
    UsageError
        For an unknown name, or a value that no machine or memory has.
    """
    if name not in NAMES:
        raise UsageError(
            f"{source}: unknown parameter `{name}`; a sweep varies lanes, parameters of the "
            f"configuration (`tilewright config show`), and {', '.join(MEMORY)}"
            + did_you_mean(name, NAMES)
        )
    parts = values if isinstance(values, list | tuple) else str(values).split(",")
    found = [value for part in parts for value in _values(name, str(part).strip(), source)]
    for value in found:
        _check(name, value, source)
    return Dimension(name, tuple(dict.fromkeys(found)))


def text_of(name: str, value: Value) -> str:
    """Return a value as text, in the syntax of `read_dimension`."""
    return _PAIRS[name].join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_parameters(name: str, value: Value) -> dict[str, Any]:
    """Return the parameters of a configuration that a value sets."""
    return {"lanes_in": value[0], "lanes_out": value[1]} if name == LANES else {name: value}


def memory_with(memory: MemoryModel, chosen: Mapping[str, Value]) -> MemoryModel:
    """Return a memory with some of the properties of `MEMORY` changed.

    Raises
    ------
    DeviceError
        For an impossible memory.
    """
    beats, cycles = chosen.get("bandwidth", (memory.beats, memory.cycles))
    return MemoryModel(
        latency_cycles=chosen.get("latency", memory.latency_cycles),
        beats=beats,
        cycles=cycles,
        outstanding_bursts=chosen.get("outstanding", memory.outstanding_bursts),
        bus=memory.bus,
    )


def _values(name: str, text: str, source: str) -> list[Value]:
    """Return the values of one part of a list."""
    if name in _PAIRS:
        return [_pair(name, text, source)]
    if name in PARAMETERS and PARAMETERS[name].choices:
        return [text]
    ends = _RANGE.fullmatch(text)
    if ends is None:
        return [_number(name, text, source)]
    low, high = (_number(name, end, source) for end in ends.groups())
    if not 0 < low <= high:
        raise UsageError(
            f"{source}: expected a range from a smaller to a larger number, got `{text}`; turn it "
            "round"
        )
    return list(_steps(name)(low, high))


def _steps(name: str) -> Callable[[int, int], list[int]]:
    """Return a function that lists a range: powers of two where legal values are, else all."""
    about = PARAMETERS.get(name)
    if about is not None and not about.power_of_two:
        return lambda low, high: list(range(low, high + 1))
    return lambda low, high: [
        low << shift for shift in range(high.bit_length()) if low << shift <= high
    ]


def _number(name: str, text: str, source: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        unit = " in cycles" if name == "latency" else ""
        raise UsageError(
            f"{source}: expected whole numbers{unit} without a unit, or a range such as "
            f"`{name}=16..64`, got `{text}`; correct it"
        ) from None


def _pair(name: str, text: str, source: str) -> tuple[int, int]:
    sign = _PAIRS[name]
    first, given, second = text.partition(sign)
    try:
        if name == "bandwidth" and not given:
            return int(first), 1
        return int(first), int(second)
    except ValueError:
        example = "8x16" if name == LANES else "1/4"
        raise UsageError(
            f"{source}: expected pairs such as `{name}={example}`, got `{text}`; correct it"
        ) from None


def _check(name: str, value: Value, source: str) -> None:
    """Reject a value that is illegal regardless of all other values."""
    if name in MEMORY:
        try:
            memory_with(MemoryModel(), {name: value})
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

"""Schedule steps: their base class and their text.

A step is frozen data and a rule. `apply` refuses an illegal step and otherwise returns the new
state. `legality.check_state` checks the rules that hold after every step.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from ...quoting import is_count
from .stages import State
from .target import ScheduleError

STEPS: dict[str, type["Step"]] = {}
"""Steps by the name in their text."""

_PLAIN = re.compile(r"[^\s,()\"]+")
_LINE = re.compile(r"\s*(\w+)\((.*)\)\s*")
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
"""A string of JSON."""
_ARGUMENT = re.compile(rf"\s*({_TEXT}|[^\s,()\"]+)\s*(,|$)")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule; its fields are whole numbers and names; the last may be a tuple.

    In text, the step `CacheRead` is `cache_read`.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
            STEPS[cls.name] = cls

    @abstractmethod
    def apply(self, state: State) -> State:
        """The state after the step.

        Raises
        ------
        ScheduleError
            When the step is illegal in this state.
        """

    @property
    def arguments(self) -> tuple[str | int, ...]:
        """All field values in order."""
        flat: list[str | int] = []
        for item in fields(self):
            value = getattr(self, item.name)
            flat += value if isinstance(value, tuple) else (value,)
        return tuple(flat)

    def renamed(self, name_of: Callable[[str], str]) -> Self:
        """The step with other names of stages and loops."""
        changed = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str):
                changed[item.name] = name_of(value)
            elif isinstance(value, tuple):
                changed[item.name] = tuple(map(name_of, value))
        return replace(self, **changed)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_argument_text, self.arguments))})"


@contextmanager
def blame(step: Step) -> Iterator[None]:
    """Name the step in the messages of errors."""
    try:
        yield
    except ScheduleError as error:
        raise ScheduleError(f"{step}: {error}", step) from error


def _argument_text(value: str | int) -> str:
    plain = isinstance(value, int) or _PLAIN.fullmatch(value)
    return str(value) if plain else json.dumps(value)


def parse_step(line: str) -> Step:
    """Parse a step from a line of text.

    Raises
    ------
    ScheduleError
        When the line is not a step; the message says what is expected.
    """
    match = _LINE.fullmatch(line)
    family = STEPS.get(match[1]) if match else None
    if match is None or family is None:
        raise ScheduleError(
            f"`{line.strip()}` is not a schedule step; expected `name(arguments)` with one of "
            f"{', '.join(sorted(STEPS))}"
        )
    words = _words(match[2], line)
    kinds = [(item.name, item.type) for item in fields(family)]
    several = bool(kinds) and kinds[-1][1] == tuple[str, ...]
    if len(words) != len(kinds) and not (several and len(words) >= len(kinds)):
        raise ScheduleError(
            f"`{line.strip()}`: {family.name} takes {', '.join(name for name, _ in kinds)}"
            f"{', ...' if several else ''}"
        )
    values: list[str | int | tuple[str, ...]] = []
    for position, (name, kind) in enumerate(kinds):
        if kind is int:
            if not is_count(words[position].removeprefix("-")):
                raise ScheduleError(
                    f"`{line.strip()}`: `{name}` must be a whole number, not `{words[position]}`"
                )
            values.append(int(words[position]))
        elif kind is str:
            values.append(words[position])
        else:
            values.append(tuple(words[position:]))
    return family(*values)


def _words(text: str, line: str) -> list[str]:
    words, at = [], 0
    while at < len(text):
        match = _ARGUMENT.match(text, at)
        if match is None:
            raise ScheduleError(
                f"`{line.strip()}`: cannot read `{text[at:]}`; arguments are names and whole "
                "numbers between commas, other names in double quotes"
            )
        words.append(json.loads(match[1]) if match[1].startswith('"') else match[1])
        at = match.end()
    return words

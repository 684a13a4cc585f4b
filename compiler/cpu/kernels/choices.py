"""Free decisions of kernel schedules: planners ask, and a tuner may answer.

A planner asks for each decision by a name, with its default and the other legal values. What it
asks may follow from earlier answers, so walking the questions gives the space of a kernel, and no
list of it is kept beside the planners.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ....errors import CompileError

if TYPE_CHECKING:
    from ..target import CpuTarget
    from .description import Description, TunableDescription

Choice = tuple[tuple[str, int | str], ...]
"""Answers to some questions, by name; the others get the planner's default."""

MAX_POINTS = 20_000
"""Points of a space from which on it is cut off."""


class Choices:
    """The questions of one planner, with their answers.

    Parameters
    ----------
    given
        Answers; a question without one gets its default.

    Attributes
    ----------
    asked
        The legal answers of each question, the default first.
    """

    def __init__(self, given: Choice = ()) -> None:
        self._given = dict(given)
        self.asked: dict[str, tuple[int | str, ...]] = {}

    def pick(self, name: str, default: int, others: Iterable[int] = ()) -> int:
        """The answer to a question whose answers are whole numbers."""
        found = self._pick(name, default, others)
        assert isinstance(found, int)
        return found

    def pick_name(self, name: str, default: str, others: Iterable[str] = ()) -> str:
        """The answer to a question whose answers are names."""
        return str(self._pick(name, default, others))

    def _pick(self, name: str, default: int | str, others: Iterable[int | str]) -> int | str:
        legal = tuple(dict.fromkeys((default, *others)))
        self.asked[name] = legal
        found = self._given.get(name, default)
        if found not in legal or isinstance(found, bool):
            raise CompileError(
                f"kernel: `{name}={found}`: expected one of {', '.join(map(str, legal))}; leave it "
                "out for the default"
            )
        return found

    def check_known(self) -> None:
        """Refuse answers to questions that were not asked."""
        for name in self._given:
            if name not in self.asked:
                known = ", ".join(self.asked) or "none"
                raise CompileError(f"kernel: unknown choice `{name}`; this one has {known}")


def choice_text(choice: Choice) -> str:
    """Return answers as text, such as `vectors=2,rows=6`; `default` if there are none."""
    return ",".join(f"{name}={value}" for name, value in choice) or "default"


def choice_of(text: str) -> Choice:
    """Return the answers in a text of `choice_text`.

    Raises
    ------
    CompileError
        If it has another form.
    """
    if text == "default":
        return ()
    found: dict[str, int | str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not (name.isidentifier() and separator and value.isascii() and value.isalnum()):
            raise CompileError(f"kernel: expected choices as NAME=VALUE,..., got `{text:.80}`")
        if value.isdecimal() and len(value) > 9:
            raise CompileError(f"kernel: expected numbers of up to 9 digits, got `{text:.80}`")
        found[name] = int(value) if value.isdecimal() else value
    return tuple(found.items())


def space_of(
    product: "TunableDescription",
    questions: "Callable[[TunableDescription], Mapping[str, tuple[int | str, ...]]]",
) -> list[Choice]:
    """Return all legal answers to a planner's questions, the default's first, at most `MAX_POINTS`.

    Answers that follow from the default alone are left out, so equal points have equal texts.
    """
    found: list[Choice] = []
    waiting: list[Choice] = [()]
    while waiting and len(found) < MAX_POINTS:
        known = waiting.pop()
        asked = questions(product.with_choice(known))
        name = next((one for one in asked if one not in dict(known)), None)
        if name is None:
            found.append(known)
        else:
            waiting += [(*known, (name, value)) for value in reversed(asked[name])]
    return found


def digest_of(text: str) -> str:
    """Return 32 hexadecimal digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def workload_of(product: "TunableDescription") -> str:
    """Return what a kernel computes, as text: its description without decisions."""
    return repr(product.with_choice(()))


def choice_key(workload: str, target: "CpuTarget") -> str:
    """Return the key of decisions: they hold for one workload, by its digest, on one target."""
    return digest_of(f"{workload} {target!r}")


def device_key(workload: str, device: str) -> str:
    """Return the key of decisions for a GPU: a workload and a device, both by their digests."""
    return f"{workload} {device}"


def is_device_key(key: str) -> bool:
    """Whether a key is one of `device_key`."""
    return " " in key


def device_choices(
    descriptions: "Iterable[Description]", choices: Mapping[str, str]
) -> dict[str, str]:
    """Return the choices for kernels on GPUs, whichever these are."""
    from .description import TunableDescription

    known = {
        digest_of(workload_of(one)) for one in descriptions if isinstance(one, TunableDescription)
    }
    found = ((key, key.partition(" ")) for key in choices)
    return {
        key: choices[key] for key, (workload, _, device) in found if device and workload in known
    }


def applied_choices(
    descriptions: "Iterable[Description]",
    target: "CpuTarget",
    choices: Mapping[str, str],
    is_compiled: "Callable[[Description], bool]",
) -> Iterator[tuple[str, str]]:
    """Yield the recorded choices, with their keys, that compiled kernels have."""
    from .description import TunableDescription

    for description in descriptions:
        changed = with_recorded_choice(description, target, choices)
        if not isinstance(description, TunableDescription):
            continue
        if changed != description and is_compiled(changed):
            key = choice_key(digest_of(workload_of(description)), target)
            yield key, choices[key]


def with_recorded_choice(
    description: "Description", target: "CpuTarget", choices: Mapping[str, str]
) -> "Description":
    """Return a kernel with the decisions that were recorded for it on this target.

    It stays as it is if there are none, or if its planner does not know them: they may stem from
    another version, or from a stranger.
    """
    from .description import TunableDescription

    if not choices or not isinstance(description, TunableDescription) or description.choice:
        return description
    text = choices.get(choice_key(digest_of(workload_of(description)), target))
    if text is None:
        return description
    try:
        changed = description.with_choice(choice_of(text))
        changed.plan(target)
    except CompileError:
        return description
    return changed

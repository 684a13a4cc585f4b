"""The space of a sweep: its legal machines, and the main memories that all of them run with.

Varied parameters may change others, as in `Configuration.replace`: fewer lanes lower
`vector_lanes`. Combinations that break a rule of the machine are skipped and counted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from ...errors import ConfigurationError, UsageError
from ...isa.configuration import DEFAULT, Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import (
    DEFAULT_MEMORY,
    Value,
    as_parameters,
    configuration_with,
    memory_with,
    text_of,
)
from ...wording import counted
from .dimensions import Dimension, read_dimension

Chosen = Mapping[str, str]
"""Values of the varied names, as text."""

REASONS_TOLD = 3
"""Number of broken rules that a message lists if a space has no legal machine."""

MACHINES_TOLD = 1_000
"""Machines listed between two reports of progress."""

MAX_COMBINATIONS = 250_000
"""Limit without a search: more would not fit into 3 GiB with their bounds and results."""


@dataclass(frozen=True, slots=True)
class SweepMachine:
    """A legal configuration of a space.

    Parameters
    ----------
    chosen
        The varied parameters.
    """

    configuration: Configuration
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class SweepMemory:
    """A main memory of a space.

    Parameters
    ----------
    chosen
        The varied properties.
    """

    memory: MemoryModel
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Point:
    """A machine with a main memory."""

    machine: SweepMachine
    setting: SweepMemory

    @property
    def chosen(self) -> dict[str, str]:
        """The values of all varied names, as text."""
        return {**self.machine.chosen, **self.setting.chosen}


@dataclass
class Rejected:
    """Combinations that break a rule.

    Parameters
    ----------
    count
        Number of combinations.
    rules
        For each rule, the number of combinations that break it first.
    """

    count: int = 0
    rules: Counter[str] = field(default_factory=Counter)

    def add(self, problem: ConfigurationError) -> None:
        """Count a combination, and the rule that it breaks first."""
        self.count += 1
        self.rules[str(problem).partition("`: ")[2]] += 1

    @property
    def sentence(self) -> str:
        """The number of combinations, and the rule broken most often."""
        ((rule, count),) = self.rules.most_common(1)
        share = f", {count:,} of them" if count < self.count else ""
        return f"{counted(self.count, 'combination')}{share}: {rule}"


@dataclass(frozen=True)
class Space:
    """All combinations of the values of some dimensions.

    Parameters
    ----------
    dimensions
        The varied names; the last one varies fastest.
    base
        The configuration that gives all other parameters.
    memory
        The main memory that gives all other properties.
    program_for
        The main memory that every program is made for; None for the one that it runs with.

    Raises
    ------
    UsageError
        When two dimensions set the same parameter.
    """

    dimensions: tuple[Dimension, ...] = ()
    base: Configuration = DEFAULT
    memory: MemoryModel = DEFAULT_MEMORY
    program_for: MemoryModel | None = None

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for dimension in self.dimensions:
            names = [dimension.name]
            if not dimension.in_memory:
                names = list(as_parameters(dimension.name, (0, 0)))
            for name in names:
                if name in seen:
                    raise UsageError(
                        f"space: `{seen[name]}` and `{dimension.name}` both set `{name}`; leave "
                        "one of them out"
                    )
                seen[name] = dimension.name

    @staticmethod
    def of(
        vary: Mapping[str, object] | Sequence[tuple[str, object]],
        base: Configuration = DEFAULT,
        memory: MemoryModel = DEFAULT_MEMORY,
    ) -> "Space":
        """A space from names and values, as `--vary` and a TOML file have them.

        For example, `Space.of({"lanes": "4x4,8x8", "act_depth": "512..2048"})`.

        Raises
        ------
        UsageError
            For an unknown name or an impossible value.
        """
        pairs = vary.items() if isinstance(vary, Mapping) else vary
        dimensions = tuple(
            read_dimension(name, values, f"`{name}={_shown(values)}`") for name, values in pairs
        )
        return Space(dimensions, base, memory)

    @property
    def combinations(self) -> int:
        """Number of combinations, legal or not."""
        return prod(len(dimension.values) for dimension in self.dimensions)

    @cached_property
    def machine_dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions of the machine, without those of main memory."""
        return tuple(dimension for dimension in self.dimensions if not dimension.in_memory)

    @cached_property
    def settings(self) -> tuple[SweepMemory, ...]:
        """The main memories that every machine runs with."""
        names = [dimension for dimension in self.dimensions if dimension.in_memory]
        return tuple(
            SweepMemory(memory_with(self.memory, given), _as_text(given))
            for given in _combinations(names)
        )

    def machines(self, rejected: Rejected | None = None) -> Iterator[SweepMachine]:
        """Yield each legal machine once.

        Parameters
        ----------
        rejected
            Counts the skipped combinations.
        """
        found: set[int] = set()
        for choice in product(*(range(len(each.values)) for each in self.machine_dimensions)):
            try:
                machine = self.machine(choice)
            except ConfigurationError as problem:
                if rejected is not None:
                    rejected.add(problem)
                continue
            identity = hash(tuple(machine.configuration.parameters().items()))
            if identity not in found:
                found.add(identity)
                yield machine

    def all_machines(self, rejected: Rejected, tell: Callable[[int], None]) -> list[SweepMachine]:
        """Return each legal machine once.

        Parameters
        ----------
        rejected
            Counts the skipped combinations.
        tell
            Is told now and then how many machines there are so far.

        Raises
        ------
        UsageError
            When there are more combinations than `MAX_COMBINATIONS`.
        """
        if self.combinations > MAX_COMBINATIONS:
            raise UsageError(
                f"space: expected at most {MAX_COMBINATIONS:,} combinations, got "
                f"{self.combinations:,}; vary fewer values, or compile only some of them: add "
                "`--search random --evaluations 200`"
            )
        found = []
        for machine in self.machines(rejected):
            found.append(machine)
            if len(found) % MACHINES_TOLD == 0:
                tell(len(found))
        return found

    def machine(self, choice: Sequence[int]) -> SweepMachine:
        """Return the machine of a choice: the index of a value for each of `machine_dimensions`.

        Raises
        ------
        ConfigurationError
            If these values break a rule.
        """
        given = {
            dimension.name: dimension.values[index]
            for dimension, index in zip(self.machine_dimensions, choice, strict=True)
        }
        return SweepMachine(configuration_with(self.base, given), _as_text(given))

    def no_machine(self, rejected: Rejected) -> UsageError:
        """Return the error for a space without legal machines, with the rules broken most often."""
        rules = [rule for rule, _ in rejected.rules.most_common(REASONS_TOLD)]
        return UsageError(
            f"space: expected a legal configuration, got none of {rejected.count}: "
            f"{'; '.join(dict.fromkeys(rules))}; vary other values"
        )


def _combinations(dimensions: Sequence[Dimension]) -> Iterator[dict[str, Value]]:
    names = [dimension.name for dimension in dimensions]
    for values in product(*(dimension.values for dimension in dimensions)):
        yield dict(zip(names, values, strict=True))


def _as_text(given: Mapping[str, Value]) -> dict[str, str]:
    return {name: text_of(name, value) for name, value in given.items()}


def _shown(values: object) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)

"""Legal machines of a space, drawn at random or made from choices, each one once."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ....errors import ConfigurationError
from ..candidate import SweepCandidate
from ..records import configuration_digest
from ..space import Rejected, Space, SweepMachine

BATCH = 8
"""Machines that a search compiles before it learns from them. With more, searches need more
evaluations; with fewer, many processes wait for one another. Outcomes must not depend on the number
of processes, so it is fixed."""

DRAWN = 64
"""Machines that a random search draws at once. It learns nothing from results, so its batches are
large, and few processes wait for the end of one."""

LISTED = 1 << 16
"""Combinations of a space that are drawn from a list; of a larger one, each is drawn anew."""

TRIES = 2000
"""Combinations that are drawn for a legal new machine before a search gives up."""

Choice = tuple[int, ...]
"""The index of a value for each dimension of the machine."""


class Drawing:
    """The machines of a space that a search knows, and a source of new ones.

    Nothing lists the space unless it is small, so it may have any size.

    Parameters
    ----------
    rejected
        Counts each illegal combination once.
    """

    def __init__(self, space: Space, seed: int, rejected: Rejected) -> None:
        self.space, self.rejected = space, rejected
        self.sizes = tuple(len(dimension.values) for dimension in space.machine_dimensions)
        self.choices: dict[str, Choice] = {}
        self._random = np.random.default_rng(seed)
        self._known: dict[Choice, str | None] = {}
        self._order = self._choices()

    def digest(self, choice: Choice) -> str | None:
        """Return the digest of a known machine; None for an illegal or unknown one."""
        return self._known.get(choice)

    def make(self, choice: Choice) -> SweepMachine | None:
        """Return the machine of a choice if it is legal and new."""
        if choice in self._known:
            return None
        self._known[choice] = None
        try:
            machine = self.space.machine(choice)
        except ConfigurationError as problem:
            self.rejected.add(problem)
            return None
        self._known[choice] = digest = configuration_digest(machine.configuration)
        if digest in self.choices:
            return None
        self.choices[digest] = choice
        return machine

    def draw(self, count: int) -> list[SweepMachine]:
        """Draw new machines, each combination as likely as any other.

        There are fewer than `count` if the space has no more, or legal ones are too rare.
        """
        found: list[SweepMachine] = []
        tries = 0
        while len(found) < count and tries < TRIES:
            choice = next(self._order, None)
            if choice is None:
                break
            machine = self.make(choice)
            tries = 0 if machine else tries + 1
            found += [machine] if machine else []
        return found

    def neighbours(self, choice: Choice) -> Iterator[Choice]:
        """Yield the choices that differ in one dimension, by one value."""
        for place, size in enumerate(self.sizes):
            for index in (choice[place] - 1, choice[place] + 1):
                if 0 <= index < size:
                    yield (*choice[:place], index, *choice[place + 1 :])

    def _choices(self) -> Iterator[Choice]:
        if (count := prod(self.sizes)) <= LISTED:
            for number in self._random.permutation(count):
                yield tuple(map(int, np.unravel_index(number, self.sizes)))
        else:
            while True:
                yield tuple(map(int, self._random.integers(self.sizes)))


class Random:
    """Draws machines at random: the measure for all other methods."""

    def __init__(self, drawing: Drawing, evaluations: int) -> None:
        self._drawing = drawing
        self.batch = min(DRAWN, evaluations)

    def propose(self) -> list[SweepMachine]:
        """Draw a batch."""
        return self._drawing.draw(self.batch)

    def choose(self, candidates: Sequence[SweepCandidate], count: int) -> list[SweepCandidate]:
        """Return the first candidates."""
        return list(candidates[:count])

    def learn(self, candidates: Sequence[SweepCandidate]) -> None:
        """Do nothing: chance does not learn."""

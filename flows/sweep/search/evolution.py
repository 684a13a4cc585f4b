"""NSGA-II, driven by Optuna: combines the best machines so far, and changes some values."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..candidate import SweepCandidate
from ..space import SweepMachine
from .drawing import BATCH, Drawing

POPULATION = 16
"""Machines of a generation. Small, because a search has some hundred evaluations, not thousands."""

TRIES = 300
"""Descendants among which a batch of new machines is looked for."""


class Evolution:
    """Deb et al., "A fast and elitist multiobjective genetic algorithm", IEEE TEVC 6(2), 2002.

    A gene is the index of a dimension's value. With several main memories, an objective is its
    geometric mean over them. Optuna hears of illegal machines as failures.

    Parameters
    ----------
    optuna
        The library.
    objectives
        Number of objectives.
    """

    batch = BATCH

    def __init__(self, optuna: Any, drawing: Drawing, objectives: int, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._drawing = drawing
        self._failed = optuna.trial.TrialState.FAIL
        self._genes = {
            f"{place}": optuna.distributions.CategoricalDistribution(range(size))
            for place, size in enumerate(drawing.sizes)
        }
        self._study = optuna.create_study(
            directions=["minimize"] * objectives,
            sampler=optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed),
        )
        self._values: dict[str, list[float] | None] = {}
        self._trials: defaultdict[str, list[Any]] = defaultdict(list)

    def propose(self) -> list[SweepMachine]:
        """Return the new machines among the next descendants."""
        found: list[SweepMachine] = []
        for _ in range(TRIES):
            if len(found) == BATCH:
                break
            trial = self._study.ask(self._genes)
            choice = tuple(trial.params[name] for name in self._genes)
            machine = self._drawing.make(choice)
            digest = self._drawing.digest(choice)
            if digest is None:
                self._study.tell(trial, state=self._failed)
                continue
            self._trials[digest].append(trial)
            if machine is not None:
                found.append(machine)
            elif digest in self._values:
                self._tell(digest)
        return found

    def choose(self, candidates: Sequence[SweepCandidate], count: int) -> list[SweepCandidate]:
        """Return the first candidates."""
        return list(candidates[:count])

    def learn(self, candidates: Sequence[SweepCandidate]) -> None:
        """Tell Optuna the objectives."""
        for candidate in candidates:
            values = candidate.found[np.isfinite(candidate.found).all(axis=1)]
            logs = np.log(np.maximum(values, 1e-9))
            mean = logs.mean(axis=0).tolist() if len(values) else None
            self._values[candidate.item.digest] = mean
            self._tell(candidate.item.digest)

    def _tell(self, digest: str) -> None:
        values = self._values[digest]
        for trial in self._trials.pop(digest, ()):
            self._study.tell(trial, values, None if values else self._failed)

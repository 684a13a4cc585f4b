"""The methods of a search by name, and the interface that a sweep uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ....errors import ToolError, UsageError, did_you_mean, install_command
from ..candidate import SweepCandidate
from ..space import Rejected, Space, SweepMachine
from .drawing import Drawing, Random
from .evolution import Evolution
from .model import ModelGuided

LIBRARIES = {"random": "", "nsga2": "optuna", "model": "xgboost"}
"""Methods, with the Python package that each needs."""

METHODS = tuple(LIBRARIES)


@dataclass(frozen=True, slots=True)
class Search:
    """A search of a space instead of a sweep of all its machines.

    Parameters
    ----------
    method
        One of `METHODS`.
    evaluations
        Greatest number of machines to compile. Known results count as well, so that the outcome
        does not depend on the database.
    seed
        Equal seeds give equal outcomes.

    Raises
    ------
    UsageError
        For an unknown method, no evaluations, or a negative seed.
    """

    method: str
    evaluations: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(
                f"`--search {self.method}`: expected one of {', '.join(METHODS)}"
                + did_you_mean(self.method, METHODS)
            )
        if self.evaluations < 1:
            raise UsageError(
                f"`--evaluations {self.evaluations}`: expected at least 1 machine; correct it"
            )
        if self.seed < 0:
            raise UsageError(f"`--seed {self.seed}`: expected 0 or more; correct it")

    def require_library(self) -> Any:
        """Return the module of the library that the method needs; None if it needs none.

        Raises
        ------
        ToolError
            When the library is not installed.
        """
        name = LIBRARIES[self.method]
        try:
            return import_module(name) if name else None
        except ImportError:
            raise ToolError(
                f"`{name}`: not installed, so `--search {self.method}` cannot run; install it with "
                f"`{install_command('sweep')}`, or choose `--search random`"
            ) from None


class Method(Protocol):
    """A search method. The sweep calls its three functions in turn.

    Attributes
    ----------
    batch
        Greatest number of machines that the sweep compiles between two calls of `learn`.
    """

    batch: int

    def propose(self) -> list[SweepMachine]:
        """Return new machines, of which the sweep finds resources and bounds."""
        ...

    def choose(self, candidates: Sequence[SweepCandidate], count: int) -> list[SweepCandidate]:
        """Return at most `count` of the undecided machines, which the sweep compiles."""
        ...

    def learn(self, candidates: Sequence[SweepCandidate]) -> None:
        """Take note of machines that are now decided."""
        ...


def open_method(
    search: Search, space: Space, objectives: Sequence[str], rejected: Rejected
) -> Method:
    """Return a new search of a space.

    Parameters
    ----------
    rejected
        Counts the illegal combinations that the search meets.

    Raises
    ------
    ToolError
        When a library that the method needs is not installed.
    UsageError
        When the method cannot minimise an objective.
    """
    if search.method == "model" and "energy_uj" in objectives:
        raise UsageError(
            "`--search model`: expected objectives that are known before compilation, or cycles, "
            "got `energy_uj`; choose `--search nsga2`, or limit it with `--where`"
        )
    library = search.require_library()
    drawing = Drawing(space, search.seed, rejected)
    if search.method == "nsga2":
        return Evolution(library, drawing, len(objectives), search.seed)
    if search.method == "model":
        return ModelGuided(library, drawing, objectives, search.seed)
    return Random(drawing, search.evaluations)

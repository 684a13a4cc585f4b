"""The data of a sweep: its networks, the state of every point, its progress and its outcome."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..synthesis.devices import RESOURCES, FpgaDevice, find_device
from .expressions import Constraint
from .figures import CLOCK, COUNTS, TIMES
from .measured import Build, DesignFigures
from .space import Point, Rejected, Space

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from .search import Search

ON_FRONT, BEATEN, RULED_OUT, EXCLUDED, FAILED, OPEN = (
    "front", "beaten", "ruled out", "excluded", "failed", "open"
)  # fmt: skip
STATES = {
    ON_FRONT: "no other machine is better in one objective and at least as good in the others",
    BEATEN: "compiled, and another machine is better",
    RULED_OUT: "not compiled: another machine is better than its lower bound",
    EXCLUDED: "a condition of `--where` fails",
    FAILED: "the compiler, synthesis or placement rejects it",
    OPEN: "not compiled: the sweep was interrupted, or the search chose others",
}
"""States of a point, with their meanings."""


@dataclass(frozen=True, slots=True)
class SweepNetwork:
    """A network of a sweep.

    Parameters
    ----------
    weight
        How often it runs relative to the others.
    """

    name: str
    graph: "Graph"
    weight: float = 1.0


@dataclass(slots=True)
class PointResult:
    """The state, figures and errors of a point.

    Parameters
    ----------
    state
        One of `STATES`.
    bounds, units, cycles
        By network: the certified bound, the busiest unit in that bound, and the exact cycles if the
        machine was compiled.
    limits, layers
        By network, if the machine was compiled: the cycles of the critical path by what takes them,
        and each layer's name, cycles and limit; see `path_limits`.
    rtl
        Cycles on the RTL, by network, if the programs ran there.
    figures
        Exact or measured figures, and estimates; of a machine that was not compiled, those of the
        bound.
    measured
        What synthesis and placement measured; None if the machine was not synthesised.
    misses
        The conditions that it fails, each with the least share of the limit by which it does.
    error
        Why it failed.
    """

    point: Point
    state: str = OPEN
    bounds: tuple[int, ...] = ()
    units: tuple[str, ...] = ()
    cycles: tuple[int, ...] = ()
    limits: tuple[Mapping[str, int], ...] = ()
    layers: tuple[Sequence[tuple[str, int, str]], ...] = ()
    rtl: tuple[int, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    measured: DesignFigures | None = None
    misses: tuple[tuple[str, float], ...] = ()
    error: str | None = None


LISTING = "listing"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a sweep.

    Parameters
    ----------
    rung
        The evaluator that is running, or `LISTING` before the first.
    done, total
        Machines.
    front
        Points on the front so far.
    step
        The step of a slow evaluator; empty for the others.
    """

    rung: str
    done: int
    total: int
    front: int = 0
    step: str = ""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The result of a sweep.

    Parameters
    ----------
    results
        All legal points, in the order of the space.
    rejected
        Combinations that break a rule of the machine.
    compiled, reused
        Number of programs that were compiled, and of results that the database already had.
    interrupted
        Whether the user stopped it.
    search
        The search that chose the machines; None if the front is that of the whole space.
    evaluated
        Number of machines that were compiled, or whose results were known.
    build
        What was synthesised and placed; None if all resources are exact or estimates.
    own_clock
        Whether each machine has a clock of its own.
    """

    networks: tuple[SweepNetwork, ...]
    space: Space
    objectives: tuple[str, ...]
    where: tuple[Constraint, ...]
    clock_mhz: float
    results: tuple[PointResult, ...]
    rejected: Rejected
    compiled: int
    reused: int
    seconds: float
    interrupted: bool
    search: "Search | None"
    evaluated: int
    build: Build | None = None
    device: FpgaDevice | None = None
    own_clock: bool = False

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the figures for tables and pages: no resources that the device lacks."""
        placed = self.build is not None and self.build.seeds
        clock = (CLOCK,) if placed or self.own_clock else ()
        device = self.device or find_device("ecp5-85")
        lacking = RESOURCES.keys() - device.family.resources
        counts = (name for name in COUNTS if name not in lacking)
        return tuple(dict.fromkeys((*TIMES, *clock, *counts, *self.objectives)))

    @property
    def unmeasured(self) -> list[str]:
        """Names of the figures for tables and pages that this sweep did not measure itself."""
        return [name for name in self.shown if name != CLOCK or self.own_clock]

    @property
    def front(self) -> list[PointResult]:
        """The points on the front, memory by memory, the best in the first objective first."""
        order = {id(setting): index for index, setting in enumerate(self.space.settings)}
        found = [result for result in self.results if result.state == ON_FRONT]
        return sorted(
            found,
            key=lambda result: (
                order[id(result.point.setting)],
                *(result.figures[name] for name in self.objectives),
            ),
        )

    @property
    def counts(self) -> Counter[str]:
        """Number of points in each state."""
        return Counter(result.state for result in self.results)

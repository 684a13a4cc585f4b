"""Cycles and lower bounds of a compiled network, per layer and in total."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...isa.configuration import Configuration
from ..accelerator.lower_bound import NOWHERE, Demand, OnChip, chained, demand_of
from .candidate_timer import CandidateTimer, cycles_of
from .given_schedules import Part


@dataclass(frozen=True, slots=True)
class LayerGap:
    """The cycles of a separate layer and their lower bound over all schedules.

    Parameters
    ----------
    cycles, exact
        Cycles with the chosen schedule, by the timing model or, if not `exact`, by the estimate.
    demand
        The work of every schedule.
    among
        The same in the whole program, where activations may stay on chip.
    """

    name: str
    cycles: int
    exact: bool
    demand: Demand
    among: Demand

    @property
    def bound(self) -> int:
        """Lower bound in cycles for all schedules of the layer."""
        return self.demand.cycles

    @property
    def gap(self) -> float:
        """Excess over the bound, relative to the bound; no schedule can save more."""
        return share_over(self.cycles, self.bound)

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        return (
            f"{self.name}: {about}{self.cycles:,} cycles, lower bound {self.bound:,} "
            f"({self.demand.unit}), gap {self.gap:.1%}"
        )


def share_over(cycles: int, bound: int) -> float:
    """Excess over a bound, relative to the bound; 0 if there is no work."""
    return cycles / bound - 1 if bound else 0.0


def layer_gap(
    name: str,
    parts: Sequence[Part],
    configuration: Configuration,
    timer: CandidateTimer | None,
    on_chip: OnChip = NOWHERE,
) -> LayerGap:
    """The cycles of a layer and their lower bound.

    Parameters
    ----------
    parts
        Its kernels with their schedules; none for a movement without copies.
    timer
        Gives the exact cycles; without it, they are estimated.
    on_chip
        Values of the whole program that may stay on chip.
    """
    cycles = cycles_of(parts, timer)
    alone, among = (
        chained([demand_of(kernel, configuration, where) for kernel, _ in parts])
        for where in (NOWHERE, on_chip)
    )
    return LayerGap(name, cycles, timer is not None, alone, among)


def report_of(
    segments: Sequence[Sequence[LayerGap]], bound: int, cycles: int | None
) -> dict[str, Any]:
    """The part of a module's report about its cycles, as JSON values.

    Parameters
    ----------
    segments
        The layers of every segment.
    bound
        Lower bound in cycles for all segments.
    cycles
        Exact cycles of all segments; None if unknown.

    Returns
    -------
    dict
        `cycles`, `bound` and `gap` of the whole network, in which layers overlap, and `layers`:
        each layer alone, with the unit that determines its bound. No program of the same layers
        takes fewer cycles than `bound`. A program with other fused layers could.
    """
    return {
        "cycles": cycles,
        "bound": bound,
        "gap": None if cycles is None else share_over(cycles, bound),
        "layers": [
            {
                "name": layer.name,
                "cycles": layer.cycles,
                "exact": layer.exact,
                "bound": layer.bound,
                "unit": layer.demand.unit,
                "gap": layer.gap,
            }
            for layers in segments
            for layer in layers
        ],
    }

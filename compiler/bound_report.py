"""The cycles of a compiled network beside their lower bound, layer by layer and together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ..errors import CompileError
from ..isa.configuration import Configuration
from .accelerator.lower_bound import NOTHING, Demand, demand_of
from .accelerator.search import Candidate
from .candidate_timer import CandidateTimer
from .given_schedules import GivenSchedule, Part


@dataclass(frozen=True, slots=True)
class LayerGap:
    """A layer's time by itself, beside what it takes with any schedule.

    Parameters
    ----------
    cycles, exact
        With the chosen schedule; by the timing model or, if not `exact`, by the estimate.
    demand
        What every schedule has to do.
    """

    name: str
    cycles: int
    exact: bool
    demand: Demand

    @property
    def bound(self) -> int:
        """Cycles that no schedule of the layer is faster than."""
        return self.demand.cycles

    @property
    def gap(self) -> float:
        """How much longer than the bound, as a share of it; no schedule gains more."""
        return share_over(self.cycles, self.bound)

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        return (
            f"{self.name}: {about}{self.cycles:,} cycles, lower bound {self.bound:,} "
            f"({self.demand.unit}), gap {self.gap:.1%}"
        )


def share_over(cycles: int, bound: int) -> float:
    """How much longer than a bound, as a share of it; nothing where there is nothing to do."""
    return cycles / bound - 1 if bound else 0.0


def layer_gap(
    name: str, parts: Sequence[Part], configuration: Configuration, timer: CandidateTimer | None
) -> LayerGap:
    """What a layer takes and could take.

    Parameters
    ----------
    parts
        Its kernels with their schedules; none where it only moves what lies right already.
    timer
        Tells the time; without it, the estimate does.
    """
    if not parts:
        cycles = 0
    elif timer is not None:
        cycles = timer.cycles(*parts)
    else:
        cycles = sum(_estimated(choice) for _, choice in parts)
    demand = chained([demand_of(kernel, configuration) for kernel, _ in parts])
    return LayerGap(name, cycles, timer is not None, demand)


def _estimated(choice: Candidate | GivenSchedule) -> int:
    if isinstance(choice, GivenSchedule):
        raise CompileError(
            f"schedule of layer `{choice.layer}`: no estimate knows its cycles; give "
            "`compile_graph` a `measure`"
        )
    return choice.estimated_cycles


def chained(demands: Sequence[Demand]) -> Demand:
    """The demand of kernels that run one after the other as one program."""
    return reduce(Demand.then, demands) if demands else NOTHING


def report_of(segments: Sequence[Sequence[LayerGap]], cycles: int | None) -> dict[str, Any]:
    """What a module's report says of its cycles, as JSON values.

    Parameters
    ----------
    segments
        The layers of every segment.
    cycles
        Of all segments, exact; None where nobody could tell.

    Returns
    -------
    dict
        `cycles`, `bound` and `gap` of the whole network, in which layers overlap, and `layers`:
        each by itself, with the unit that its bound is owed to. No program of the same layers takes
        less than `bound`; another choice of layers that run as one might.
    """
    bound = sum(chained([layer.demand for layer in layers]).cycles for layers in segments)
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

"""The outcome of a sweep as JSON values, for `--json` and for the page.

It has no times or other values that differ between two runs of the same sweep.
"""

from dataclasses import asdict
from typing import Any

from ... import __version__
from ...isa.configuration import PARAMETERS
from .dimensions import as_parameters
from .figures import COUNTS, TIMES
from .outcome import Outcome, Result


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return the networks, the space, and every point with its state and figures."""
    shown = (*TIMES, *COUNTS, *(n for n in outcome.objectives if n not in (*TIMES, *COUNTS)))
    return {
        "version": __version__,
        "networks": [
            {"name": network.name, "weight": network.weight} for network in outcome.networks
        ],
        "base": {"name": outcome.space.base.name, "parameters": outcome.space.base.parameters()},
        "vary": [dimension.name for dimension in outcome.space.dimensions],
        "objectives": list(outcome.objectives),
        "where": list(map(str, outcome.where)),
        "clock_mhz": outcome.clock_mhz,
        "search": None if outcome.search is None else asdict(outcome.search),
        "evaluated": outcome.evaluated,
        "rejected": outcome.rejected.count,
        "counts": dict(sorted(outcome.counts.items())),
        "interrupted": outcome.interrupted,
        "points": [_point(result, outcome, shown) for result in outcome.results],
    }


def _point(result: Result, outcome: Outcome, shown: tuple[str, ...]) -> dict[str, Any]:
    configuration = result.point.machine.configuration
    varied = {n for d in outcome.space.dimensions for n in as_parameters(d.name, (0, 0))}
    return {
        "chosen": result.point.chosen,
        "state": result.state,
        "followed": {
            name: value
            for name, value in configuration.parameters().items()
            if name in PARAMETERS
            and name not in varied
            and value != getattr(outcome.space.base, name)
        },
        "hash": f"{configuration.hash:#010x}",
        "bound": dict(zip((n.name for n in outcome.networks), result.bounds, strict=False)),
        "unit": dict(zip((n.name for n in outcome.networks), result.units, strict=False)),
        "rtl": dict(zip((n.name for n in outcome.networks), result.rtl, strict=False)),
        "cycles": dict(zip((n.name for n in outcome.networks), result.cycles, strict=False)),
        "figures": {
            name: value
            for name in shown
            if (value := result.figures.get(name)) is not None and (result.cycles or name in COUNTS)
        },
        "error": result.error,
    }

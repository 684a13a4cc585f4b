"""The outcome of a sweep as JSON values, for `--json` and for the page.

It has no times or other values that differ between two runs of the same sweep.
"""

from dataclasses import asdict
from typing import Any

from ... import __version__
from ...isa.configuration import PARAMETERS
from ...isa.settings import as_parameters, memory_text
from ..area.provenance import outdated
from ..reports.layer_groups import LayerGroup, group_layers
from .figures import CLOCK, COUNTS
from .outcome import PointResult, SweepOutcome
from .path_limits import HIDDEN, JOINT
from .verdict import verdict


def outcome_json(outcome: SweepOutcome) -> dict[str, Any]:
    """Return the networks, the space, and every point with its state, figures and layers.

    `layers` names the layers of each network. Those of a point are [cycles, limit], in this order;
    where its machine fuses others, their sum. None stands for a layer that it does not have.
    """
    grouped = [
        group_layers([_nodes(result, index) for result in outcome.results if result.cycles])
        for index in range(len(outcome.networks))
    ]
    timed = iter(range(len(outcome.results)))
    return {
        "version": __version__,
        "networks": [
            {"name": network.name, "weight": network.weight} for network in outcome.networks
        ],
        "base": {"name": outcome.space.base.name, "parameters": outcome.space.base.parameters()},
        "program_for": (
            None if outcome.space.program_for is None else memory_text(outcome.space.program_for)
        ),
        "vary": [dimension.name for dimension in outcome.space.dimensions],
        "objectives": list(outcome.objectives),
        "where": list(map(str, outcome.where)),
        "clock_mhz": outcome.clock_mhz,
        "verdict": " ".join(" ".join(verdict(outcome)).split()),
        "outdated": outdated(outcome.unmeasured),
        "search": None if outcome.search is None else asdict(outcome.search),
        "evaluated": outcome.evaluated,
        "build": None if outcome.build is None else outcome.build.to_json(),
        "rejected": outcome.rejected.count,
        "counts": dict(sorted(outcome.counts.items())),
        "interrupted": outcome.interrupted,
        "layers": {
            network.name: [JOINT.join(group.nodes) for group in groups]
            for network, groups in zip(outcome.networks, grouped, strict=True)
        },
        "points": [
            {
                **_point(result, outcome),
                "layers": _layers(result, outcome, grouped, next(timed) if result.cycles else 0),
            }
            for result in outcome.results
        ],
    }


def _nodes(result: PointResult, network: int) -> list[list[str]]:
    """Return the nodes of each layer of a compiled point."""
    return [name.split(JOINT) for name, _, _ in result.layers[network]]


def _layers(
    result: PointResult, outcome: SweepOutcome, grouped: list[list[LayerGroup]], run: int
) -> dict[str, list[list[Any] | None]]:
    """Return the cycles and the limit of each group of layers, by network.

    Parameters
    ----------
    run
        Number of the point among those that were compiled.
    """
    found = {}
    for network, groups, layers in zip(outcome.networks, grouped, result.layers, strict=False):
        found[network.name] = cells = []
        for group in groups:
            mine = [layers[index] for index in group.members[run]]
            on_path = [layer for layer in mine if layer[2] != HIDDEN] or mine
            longest = max(on_path, key=lambda layer: layer[1], default=None)
            total = sum(cycles for _, cycles, _ in mine)
            cells.append(None if longest is None else [total, longest[2]])
    return found


def _point(result: PointResult, outcome: SweepOutcome) -> dict[str, Any]:
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
        "limits": dict(zip((n.name for n in outcome.networks), result.limits, strict=False)),
        "figures": {
            name: value
            for name in outcome.shown
            if (value := result.figures.get(name)) is not None
            and (result.cycles or name in (*COUNTS, CLOCK))
        },
        "measured": None if result.measured is None else result.measured.to_json(),
        "error": result.error,
    }

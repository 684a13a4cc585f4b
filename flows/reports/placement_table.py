"""The table of who runs what and why: values for machines, rows and sentences for people."""

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...compiler.options import DEFAULT_OPTIONS
from ..cli.console import say

if TYPE_CHECKING:
    from rich.table import Table

    from ...compiler.module import Module
    from ...sim.memory_model import MemoryModel
    from ..cli.placement_options import Placing

NAME_COLUMNS = 14, 34
"""Least and most columns of a layer's name, as the terminal has room."""

REASON_COLUMNS = 24, 70
"""Least and most columns of a reason."""

NUMBER_COLUMNS = 60
"""What the table needs beside names and reasons."""

TABLE_NOTES = (
    "times in us; accelerator and host: what a layer adds there; moving it: what moving it alone",
    "to the other side would cost (+) or save (-), transfers included, one side after the other",
)

UNABLE = "cannot run there: ", "unable: "
"""A reason's beginning, and what is said for it in a table."""


def placement_of(
    module: "Module", placing: "Placing", memory: "MemoryModel | None" = None
) -> dict[str, Any]:
    """Who runs what and why, as JSON values; see `compiler.placement.placement_report`.

    Times are estimated from the figures that were stated or measured, whatever the module was
    compiled with. Layers that the host could leave to the accelerator are estimated there too. Each
    row has a short name as well, `short`.

    Parameters
    ----------
    memory
        The accelerator's; the default model if None. Its random stalls are left out.
    """
    from ...compiler.graph import is_accelerated
    from ...compiler.placement import Decision
    from ...compiler.placement.node_cycles import cycles_by_node
    from ...compiler.placement.table import placement_report
    from ...compiler.placement.user_placement import user_sides
    from ...runtime.names import layer_names

    graph = module.graph
    layers = layers_of(module, memory)
    there = frozenset(name for layer in layers if layer.accelerated for name in layer.keys)
    idle = [n for n in graph.nodes if is_accelerated(n) and n.outputs[0].name not in there]
    cycles = cycles_by_node(graph, module.configuration, DEFAULT_OPTIONS) if idle else {}
    decision = Decision(there, user_sides(graph, placing.forced), cycles)
    found = placement_report(graph, layers, placing.placement(), decision, placing.costs())
    names = layer_names(module)
    for row in found["rows"]:
        row["short"] = names[row["output"]]
    return found


def layers_of(module: "Module", memory: "MemoryModel | None" = None):
    """All layers of a module, as the table wants them."""
    from ...compiler.host import host_target, plan_host
    from ...compiler.placement import ACCELERATOR, PlacedLayer, placed_layers
    from ...runtime.names import layer_nodes

    nodes = layer_nodes(module)
    times = iter(cycles_of(module, memory))
    segments = [
        [
            PlacedLayer(
                layer.name, layer.op, ACCELERATOR, nodes[layer.output], next(times), exact=True
            )
            for layer in segment.layers
        ]
        for segment in module.segments
    ]
    host = plan_host(module.graph, module.steps, module.segments, host_target())
    return placed_layers(module.graph, module.steps, segments, (*host.kernels, *host.recurrences))


def cycles_of(module: "Module", memory: "MemoryModel | None" = None) -> list[int]:
    """Cycles that each layer adds to its segment's, so that their sum is what a run takes."""
    from ...runtime.profile import layer_cycles
    from ...sim.timing import time_program

    found: list[int] = []
    for segment in module.segments:
        timing = time_program(segment.program, module.configuration, memory)
        counts = [count or 0 for count in layer_cycles(segment, timing.spans)]
        counts[-1] += timing.cycles - sum(counts)  # what follows the last retirement
        found += counts
    return found


def placement_sentence(placement: Mapping[str, Any]) -> str:
    """The totals in words."""
    total, clock = placement["total_us"], placement["costs"]["clock_mhz"]
    return (
        f"estimated: {total['sum']:,.0f} us a sample, {total['accelerator']:,.0f} of them on the "
        f"accelerator at {clock:g} MHz, {total['host']:,.0f} on the host and "
        f"{total['transfer']:,.0f} for transfers;\n"
        f"{total['makespan']:,.0f} us where both sides work at once"
    )


def show_placement(placement: Mapping[str, Any]) -> None:
    """Print who runs what, as `placement_of` says."""
    from .terminal import stdout

    say("")
    stdout().print(placement_table(placement))
    say("")
    say(placement_sentence(placement))
    for line in TABLE_NOTES:
        say(line)


def placement_table(placement: Mapping[str, Any]) -> "Table":
    """The table of `placement_of`."""
    from .terminal import shorten, table

    headings = ["layer", "target", "why", "accelerator", "host", "transfer", "moving it"]
    (least, most), (fewest, longest) = NAME_COLUMNS, REASON_COLUMNS
    every = NUMBER_COLUMNS + most + longest
    room = shutil.get_terminal_size((every, 0)).columns - NUMBER_COLUMNS
    name = max(least, min(most, room - fewest))
    reason = max(fewest, min(longest, room - name))
    rows = [
        [
            shorten(row["short"], name),
            row["target"],
            _cut(row["reason"], reason),
            _microseconds(row["accelerator_us"]),
            _microseconds(row["host_us"]),
            _microseconds(row["transfer_us"]),
            _saved(row["gain_us"]),
        ]
        for row in placement["rows"]
    ]
    return table(headings, rows, left=3)


def _cut(reason: str, columns: int) -> str:
    reason = reason.replace(*UNABLE)
    return reason if len(reason) <= columns else reason[: columns - 1] + "…"


def _microseconds(time: float | None) -> str:
    return "-" if time is None else f"{time:,.1f}"


def _saved(gain: float | None) -> str:
    return "-" if gain is None else f"{-gain:+,.1f}"

"""The placement table: each layer's side and the reason, as JSON values, rows and sentences."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...compiler.options import DEFAULT_OPTIONS
from ..cli.console import say

if TYPE_CHECKING:
    from rich.table import Table

    from ...compiler.module import Module
    from ...isa.memory_model import MemoryModel
    from ..cli.placement_options import Placing

NAME_COLUMNS = 14, 34
"""Fewest and most columns of a layer's name."""

REASON_COLUMNS = 14, 60
"""Fewest and most columns of a reason."""

SAME = '"'
"""Stands for the reason of the row above."""

TABLE_NOTES = (
    "times in us; accel and host: what the layer adds on that side; moving it: what moving this",
    "layer alone to the other side would cost (+) or save (-), transfers included",
)

RESHAPE = "reshape"

NEIGHBOUR = ", as "
"""Stands before the neighbour that keeps a layer in float."""

MAX_REASONS = 12
"""Maximum number of neighbours that are told in full."""

UNABLE = "cannot run there: ", "unable: "
"""The beginning of a reason, and its short form in a table."""


def placement_of(
    module: "Module", placing: "Placing", memory: "MemoryModel | None" = None
) -> dict[str, Any]:
    """Return the placement as JSON values; see `compiler.placement.placement_report`.

    Times are estimated from the stated or measured figures, whatever the module was compiled with.
    Layers that run on the host but could run on the accelerator are estimated there too. Each row
    also has a short name, `short`.

    Parameters
    ----------
    memory : MemoryModel or None
        Memory of the accelerator, without random stalls; the default model if None.
    """
    from ...compiler.graph import is_accelerated
    from ...compiler.placement import Decision
    from ...compiler.placement.node_cycles import cycles_by_node, misfits
    from ...compiler.placement.table import placement_report
    from ...compiler.placement.user_placement import user_sides
    from ...runtime.names import layer_names
    from ..execution.hosts import host_title

    graph = module.graph
    layers = layers_of(module, memory)
    there = frozenset(name for layer in layers if layer.accelerated for name in layer.keys)
    idle = [n for n in graph.nodes if is_accelerated(n) and n.outputs[0].name not in there]
    cycles = cycles_by_node(graph, module.configuration, DEFAULT_OPTIONS) if idle else {}
    for node in idle:
        if isinstance(cycles.get(node.outputs[0].name), int):
            cycles |= misfits(graph, [node], module.configuration, DEFAULT_OPTIONS)
    decision = Decision(there, user_sides(graph, placing.forced), cycles)
    found = placement_report(graph, layers, placing.placement(), decision, placing.costs())
    names = layer_names(module)
    for row in found["rows"]:
        row["short"] = names[row["output"]]
    return {**found, "host": host_title(placing.host)}


def layers_of(module: "Module", memory: "MemoryModel | None" = None):
    """Return all layers of a module in the form of the table."""
    from ...compiler.host import host_target, plan_host
    from ...compiler.placement import ACCELERATOR, PlacedLayer, placed_layers
    from ...runtime.names import layer_nodes
    from ..execution.timed import time_segments

    nodes = layer_nodes(module)
    timed = time_segments(module, memory)
    times = iter([cycles for segment in timed for cycles in segment.layer_cycles])
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
    return placed_layers(module.graph, module.steps, segments, host.kernels)


def unfit_rows(placement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the layers on the host that the accelerator could run if they fitted it."""
    from ...compiler.placement.table import UNFIT

    return [row for row in placement["rows"] if row["reason"].startswith(UNFIT)]


def unfit_sentence(placement: Mapping[str, Any]) -> str:
    """Say how many layers do not fit, and why the first does not; empty if all fit."""
    rows = unfit_rows(placement)
    if not rows:
        return ""
    count, reason = len(rows), rows[0]["reason"].partition(": ")[2]
    if count == 1:
        return f"1 layer runs on the host, as it does not fit the accelerator: {reason}"
    return (
        f"{count} layers run on the host, as they do not fit the accelerator (`--table` lists "
        f"them): {reason}"
    )


def unfit_lines(placement: Mapping[str, Any]) -> list[str]:
    """Say in full why layers do not fit the accelerator."""
    rows = unfit_rows(placement)
    lines = [f"{row['short']}: {row['reason'].partition(': ')[2]}" for row in rows]
    if len(lines) > MAX_REASONS:
        lines[MAX_REASONS:] = [f"{len(lines) - MAX_REASONS} more layers; `--json` has all"]
    return ["", "on the host because they do not fit the accelerator:", *lines] if lines else []


def placement_sentence(placement: Mapping[str, Any]) -> str:
    """Return the totals in words."""
    total, clock = placement["total_us"], placement["costs"]["clock_mhz"]
    return (
        f"estimated: {total['sum']:,.0f} us a sample, {total['accelerator']:,.0f} on the "
        f"accelerator at {clock:g} MHz, {total['host']:,.0f} on the host, "
        f"{total['transfer']:,.0f} for transfers;\n"
        f"{total['makespan']:,.0f} us where both sides work at once\n"
        f"host: {placement['host']}; `--host` names another"
    )


def show_placement(placement: Mapping[str, Any]) -> None:
    """Print the table of `placement_of` and its totals."""
    from .terminal import free_sentence, stdout

    say("")
    stdout().print(placement_table(placement))
    for line in [*reason_lines(placement), *unfit_lines(placement)]:
        say(line)
    if free := sum(map(_is_free, placement["rows"])):
        say(free_sentence(free))
    say("")
    say(placement_sentence(placement))
    for line in TABLE_NOTES:
        say(line)


def reason_lines(placement: Mapping[str, Any]) -> list[str]:
    """Say in full which neighbours keep layers in float, with an example of each kind."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for row in placement["rows"]:
        what, _, neighbour = row["reason"].partition(NEIGHBOUR)
        if neighbour:
            kind = neighbour.partition(" ")[2]  # without the neighbour's name
            alike.setdefault(f"{what} {kind}", []).append(row)
    lines = []
    for first, *others in alike.values():
        more = f" and {len(others)} more like it" if others else ""
        lines.append(f"{first['short']}{more}: {first['reason'].replace(*UNABLE)}")
    if len(lines) > MAX_REASONS:
        rest = len(lines) - MAX_REASONS
        lines[MAX_REASONS:] = [f"{rest} more reasons; `--json` has all"]
    return ["", "in float because of a neighbour:", *lines] if lines else []


def placement_table(placement: Mapping[str, Any]) -> "Table":
    """Return the table of `placement_of`, as wide as the terminal."""
    from ..cli.tables import GAP, table, terminal_columns
    from .terminal import TARGETS, shorten

    headings = ["layer", "target", "why", "accel", "host", "transfer", "moving it"]
    rows = [row for row in placement["rows"] if not _is_free(row)]
    cells = [
        [
            TARGETS.get(row["target"], row["target"]),
            _microseconds(row["accelerator_us"]),
            _microseconds(row["host_us"]),
            _microseconds(row["transfer_us"]),
            _saved(row["gain_us"]),
        ]
        for row in rows
    ]
    numbers = [headings[1], *headings[3:]]
    taken = sum(max(map(len, column)) + GAP for column in zip(numbers, *cells, strict=True))
    room = terminal_columns() - taken - GAP
    (least, most), (fewest, longest) = NAME_COLUMNS, REASON_COLUMNS
    name = max(least, min(most, room - fewest, room // 2))
    reason = max(fewest, min(longest, room - name))
    before, made = "", []
    for row, (target, *times) in zip(rows, cells, strict=True):
        why = SAME if row["reason"] == before else _cut(row["reason"], reason)
        before = row["reason"]
        made.append([shorten(row["short"], name), target, why, *times])
    return table(headings, made, left=3)


def _is_free(row: Mapping[str, Any]) -> bool:
    return row["op"] == RESHAPE and not row["host_us"]


def _cut(reason: str, columns: int) -> str:
    reason = reason.replace(*UNABLE)
    return reason if len(reason) <= columns else reason[: columns - 1] + "…"


def _microseconds(time: float | None) -> str:
    return "-" if time is None else f"{time:,.1f}"


def _saved(gain: float | None) -> str:
    return "-" if gain is None else f"{-gain:+,.1f}"

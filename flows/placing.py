"""What `--placement` and the options beside it mean, and the table of who runs what."""

import argparse
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..compiler.options import DEFAULT_OPTIONS
from ..errors import UsageError
from .console import say

if TYPE_CHECKING:
    from rich.table import Table

    from ..compiler.module import Module
    from ..compiler.placement import Placement
    from ..compiler.placement.costs import Costs
    from ..sim.memory_model import MemoryModel

POLICIES = ("accelerator", "cost", "cpu")
SIDES = ("accelerator", "cpu")
"""As in `compiler.placement`, which a command that finds its network compiled does not need."""

FIGURES = ("clock", "host_gops", "host_gbps", "link_gbps", "segment_us")
"""Options that say what times are estimated from."""

NAME_COLUMNS = 14, 34
"""Least and most columns of a layer's name, as the terminal has room."""

REASON_COLUMNS = 24, 70
"""Least and most columns of a reason."""

NUMBER_COLUMNS = 60
"""What the table needs beside names and reasons."""


@dataclass(frozen=True, slots=True)
class Placing:
    """Who shall run what, as asked for; figures that nothing was said of are None.

    Parameters
    ----------
    policy, forced
        See `compiler.placement.Placement`.
    clock, host_gops, host_gbps, link_gbps, segment_us
        See `compiler.placement.costs`.
    stated
        Whether the user has named a policy, so that an artifact's own does not count.
    """

    policy: str = "accelerator"
    forced: tuple[tuple[str, str], ...] = ()
    clock: float | None = None
    host_gops: float | None = None
    host_gbps: float | None = None
    link_gbps: float | None = None
    segment_us: float | None = None
    stated: bool = field(default=False, compare=False)

    @property
    def is_default(self) -> bool:
        """Whether the accelerator runs all that it can."""
        return self.policy == POLICIES[0] and not self.forced

    def key(self) -> tuple[object, ...]:
        """What a compiled module follows from; nothing where it is as by default."""
        if self.is_default:
            return ()
        measured = (self.costs(),) if self.policy == "cost" else ()
        return ("placement", self.policy, self.forced, *measured)

    def placement(self) -> "Placement":
        """For the compiler."""
        from ..compiler.placement import Placement

        return Placement(self.policy, self.forced)

    def costs(self) -> "Costs":
        """What times are estimated from: as stated, measured on this machine, or assumed."""
        from ..compiler.placement.costs import Costs, Link
        from .host_figures import measured_host

        host, link, base = measured_host(), Link(), Costs()
        if self.host_gops is not None:
            host = replace(host, int8_gops=self.host_gops, float_gops=self.host_gops)
        if self.host_gbps is not None:
            host = replace(host, gbps=self.host_gbps)
        if self.link_gbps is not None:
            link = replace(link, gbps=self.link_gbps)
        if self.segment_us is not None:
            link = replace(link, start_us=self.segment_us)
        return Costs(base.clock_mhz if self.clock is None else self.clock, host, link)


DEFAULT_PLACING = Placing()


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add the options of placement."""
    group = parser.add_argument_group("who runs what")
    group.add_argument(
        "--placement", choices=POLICIES,
        help="accelerator: all that it can run (default); cost: the least estimated time; cpu: "
        "nothing on the accelerator",
    )  # fmt: skip
    group.add_argument(
        "--place", action="append", default=[], metavar="LAYER=SIDE",
        help="a node of the model, the end of its name or a pattern with `*`, on `cpu` or "
        "`accelerator`; may be repeated, the last one counts",
    )  # fmt: skip
    group.add_argument(
        "--table", action="store_true",
        help="print who runs each layer, why, and estimated times on both sides",
    )  # fmt: skip
    for name, unit, what in (
        ("--clock", "MHZ", "clock of the accelerator (default: 100)"),
        ("--host-gops", "N", "10^9 operations a second of the CPU (default: measured here)"),
        ("--host-gbps", "N", "10^9 bytes a second of its memory (default: measured here)"),
        ("--link-gbps", "N", "10^9 bytes a second to the accelerator's memory (default: 1)"),
        ("--segment-us", "N", "microseconds to start the accelerator (default: 20)"),
    ):
        group.add_argument(name, type=float, metavar=unit, help=what)


def chosen_placing(arguments: argparse.Namespace, *, places: bool = False) -> Placing:
    """What was asked for.

    Parameters
    ----------
    places
        Whether the command estimates times without `--table` too.

    Raises
    ------
    UsageError
        For what is not of the form, figures that are not positive, or such as nothing follows
        from.
    """
    forced = []
    for text in arguments.place:
        name, _, side = text.rpartition("=")
        if not name or side not in SIDES:
            raise UsageError(
                f"`--place {text}`: expected LAYER=cpu or LAYER=accelerator; correct it"
            )
        forced.append((name, side))
    figures = {name: getattr(arguments, name) for name in FIGURES}
    for name, figure in figures.items():
        least = 0 if name == "segment_us" else 1e-9
        if figure is not None and not least <= figure < float("inf"):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"`{option} {figure:g}`: expected a positive number; correct it")
    policy = arguments.placement
    unused = [name for name, figure in figures.items() if figure is not None]
    if unused and policy != "cost" and not (arguments.table or places):
        option = "--" + unused[0].replace("_", "-")
        raise UsageError(
            f"`{option}`: expected `--placement cost` or `--table`, which estimate times, got "
            "neither; add one, or leave it out"
        )
    if getattr(arguments, "device", "") == "cpu":
        there = [name for name, side in forced if side == SIDES[0]]
        if policy not in (None, "cpu") or there:
            what = f"--place {there[0]}={SIDES[0]}" if there else f"--placement {policy}"
            raise UsageError(
                f"`{what}`: expected a device that is an accelerator, got `--device cpu`; leave "
                "one of them out"
            )
        policy = "cpu"
    return Placing(policy or POLICIES[0], tuple(forced), **figures, stated=policy is not None)


def placement_of(
    module: "Module", placing: Placing, memory: "MemoryModel | None" = None
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
    from ..compiler.graph import is_accelerated
    from ..compiler.placement import Decision
    from ..compiler.placement.forced import forced_sides
    from ..compiler.placement.node_cycles import cycles_by_node
    from ..compiler.placement.table import placement_report
    from ..runtime.names import layer_names

    graph = module.graph
    layers = layers_of(module, memory)
    there = frozenset(name for layer in layers if layer.accelerated for name in layer.keys)
    idle = [n for n in graph.nodes if is_accelerated(n) and n.outputs[0].name not in there]
    cycles = cycles_by_node(graph, module.configuration, DEFAULT_OPTIONS) if idle else {}
    decision = Decision(there, forced_sides(graph, placing.forced), cycles)
    found = placement_report(graph, layers, placing.placement(), decision, placing.costs())
    names = layer_names(module)
    for row in found["rows"]:
        row["short"] = names[row["output"]]
    return found


def layers_of(module: "Module", memory: "MemoryModel | None" = None):
    """All layers of a module, as the table wants them."""
    from ..compiler.host import host_target, plan_host
    from ..compiler.placement.layers import PlacedLayer, placed_layers
    from ..runtime.names import layer_nodes

    nodes = layer_nodes(module)
    times = iter(cycles_of(module, memory))
    segments = [
        [
            PlacedLayer(
                layer.name, layer.op, SIDES[0], nodes[layer.output], next(times), exact=True
            )
            for layer in segment.layers
        ]
        for segment in module.segments
    ]
    host = plan_host(module.graph, module.steps, module.segments, host_target())
    return placed_layers(module.graph, module.steps, segments, (*host.kernels, *host.recurrences))


def cycles_of(module: "Module", memory: "MemoryModel | None" = None) -> list[int]:
    """Cycles that each layer adds to its segment's, so that their sum is what a run takes."""
    from ..runtime.profile import layer_cycles
    from ..sim.timing import time_program

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
    from .report import stdout

    say("")
    stdout().print(placement_table(placement))
    say("")
    say(placement_sentence(placement))
    for line in TABLE_NOTES:
        say(line)


def placement_table(placement: Mapping[str, Any]) -> "Table":
    """The table of `placement_of`."""
    from .report import shorten, table

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


TABLE_NOTES = (
    "times in us; accelerator and host: what a layer adds there; moving it: what moving it alone",
    "to the other side would cost (+) or save (-), transfers included, one side after the other",
)


UNABLE = "cannot run there: ", "unable: "
"""A reason's beginning, and what is said for it in a table."""


def _cut(reason: str, columns: int) -> str:
    reason = reason.replace(*UNABLE)
    return reason if len(reason) <= columns else reason[: columns - 1] + "…"


def _microseconds(time: float | None) -> str:
    return "-" if time is None else f"{time:,.1f}"


def _saved(gain: float | None) -> str:
    return "-" if gain is None else f"{-gain:+,.1f}"

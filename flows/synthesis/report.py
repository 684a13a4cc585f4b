"""Tables and sentences about a synthesis, for the terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from ...wording import counted
from ..cli.console import configuration_sentence
from ..cli.tables import table
from .critical_path import CriticalStep
from .devices import RESOURCES, FpgaDevice, Resources
from .flow import Synthesis
from .netlist import PINS


def introduction(found: Synthesis) -> list[str]:
    """Return lines about the configuration, the device, the tools and the RTL."""
    device = found.device
    tools = ", ".join(f"{name} {number}" for name, number in found.tools.items())
    return [
        f"configuration  {configuration_sentence(found.configuration)}",
        f"chip           {device.name}: {device.part}, {device.package}",
        f"tools          {tools}",
        f"RTL            {found.rtl}",
    ]


def units_table(found: Synthesis, depth: int = 1) -> Table:
    """Return the table of resources by unit, with the total and its share of the chip."""
    device = found.device
    names = device.family.resources
    headings = [device.family.lut if name == "lut" else RESOURCES[name] for name in names]
    rows = [
        [unit, *_counts(resources, names)]
        for unit, resources in found.netlist.units(depth).items()
        if unit != PINS
    ]
    packing = Counter(found.packed)
    packing.subtract(found.netlist.total)
    if any(packing.values()):
        rows.append(["(packing)", *_counts(packing, names)])
    made = table(["unit", *headings], rows)
    made.add_section()
    made.add_row("core", *_counts(found.resources, names), style="bold")
    if device.capacity:
        made.add_row("chip", *_counts(device.capacity, names))
        made.add_row("share", *(share(found.resources, device, name) for name in names))
    return made


def share(used: Resources, device: FpgaDevice, name: str) -> str:
    """Return the used part of a resource, in per cent."""
    return f"{100 * used.get(name, 0) / device.capacity[name]:.0f} %"


def _counts(resources: Resources, names: Sequence[str]) -> list[str]:
    return [f"{resources[name]:,}" if resources.get(name) else "-" for name in names]


def clock_sentence(found: Synthesis) -> str:
    """Return a sentence about the clock of the placed designs."""
    clocks, target = found.clocks_mhz, f"aimed at {found.target_mhz:g} MHz"
    median = found.median.clock_mhz
    if len(clocks) == 1:
        return f"clock: {median:.1f} MHz with seed {found.placements[0].seed}, {target}"
    return (
        f"clock: {median:.1f} MHz, the median of {counted(len(clocks), 'seed')} "
        f"({min(clocks):.1f} to {max(clocks):.1f}), {target}"
    )


def path_sentence(found: Synthesis) -> str:
    """Return a sentence about the delay of the critical path, logic and routing."""
    path = found.median.path
    logic = sum(step.logic_ns for step in path)
    routing = sum(step.routing_ns for step in path)
    return (
        f"critical path of seed {found.median.seed}: {logic + routing:.1f} ns, "
        f"{logic:.1f} of logic and {routing:.1f} of routing"
    )


def path_table(path: Sequence[CriticalStep]) -> Table:
    """Return the table of the critical path, one row per signal."""
    at, rows = 0.0, []
    for step in path:
        at += step.logic_ns + step.routing_ns
        rows.append([step.name, f"{step.routing_ns:.1f}", f"{step.logic_ns:.1f}", f"{at:.1f}"])
    return table(["signal", "routing ns", "logic ns", "arrives ns"], rows)

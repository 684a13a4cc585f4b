"""Place and route: nextpnr on a mapped netlist, and its results.

Results are kept in the cache under a hash of the netlist, of the tools and of their arguments.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ...errors import HardwareError
from ...sim.cache import digest, keep_file, kept_folder
from ...sim.gate.code_of import code_of
from ...sim.gate.kept import KIND, TASK, read_kept, write_kept
from ...sim.gate.tools import run_tool, tool_version
from . import free_rows, multiplier_sites
from .critical_path import CriticalStep, critical_path
from .devices import FpgaDevice
from .ecp5_placement import placed_design, placed_timing, refine_placement, routed_timing
from .netlist import TOP

PACK_ONLY = "--pack-only"
"""nextpnr counts resources and places nothing."""

MAPPED = "mapped.json"
"""File with the design that nextpnr reads."""

CLOCK = "clock"
"""Name of the clock in reports whose longest path the flow has found itself."""

WIRES = "wires.sdf"
"""File with the delays of all cells and routed wires."""

ROUTE = ("--no-pack", "--sdf", WIRES)
"""nextpnr's options for a packed design whose cells all have fixed places."""

ILLEGAL = "validity check failed"
"""Part of the line that nextpnr prints if such a place is not legal. It goes on after that."""

LAYOUT = "layout"
"""File with the placed and routed design, as the packer reads it."""

WRITE, PLACED = "--write", "placed.json"
"""nextpnr's option for the placed design in its own form, and the file."""

ROUND = re.compile(r"iter=\d+ wires=\d+ overused=(\d+)")
"""A line that router2 prints after each round, with the number of wires in conflict."""

PATIENCE = 100
"""Rounds without fewer wires in conflict, after which a placement is given up."""


class UnroutableError(HardwareError):
    """The router makes no progress on a placement. One with another seed may be routable."""


@dataclass(frozen=True, slots=True)
class RoutedDesign:
    """A placed and routed design.

    Parameters
    ----------
    seed
        The seed of the placer.
    clock_mhz
        The fastest clock that the timing analysis allows.
    path
        The critical path.
    """

    seed: int
    clock_mhz: float
    path: tuple[CriticalStep, ...]


class Routed(NamedTuple):
    """A placed and routed design, ready for the bitstream packer.

    Parameters
    ----------
    placement
    layout
        What the packer reads.
    summary
        Of the placed design; None in results that earlier versions kept.
    """

    placement: RoutedDesign
    layout: str
    summary: Any


def pack_design(mapped: Path, device: FpgaDevice) -> dict[str, int]:
    """Return the resources of a netlist on the chip, as nextpnr counts them; takes seconds."""
    report = _nextpnr(mapped, device, [PACK_ONLY], lambda step: None)
    packed = Counter[str]()
    for bel, resources in device.family.bels.items():
        used = report["utilization"][bel]["used"]
        packed.update({name: used * count for name, count in resources.items()})
    return dict(packed)


def place_design(
    mapped: Path,
    device: FpgaDevice,
    seed: int,
    target_mhz: float,
    show: Callable[[str], None] = lambda step: None,
) -> RoutedDesign:
    """Place and route a netlist, or find the kept result.

    Raises
    ------
    ToolError
        When the tool is missing.
    HardwareError
        When the tool cannot place or route the design.
    """
    return _placement(device, seed, _nextpnr(mapped, device, _placing(seed, target_mhz), show))


def route_design(
    mapped: Path,
    device: FpgaDevice,
    seed: int,
    target_mhz: float,
    show: Callable[[str], None] = lambda step: None,
    summarise: Callable[[str], Any] = lambda placed: None,
) -> Routed:
    """Place and route a netlist, or find the kept result.

    Parameters
    ----------
    summarise
        Receives the placed design, as nextpnr's `--write` gives it; its result is kept as JSON. It
        is not called for a result that was kept.

    Raises
    ------
    ToolError, HardwareError
        As for `place_design`.
    """
    layout = [argument.format(LAYOUT) for argument in device.family.layout]
    options = _placing(seed, target_mhz)
    placed = LAYOUT if WRITE in layout else PLACED
    written = [] if WRITE in layout else [WRITE, PLACED]

    def make(folder: Path) -> Path:
        report = _run_nextpnr(mapped, device, options, show, folder, [*layout, *written])
        kept = {
            "report": report.read_text("utf-8"),
            "layout": (folder / LAYOUT).read_text("utf-8"),
            "summary": summarise((folder / placed).read_text("utf-8")),
        }
        return write_kept(folder / "routed.gz", json.dumps(kept))

    kept = (
        kept_folder(KIND, TASK)
        / f"{_placing_digest(mapped, device, [*options, *layout])}-routed.gz"
    )
    found = json.loads(read_kept(keep_file(kept, make)))
    placement = _placement(device, seed, json.loads(found["report"]))
    return Routed(placement, found["layout"], found.get("summary"))


def _placing(seed: int, target_mhz: float) -> list[str]:
    return ["--timing-allow-fail", "--seed", str(seed), "--freq", f"{target_mhz:g}"]


def _placement(device: FpgaDevice, seed: int, report: dict[str, Any]) -> RoutedDesign:
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise HardwareError(f"`{device.name}`: nextpnr found no clock in the design")
    return RoutedDesign(seed, round(min(clocks), 2), tuple(critical_path(report)))


def _nextpnr(
    mapped: Path, device: FpgaDevice, options: Sequence[str], show: Callable[[str], None]
) -> dict[str, Any]:
    """Run nextpnr and return its report, or find the kept one."""

    def make(folder: Path) -> Path:
        return _run_nextpnr(mapped, device, options, show, folder)

    kept = kept_folder(KIND, TASK) / f"{_placing_digest(mapped, device, options)}-report.json"
    return json.loads(keep_file(kept, make).read_text("utf-8"))


def _arguments(device: FpgaDevice, options: Sequence[str]) -> list[str]:
    return ["--json", MAPPED, "--report", "report.json", *device.arguments, *options]


def _placing_digest(mapped: Path, device: FpgaDevice, options: Sequence[str]) -> str:
    """Return the hash of all that a run of nextpnr depends on."""
    assert device.family.placer is not None
    parts = [tool_version(device.family.placer), *options, mapped.name]
    return digest([*parts, *placer_inputs(device)])


def placer_inputs(device: FpgaDevice) -> list[str]:
    """Return everything that a run of nextpnr depends on besides its netlist and options."""
    parts = [*_arguments(device, ()), *map(str, device.files)]
    for places, module in (
        (device.multiplier_sites, multiplier_sites),
        (device.empty_tiles, free_rows),
    ):
        if places:
            parts += [code_of(module), *places]
    if device.family.refines:
        modules = (refine_placement, placed_design, placed_timing, routed_timing)
        parts += [*map(code_of, modules), *ROUTE]
    return parts


def _run_nextpnr(
    mapped: Path,
    device: FpgaDevice,
    options: Sequence[str],
    show: Callable[[str], None],
    folder: Path,
    outputs: Sequence[str] = (),
) -> Path:
    """Run nextpnr in a folder; return the path of its report.

    If the family's placements are refined, it runs twice: to place the design, and to route it.

    Parameters
    ----------
    outputs
        Options for files that it writes at the end.
    """
    assert device.family.placer is not None
    netlist = json.loads(read_kept(mapped))
    multiplier_sites.assign_multipliers(netlist["modules"][TOP], device.multiplier_sites)
    packs = PACK_ONLY in options
    if not packs:
        free_rows.leave_empty(netlist["modules"][TOP], device.empty_tiles, device.capacity["ff"])
    for name, text in {MAPPED: json.dumps(netlist), **dict(device.files)}.items():
        (folder / name).write_text(text, "utf-8")
    arguments = _arguments(device, options)
    watch = _Watch(device, show)
    show("starting nextpnr, which compiles itself on its first run")
    if device.family.refines and not packs:
        run_tool(device.family.placer, [*arguments, "--no-route", WRITE, MAPPED], folder, watch)
        show("refining")
        placed = json.loads((folder / MAPPED).read_text("utf-8"))
        refine_placement.refine(placed["modules"][TOP])
        (folder / MAPPED).write_text(json.dumps(placed), "utf-8")
        arguments += ROUTE
    run_tool(device.family.placer, [*arguments, *outputs], folder, watch)
    report = folder / "report.json"
    if ROUTE[0] in arguments:
        with (folder / WIRES).open(encoding="utf-8") as sdf:
            path = routed_timing.longest_path(sdf)
        report.write_text(json.dumps(_timed(json.loads(report.read_text("utf-8")), path)), "utf-8")
    return report


def _timed(report: dict[str, Any], path: list[routed_timing.Part]) -> dict[str, Any]:
    """Return nextpnr's report with another longest path, unless that is empty."""
    if not path:
        return report
    achieved = 1e3 / sum(part["delay"] for part in path)
    paths = [{"from": CLOCK, "to": CLOCK, "path": path}]
    return {**report, "fmax": {CLOCK: {"achieved": achieved}}, "critical_paths": paths}


class _Watch:
    """Show the steps of nextpnr by the lines that it prints, and stop a router that is stuck."""

    STEPS: ClassVar = {
        "Packing": "packing",
        "Creating initial": "placing",
        "Running main analytical placer": "placing",
        "Running Static placer": "placing",
        "Routing": "routing",
        "Running router2": "routing",
    }

    def __init__(self, device: FpgaDevice, show: Callable[[str], None]) -> None:
        self.device, self.show = device, show
        self.fewest, self.rounds = math.inf, 0

    def __call__(self, line: str) -> None:
        for word, step in self.STEPS.items():
            if word in line:
                self.show(step)
        if ILLEGAL in line:
            raise HardwareError(f"`{self.device.name}`: nextpnr rejects a place: {line.strip()}")
        if found := ROUND.search(line):
            conflicts = int(found[1])
            self.rounds = 0 if conflicts < self.fewest else self.rounds + 1
            self.fewest = min(self.fewest, conflicts)
            if self.rounds == PATIENCE:
                raise UnroutableError(
                    f"`{self.device.name}`: the router is stuck (wires in conflict: "
                    f"{self.fewest}); try more placements with `--seeds`, or a smaller machine"
                )

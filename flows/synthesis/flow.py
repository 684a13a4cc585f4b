"""The flow from a configuration to figures: elaboration, Yosys, capacity, nextpnr per seed.

The result of each step is kept in the cache under a hash of its inputs. So an interrupted run
continues where it stopped, and a change of the hardware that leaves the RTL alone costs nothing.
"""

import gzip
import inspect
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ...errors import HardwareError
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ...sim.cache import digest, keep_file, kept_folder
from ...sim.hardware_sources import hardware_sources
from . import free_rows, multiplier_sites
from .code_of import code_of
from .critical_path import Step, critical_path
from .devices import DEVICES, REMEDIES, RESOURCES, Device, Family, Resources
from .netlist import Netlist, read_netlist
from .tools import YOSYS, run_tool, tool_version

if TYPE_CHECKING:
    from amaranth.hdl import Elaboratable

Advance = Callable[[str, int, int | None], None]
"""Shows progress: the current step, the number of steps done, and the total."""

TOP = "top"
CORE = "core"
"""Top modules: of a design with pins, and of the core alone."""

PACK_ONLY = "--pack-only"
"""nextpnr counts resources and places nothing."""

LAYOUT = "layout"
"""File with the placed and routed design, as the packer reads it."""

WRITE, PLACED = "--write", "placed.json"
"""nextpnr's option for the placed design in its own form, and the file."""

KIND, TASK = "synthesis", "synthesis"
"""Folder of the cache, and name in messages."""

HASH_DIGITS = 12
"""Hexadecimal digits of the RTL's hash that are shown."""

ROUND = re.compile(r"iter=\d+ wires=\d+ overused=(\d+)")
"""A line that router2 prints after each round, with the number of wires in conflict."""

PATIENCE = 100
"""Rounds without fewer wires in conflict, after which a placement is given up."""


class UnroutableError(HardwareError):
    """The router makes no progress on a placement. One with another seed may be routable."""


@dataclass(frozen=True, slots=True)
class Placement:
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
    path: tuple[Step, ...]


class Routed(NamedTuple):
    """A placed and routed design for a packer.

    Parameters
    ----------
    placement
    layout
        What the packer reads.
    summary
        Of the placed design; None in results that earlier versions kept.
    """

    placement: Placement
    layout: str
    summary: Any


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Figures of a configuration on a device.

    Parameters
    ----------
    rtl
        Hash of the RTL.
    netlist
        Cells of the core, and those at its ports.
    packed
        Resources that all these cells take on the chip. nextpnr counts them after packing, with
        the cells that lead into carry chains, for example. Without nextpnr, they are those of the
        netlist.
    target_mhz
        The clock that the placer aimed at.
    placements
        By seed; empty if nothing was placed.
    tools
        Versions by name.
    """

    configuration: Configuration
    device: Device
    rtl: str
    netlist: Netlist
    packed: Resources
    target_mhz: float
    placements: tuple[Placement, ...]
    tools: dict[str, str]

    @property
    def flow(self) -> str:
        """See `flow_hash`."""
        return flow_hash(self.device)

    @property
    def resources(self) -> dict[str, int]:
        """Resources of the core, without the registers at its ports."""
        pins = self.netlist.pins
        if self.device.family.logic_cells:
            pins["lut"] = max(pins["lut"], pins["ff"])
        return {name: self.packed[name] - pins[name] for name in RESOURCES if self.packed.get(name)}

    @property
    def clocks_mhz(self) -> list[float]:
        """The clock of every seed."""
        return [placement.clock_mhz for placement in self.placements]

    @property
    def median(self) -> Placement:
        """The placement with the median clock; of two middle ones, the slower."""
        order = sorted(self.placements, key=lambda placement: placement.clock_mhz)
        return order[(len(order) - 1) // 2]

    def to_json(self, depth: int = 1) -> dict[str, Any]:
        """Return all figures as JSON values."""
        units = self.netlist.units(depth)
        clock: dict[str, Any] | None = None
        if self.placements:
            clock = {
                "target_mhz": self.target_mhz,
                "median_mhz": statistics.median(self.clocks_mhz),
                "least_mhz": min(self.clocks_mhz),
                "greatest_mhz": max(self.clocks_mhz),
                "seeds": {placement.seed: placement.clock_mhz for placement in self.placements},
                "critical_path": [asdict(step) for step in self.median.path],
                "critical_path_seed": self.median.seed,
            }
        return {
            "configuration": self.configuration.name,
            "parameters": self.configuration.parameters(),
            "device": self.device.name,
            "rtl": self.rtl,
            "tools": self.tools,
            "resources": self.resources,
            "capacity": dict(self.device.capacity),
            "units": {name: dict(resources) for name, resources in units.items()},
            "clock": clock,
        }


def synthesise(
    configuration: Configuration,
    device: Device,
    *,
    seeds: Sequence[int] = (1,),
    clock_mhz: float | None = None,
    place: bool = True,
    jobs: int = 1,
    advance: Advance = lambda text, done, total: None,
) -> Synthesis:
    """Synthesise a configuration, place and route it once for each seed.

    Parameters
    ----------
    seeds
        Seeds of the placer.
    clock_mhz
        The clock to aim at; None for the device's.
    place
        Whether to place; families without an open placer are never placed.
    jobs
        Placements at a time; one of them may take several GB.

    Raises
    ------
    ToolError
        When a tool is missing.
    HardwareError
        When a tool rejects the design, or the device is too small to place it.
    """
    family, target = device.family, clock_mhz or device.clock_mhz
    places = place and family.placer is not None
    steps = 1 + len(seeds) * places
    about = f"{configuration.name} on {device.name}"
    tools = tool_versions(device)
    advance(f"{about}: elaboration", 0, steps)
    rtl = core_rtlil(configuration, device)
    mapped = map_design(rtl, family, lambda step: advance(f"{about}: synthesis, {step}", 0, steps))
    netlist = read_netlist(read_mapped(mapped), TOP, family)
    packed = {**netlist.total, **(pack_design(mapped, device) if family.placer else {})}
    found = Synthesis(configuration, device, hash_of(rtl), netlist, packed, target, (), tools)
    if not places:
        return found
    require_capacity(found)
    done: list[int] = []

    def place_seed(seed: int) -> Placement:
        def show(step: str) -> None:
            advance(f"{about}: seed {seed}, {step}", 1 + len(done), steps)

        placement = place_design(mapped, device, seed, target, show)
        done.append(seed)
        return placement

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        placements = tuple(pool.map(place_seed, seeds))
    return replace(found, placements=placements)


def tool_versions(device: Device) -> dict[str, str]:
    """Return the versions of the tools that a device needs, by name.

    Raises
    ------
    ToolError
        When a tool is missing.
    """
    tools = (YOSYS, device.family.placer)
    return {tool.name: tool_version(tool) for tool in tools if tool is not None}


def hash_of(rtl: str) -> str:
    """Return the hash of RTLIL by which figures are kept."""
    return digest([rtl])[:HASH_DIGITS]


def flow_hash(device: Device) -> str:
    """Return the hash of what the flow adds to RTL and tools: arguments, and netlist passes."""
    passes = map(code_of, _rewriting(device.family))
    return digest([_commands(device.family), *passes, *_placer_inputs(device)])[:HASH_DIGITS]


def core_rtlil(configuration: Configuration, device: Device) -> str:
    """Return the RTLIL of the core behind four pins, without source lines; kept in the cache."""
    return _rtlil(configuration, device, True)


def bare_rtlil(configuration: Configuration, device: Device) -> str:
    """Return the RTLIL of the core with its own ports, top module `core`; kept in the cache."""
    return _rtlil(configuration, device, False)


def _rtlil(configuration: Configuration, device: Device, pins: bool) -> str:
    multipliers = shared_multipliers(device)

    def describe() -> "Elaboratable":
        from ...hardware.core import Core
        from ...hardware.pins import Pins

        core = Core(configuration, multipliers)
        return Pins(core) if pins else core

    parts = [str(configuration.parameters()), str(pins), str(multipliers)]
    return keep_rtlil(parts, device, describe, TOP if pins else CORE)


def shared_multipliers(device: Device) -> int | None:
    """Return the multipliers of the chip if array and VECTOR share them, as `Core` takes them."""
    shares = device.family.technology is Technology.ECP5
    return device.capacity["multipliers"] if shares else None


def keep_rtlil(
    parts: Sequence[str],
    device: Device,
    describe: Callable[[], "Elaboratable"],
    top: str = TOP,
) -> str:
    """Return the RTLIL of a design without source lines; kept in the cache.

    Parameters
    ----------
    parts
        All that the design depends on, besides the sources and the technology of the device.
    describe
        Makes the design.
    top
        The name of its top module.
    """
    technology = device.family.technology
    parts = [version("amaranth"), str(technology), *parts]
    parts += [path.read_text() for path in hardware_sources()]

    def make(folder: Path) -> Path:
        # Imported here: a kept design needs no hardware description language.
        from amaranth.back import rtlil

        text = rtlil.convert(describe(), name=top, platform=technology, emit_src=False)
        return _write(folder / "rtl.gz", text)

    return _read(keep_file(kept_folder(KIND, TASK) / f"{digest(parts)}-rtl.gz", make))


def map_design(
    rtl: str,
    family: Family,
    show: Callable[[str], None] = lambda step: None,
    top: str = TOP,
) -> Path:
    """Map RTLIL to the cells of a family; return the path of the netlist, for `read_mapped`.

    Parameters
    ----------
    show
        Receives the name of each step of Yosys.
    top
        The top module.
    """
    commands = _commands(family, top)
    parts = [tool_version(YOSYS), commands, rtl, *map(code_of, _rewriting(family))]
    kept = kept_folder(KIND, TASK) / f"{digest(parts)}-mapped.gz"

    def make(folder: Path) -> Path:
        (folder / "rtl.il").write_text(rtl)
        run_tool(YOSYS, ["-p", commands], folder, lambda line: _yosys_step(line, show))
        text = (folder / "mapped.json").read_text()
        if family.rewrite:
            netlist = json.loads(text)
            family.rewrite(netlist["modules"][top])
            text = json.dumps(netlist)
        return _write(folder / "mapped.gz", text)

    return keep_file(kept, make)


def _commands(family: Family, top: str = TOP) -> str:
    """Return the commands for Yosys."""
    return (
        f"read_rtlil rtl.il; chformal -remove; {family.synthesis} -top {top}; "
        f"{family.finish}write_json mapped.json"
    )


def _rewriting(family: Family) -> list[ModuleType]:
    """Return the module of the pass over the netlist after Yosys, if there is one."""
    found = inspect.getmodule(family.rewrite) if family.rewrite else None
    return [found] if found else []


def _yosys_step(line: str, show: Callable[[str], None]) -> None:
    number, executing, name = line.partition(". Executing ")
    if executing and number.replace(".", "").isdigit():
        show(name.split(" ", 1)[0].rstrip("."))


def read_mapped(path: Path) -> str:
    """Return the JSON text of a netlist that `map_design` has kept."""
    return _read(path)


def require_capacity(found: Synthesis) -> None:
    """Check that a design fits its device, before a placer searches for hours.

    Raises
    ------
    HardwareError
        When the design does not fit; the message names resources and parameters to lower.
    """
    problems = shortages(found.device, found.packed)
    if problems:
        raise HardwareError(
            f"configuration `{found.configuration.name}` on `{found.device.name}`: "
            + "; ".join(problems)
        )


def shortages(device: Device, used: Resources) -> list[str]:
    """Return a clause for each resource that a device lacks, with the parameters to lower."""
    problems = []
    for name in device.short(used):
        larger = [
            other.name
            for other in DEVICES.values()
            if other.family is device.family and not other.short(used)
        ]
        choice = f", or choose `{larger[0]}`" if larger else ""
        problems.append(
            f"needs {used[name]:,} {RESOURCES[name]}, the device has "
            f"{device.capacity.get(name, 0):,}; {REMEDIES[name]}{choice}"
        )
    return problems


def pack_design(mapped: Path, device: Device) -> dict[str, int]:
    """Return the resources of a netlist on the chip, as nextpnr counts them; takes seconds."""
    report = _nextpnr(mapped, device, [PACK_ONLY], lambda step: None)
    packed = Counter[str]()
    for bel, resources in device.family.bels.items():
        used = report["utilization"][bel]["used"]
        packed.update({name: used * count for name, count in resources.items()})
    return dict(packed)


def place_design(
    mapped: Path,
    device: Device,
    seed: int,
    target_mhz: float,
    show: Callable[[str], None] = lambda step: None,
) -> Placement:
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
    device: Device,
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
    options = [*_placing(seed, target_mhz), *layout]
    placed = LAYOUT if WRITE in layout else PLACED
    written = [] if WRITE in layout else [WRITE, PLACED]

    def make(folder: Path) -> Path:
        report = _run_nextpnr(mapped, device, [*options, *written], show, folder)
        kept = {
            "report": report.read_text(),
            "layout": (folder / LAYOUT).read_text(),
            "summary": summarise((folder / placed).read_text()),
        }
        return _write(folder / "routed.gz", json.dumps(kept))

    kept = kept_folder(KIND, TASK) / f"{_placing_digest(mapped, device, options)}-routed.gz"
    found = json.loads(_read(keep_file(kept, make)))
    placement = _placement(device, seed, json.loads(found["report"]))
    return Routed(placement, found["layout"], found.get("summary"))


def _placing(seed: int, target_mhz: float) -> list[str]:
    return ["--timing-allow-fail", "--seed", str(seed), "--freq", f"{target_mhz:g}"]


def _placement(device: Device, seed: int, report: dict[str, Any]) -> Placement:
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise HardwareError(f"`{device.name}`: nextpnr found no clock in the design")
    return Placement(seed, round(min(clocks), 2), tuple(critical_path(report)))


def _nextpnr(
    mapped: Path, device: Device, options: Sequence[str], show: Callable[[str], None]
) -> dict[str, Any]:
    """Run nextpnr and return its report, or find the kept one."""

    def make(folder: Path) -> Path:
        return _run_nextpnr(mapped, device, options, show, folder)

    kept = kept_folder(KIND, TASK) / f"{_placing_digest(mapped, device, options)}-report.json"
    return json.loads(keep_file(kept, make).read_text())


def _arguments(device: Device, options: Sequence[str]) -> list[str]:
    return ["--json", "mapped.json", "--report", "report.json", *device.arguments, *options]


def _placing_digest(mapped: Path, device: Device, options: Sequence[str]) -> str:
    """Return the hash of all that a run of nextpnr depends on."""
    assert device.family.placer is not None
    parts = [tool_version(device.family.placer), *options, mapped.name]
    return digest([*parts, *_placer_inputs(device)])


def _placer_inputs(device: Device) -> list[str]:
    """Return what each run of nextpnr on a device depends on, besides netlist and options."""
    parts = [*_arguments(device, ()), *map(str, device.files)]
    for places, module in (
        (device.multiplier_sites, multiplier_sites),
        (device.empty_tiles, free_rows),
    ):
        if places:
            parts += [code_of(module), *places]
    return parts


def _run_nextpnr(
    mapped: Path,
    device: Device,
    options: Sequence[str],
    show: Callable[[str], None],
    folder: Path,
) -> Path:
    """Run nextpnr in a folder; return the path of its report."""
    assert device.family.placer is not None
    netlist = json.loads(read_mapped(mapped))
    multiplier_sites.assign_multipliers(netlist["modules"][TOP], device.multiplier_sites)
    if PACK_ONLY not in options:
        free_rows.leave_empty(netlist["modules"][TOP], device.empty_tiles, device.capacity["ff"])
    for name, text in {"mapped.json": json.dumps(netlist), **dict(device.files)}.items():
        (folder / name).write_text(text)
    arguments = _arguments(device, options)
    run_tool(device.family.placer, arguments, folder, _Watch(device, show))
    return folder / "report.json"


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

    def __init__(self, device: Device, show: Callable[[str], None]) -> None:
        self.device, self.show = device, show
        self.fewest, self.rounds = math.inf, 0

    def __call__(self, line: str) -> None:
        for word, step in self.STEPS.items():
            if word in line:
                self.show(step)
        if found := ROUND.search(line):
            conflicts = int(found[1])
            self.rounds = 0 if conflicts < self.fewest else self.rounds + 1
            self.fewest = min(self.fewest, conflicts)
            if self.rounds == PATIENCE:
                raise UnroutableError(
                    f"`{self.device.name}`: the router is stuck (wires in conflict: "
                    f"{self.fewest}); try more placements with `--seeds`, or a smaller machine"
                )


def _write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    return path


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()

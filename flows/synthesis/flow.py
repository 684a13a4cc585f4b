"""The flow from a configuration to figures: elaboration, Yosys, capacity, nextpnr per seed.

The result of each step is kept in the cache under a hash of its inputs. So an interrupted run
continues where it stopped, and a change of the hardware that leaves the RTL alone costs nothing.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import HardwareError
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ...sim.cache import digest
from ...sim.gate.kept import read_kept
from ...sim.gate.mapping import map_design
from ...sim.gate.rtlil import keep_rtlil
from ...sim.gate.tools import YOSYS, tool_version
from ...sim.processes import tool_threads
from .devices import DEVICES, REMEDIES, RESOURCES, FpgaDevice, Resources
from .netlist import TOP, Netlist, read_netlist
from .place_and_route import RoutedDesign, pack_design, place_design, placer_inputs

if TYPE_CHECKING:
    from amaranth.hdl import Elaboratable

Advance = Callable[[str, int, int | None], None]
"""Shows progress: the current step, the number of steps done, and the total."""

HASH_DIGITS = 12
"""Hexadecimal digits of the RTL's hash that are shown."""


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
    device: FpgaDevice
    rtl: str
    netlist: Netlist
    packed: Resources
    target_mhz: float
    placements: tuple[RoutedDesign, ...]
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
    def median(self) -> RoutedDesign:
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
            "chip": self.device.name,
            "rtl": self.rtl,
            "tools": self.tools,
            "resources": self.resources,
            "capacity": dict(self.device.capacity),
            "units": {name: dict(resources) for name, resources in units.items()},
            "clock": clock,
        }


def synthesise(
    configuration: Configuration,
    device: FpgaDevice,
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
    mapped = map_design(
        rtl, family.mapping, TOP, lambda step: advance(f"{about}: synthesis, {step}", 0, steps)
    )
    netlist = read_netlist(read_kept(mapped), TOP, family)
    packed = {**netlist.total, **(pack_design(mapped, device) if family.placer else {})}
    found = Synthesis(configuration, device, hash_of(rtl), netlist, packed, target, (), tools)
    if not places:
        return found
    require_capacity(found)
    done: list[int] = []

    def place_seed(seed: int) -> RoutedDesign:
        def show(step: str) -> None:
            advance(f"{about}: seed {seed}, {step}", 1 + len(done), steps)

        placement = place_design(mapped, device, seed, target, show)
        done.append(seed)
        return placement

    with tool_threads(max(1, jobs)) as pool:
        placements = tuple(pool.map(place_seed, seeds))
    return replace(found, placements=placements)


def tool_versions(device: FpgaDevice) -> dict[str, str]:
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


def flow_hash(device: FpgaDevice) -> str:
    """Return the hash of what the flow adds to RTL and tools: arguments, and netlist passes."""
    mapping = device.family.mapping
    parts = [mapping.commands(TOP), *mapping.rewriting_code, *placer_inputs(device)]
    return digest(parts)[:HASH_DIGITS]


def core_rtlil(configuration: Configuration, device: FpgaDevice) -> str:
    """Return the RTLIL of the core behind four pins, without source lines; kept in the cache."""
    multipliers = shared_multipliers(device)

    def describe() -> "Elaboratable":
        from ...hardware.core import Core
        from ...hardware.pins import Pins

        return Pins(Core(configuration, multipliers))

    parts = [str(configuration.parameters()), str(multipliers)]
    return keep_rtlil(parts, device.family.technology, describe, TOP)


def shared_multipliers(device: FpgaDevice) -> int | None:
    """Return the multipliers of the chip if array and VECTOR share them, as `Core` takes them."""
    shares = device.family.technology is Technology.ECP5
    return device.capacity["multipliers"] if shares else None


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


def shortages(device: FpgaDevice, used: Resources, choose: str = "choose") -> list[str]:
    """Return a clause for each resource that a device lacks, with the parameters to lower.

    `choose` says what the user does to get a larger chip of the family.
    """
    problems = []
    for name in device.short(used):
        larger = [
            other.name
            for other in DEVICES.values()
            if other.family is device.family and not other.short(used)
        ]
        choice = f", or {choose} `{larger[0]}`" if larger else ""
        problems.append(
            f"needs {used[name]:,} {RESOURCES[name]}, the device has "
            f"{device.capacity.get(name, 0):,}; {REMEDIES[name]}{choice}"
        )
    return problems

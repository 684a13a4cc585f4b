"""From a design to a bitstream: synthesis, capacity, placements until one meets the clock."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...atomic_write import make_output_folder, record_files, refuse_foreign, write_output
from ...errors import HardwareError
from ...isa.configuration import PRESETS
from ...sim.gate.mapping import map_design
from ...sim.gate.tools import find_tool, run_tool
from ...wording import counted
from ..area.counts import count_blocks
from ..synthesis.critical_path import CriticalStep
from ..synthesis.devices import RESOURCES
from ..synthesis.flow import Advance, hash_of, shortages, tool_versions
from ..synthesis.netlist import TOP
from ..synthesis.place_and_route import RoutedDesign, UnroutableError, pack_design, route_design
from .design import Design
from .floorplan import Tile, draw, tiles_of

REPORT = "build.json"
"""File of a build's folder with its report."""

FLOORPLAN = "floorplan.svg"

LAYOUT = "layout.txt"


@dataclass(frozen=True, slots=True)
class Built:
    """A placed and routed design.

    Parameters
    ----------
    design
    rtl
        Hash of the RTL.
    packed
        Resources on the chip by name.
    placements
        All that were tried; the last one meets the clock, or none does.
    layout
        The last one, as the packer reads it.
    tiles
        Its tiles, as `floorplan.tiles_of` gives them; none if an earlier version placed it.
    tools
        Versions by name.
    """

    design: Design
    rtl: str
    packed: Mapping[str, int]
    placements: tuple[RoutedDesign, ...]
    layout: str
    tiles: list[Tile]
    tools: Mapping[str, str]

    @property
    def best(self) -> RoutedDesign:
        """The placement with the fastest clock."""
        return max(self.placements, key=lambda placement: placement.clock_mhz)

    @property
    def meets_clock(self) -> bool:
        """Whether the design runs at its clock."""
        return meets_clock(self.design, self.best)

    def to_json(self, bitstream: Path | None = None) -> dict[str, Any]:
        """Return all figures as JSON values, with the path of the bitstream."""
        design, board = self.design, self.design.board
        return {
            "board": board.name,
            "part": board.part,
            "configuration": design.configuration.name,
            "parameters": design.configuration.parameters(),
            "hash": f"{design.configuration.hash:#010x}",
            "memory_bytes": design.memory_bytes,
            "clock_mhz": design.clock_hz / 1e6,
            "baud": board.baud,
            "programmer": board.programmer,
            "bitstream": bitstream and str(bitstream),
            "rtl": self.rtl,
            "tools": dict(self.tools),
            "resources": dict(self.packed),
            "capacity": dict(design.device.capacity),
            "meets_clock": self.meets_clock,
            "seeds": {str(each.seed): each.clock_mhz for each in self.placements},
            "critical_path": [asdict(step) for step in self.best.path],
        }


def meets_clock(design: Design, placement: RoutedDesign) -> bool:
    """Return whether a placement reaches the clock of its design."""
    return placement.clock_mhz * 1e6 >= design.clock_hz


def build(design: Design, seeds: int, advance: Advance = lambda text, done, total: None) -> Built:
    """Synthesise a design; place and route it until it meets its clock.

    Results of all steps are kept in the cache, so a repeated build continues an interrupted one.

    Parameters
    ----------
    seeds
        Placements, at most.

    Raises
    ------
    ToolError
        When a tool is missing.
    HardwareError
        When the chip is too small; the message names resources and parameters to lower.
        `UnroutableError` when no placement could be routed.
    """
    device, target = design.device, design.clock_hz / 1e6
    assert device.family.packer is not None
    find_tool(device.family.packer)  # before hours of work
    # Exact for the core alone, and known at once: synthesis would find the same after minutes.
    counts = count_blocks(
        design.configuration, design.technology, device.capacity.get("multipliers")
    )
    check_room(design, {"multipliers": counts.multipliers, "ram": counts.ram or 0})
    tools = tool_versions(device)
    about, steps = f"{design.configuration.name} on {design.board.name}", 1 + seeds
    advance(f"{about}: elaboration", 0, steps)
    rtl = design.rtlil()
    mapped = map_design(
        rtl,
        device.family.mapping,
        TOP,
        lambda step: advance(f"{about}: synthesis, {step}", 0, steps),
    )
    packed = pack_design(mapped, device)
    check_room(design, packed)
    placements: list[RoutedDesign] = []
    layout, tiles = "", None
    for seed in range(1, 1 + seeds):
        try:
            placement, layout, tiles = route_design(
                mapped,
                device,
                seed,
                target,
                lambda step, seed=seed: advance(f"{about}: seed {seed}, {step}", seed, steps),
                lambda placed: tiles_of(placed, TOP),
            )
        except UnroutableError:
            if seed == seeds and not placements:
                raise
            continue
        placements.append(placement)
        if meets_clock(design, placement):
            break
    return Built(design, hash_of(rtl), packed, tuple(placements), layout, tiles or [], tools)


def write_bitstream(built: Built, folder: Path) -> Path:
    """Write the bitstream, its report and its floorplan to a folder; return the bitstream's path.

    Raises
    ------
    UsageError
        When the folder cannot be made.
    ToolError
        When the packer is missing.
    HardwareError
        When the packer rejects the design.
    """
    family, board = built.design.device.family, built.design.board
    assert family.packer is not None
    make_output_folder(folder)
    refuse_foreign(folder, names_of(built.design))
    bitstream = folder / f"{board.name}{family.suffix}"
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        layout = Path(beside) / LAYOUT
        layout.write_text(built.layout, "utf-8")
        place = layout.relative_to(folder).as_posix()
        names = {"layout": place, "bitstream": bitstream.name, "part": board.part}
        arguments = [argument.format(**names) for argument in family.packing]
        run_tool(family.packer, arguments, folder, lambda line: None)
    report = json.dumps(built.to_json(bitstream), indent=2) + "\n"
    write_output(folder / REPORT, report, f"`{folder / REPORT}`")
    if built.tiles:
        design, best = built.design, built.best
        caption = f"{design.configuration.name} on {board.name}, {best.clock_mhz:.1f} MHz: cells"
        write_output(folder / FLOORPLAN, draw(built.tiles, caption), f"`{folder / FLOORPLAN}`")
    record_files(folder, (name for name in names_of(built.design) if (folder / name).exists()))
    return bitstream


def names_of(design: Design) -> tuple[str, ...]:
    """The names of the bitstream, its report and its floorplan."""
    return f"{design.board.name}{design.device.family.suffix}", REPORT, FLOORPLAN


def check_room(design: Design, used: Mapping[str, int]) -> None:
    """Reject a design that takes more than the chip has.

    Raises
    ------
    HardwareError
        The message names resources and parameters to lower, or the board's own configuration.
    """
    problems = shortages(design.device, used, "take a board with")
    if not problems:
        return
    usual = design.board.configuration
    if design.configuration.hash != PRESETS[usual].hash:
        problems.append(f"without `--config`, the board takes `{usual}`, which fits")
    raise HardwareError(
        f"configuration `{design.configuration.name}` on `{design.board.name}`: "
        + "; ".join(problems)
    )


def timing_problem(built: Built) -> str:
    """Return the sentence about a design that misses its clock: the path, and what to lower."""
    design, best = built.design, built.best
    total = sum(_delay(step) for step in best.path)
    wires = sum(step.routing_ns for step in best.path)
    slowest = max(best.path, key=_delay).name
    tried = counted(len(built.placements), "seed")
    return (
        f"`{design.board.name}` at {design.clock_hz / 1e6:g} MHz: the best of {tried} reaches "
        f"{best.clock_mhz:.1f} MHz, since a path of {total:.1f} ns, {wires:.1f} ns of them in "
        f"wires, leads through `{slowest}`; ask for `--clock {int(best.clock_mhz)}`, try more "
        "placements with `--seeds`, or lower `vector_lanes`, then `lanes_in` or `lanes_out`"
    )


def _delay(step: CriticalStep) -> float:
    return step.logic_ns + step.routing_ns


def resource_sentence(built: Built) -> str:
    """Return the resources that the design takes, with their shares of the chip."""
    capacity, packed = built.design.device.capacity, built.packed
    return ", ".join(
        f"{packed.get(name, 0):,} {heading} ({100 * packed.get(name, 0) / capacity[name]:.0f} %)"
        for name, heading in RESOURCES.items()
        if name in capacity
    )

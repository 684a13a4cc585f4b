"""Measured resources of the samples, unit by unit, in `rows.jsonl`: the model is fitted to them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ..synthesis.devices import LOGIC_RAM, RESOURCES, FpgaDevice, find_device
from ..synthesis.flow import Synthesis, core_rtlil, hash_of, synthesise, tool_versions
from ..synthesis.netlist import PINS
from ..synthesis.rows import SynthesisRow, read_lines, write_lines
from .features import PACKING, unit_of
from .model import estimated

DATA = Path(__file__).with_name("rows.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaRow(SynthesisRow):
    """The resources of one configuration on one device.

    Parameters
    ----------
    units
        Resources by unit of the model; their sums are the resources of the core.
    logic_ram_bits
        Bits of RAM made of logic cells.
    """

    units: dict[str, dict[str, int]]
    logic_ram_bits: int

    @property
    def technology(self) -> Technology:
        return find_device(self.device).family.technology

    @property
    def multipliers(self) -> int | None:
        """Number of multipliers that the chip has; None without a limit."""
        return find_device(self.device).capacity.get("multipliers")


def read_rows(path: Path = DATA) -> list[AreaRow]:
    """Return the rows of the data file in its order."""
    return read_lines(AreaRow, path)


def write_rows(rows: Sequence[AreaRow], path: Path = DATA) -> None:
    """Write the data file.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    write_lines(rows, path)


def row_of(found: Synthesis) -> AreaRow:
    """Return the row of a synthesis."""
    units: dict[str, Counter[str]] = {}
    for path, resources in found.netlist.cells:
        if path[0] != PINS:
            units.setdefault(unit_of(path), Counter()).update(resources)
    packing = Counter(found.packed)
    packing.subtract(found.netlist.total)
    units[PACKING] = packing
    return AreaRow.of(
        found,
        units={
            unit: {name: used[name] for name in RESOURCES if used[name]}
            for unit, used in sorted(units.items())
        },
        logic_ram_bits=sum(used[LOGIC_RAM] for used in units.values() if used is not packing),
    )


def measure(
    samples: Sequence[tuple[Configuration, str]],
    kept: Sequence[AreaRow],
    keep: Callable[[Sequence[AreaRow]], None],
    say: Callable[[str], None],
) -> list[AreaRow]:
    """Measure the samples whose RTL or tools have changed; return a row for each sample.

    Parameters
    ----------
    samples
        Configurations, each with the name of its chip.
    kept
        Rows of earlier measurements.
    keep
        Receives all rows after each measurement.
    say
        Receives a line about each sample.

    Raises
    ------
    ToolError, HardwareError
        When a tool is missing, or rejects a design.
    """
    rows = {row.key: row for row in kept}
    for number, (configuration, chip) in enumerate(samples, 1):
        device, key = find_device(chip), (configuration.name, chip)
        text = f"{number}/{len(samples)} {configuration.name} on {chip}"
        if key in rows and _is_current(rows[key], configuration, device):
            say(f"{text}: kept")
            continue
        rows[key] = row_of(synthesise(configuration, device, place=False))
        keep(list(rows.values()))
        name = estimated(rows[key].technology)[0]
        say(f"{text}: {rows[key].resources[name]:,} {RESOURCES[name]}")
    return [rows[configuration.name, chip] for configuration, chip in samples]


def _is_current(row: AreaRow, configuration: Configuration, device: FpgaDevice) -> bool:
    return row.parameters == configuration.parameters() and row.is_of(
        hash_of(core_rtlil(configuration, device)), tool_versions(device)
    )

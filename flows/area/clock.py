"""The clock of a configuration on a device: measured where the ledger has it, else an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ...isa.configuration import Configuration
from ...wording import counted
from ..synthesis.devices import DEVICES, FpgaDevice
from ..synthesis.ledger import LedgerRow, read_rows
from .provenance import LEDGER, OTHER_SOURCES, is_of_these_sources


@dataclass(frozen=True, slots=True)
class ClockEstimate:
    """A clock in MHz.

    Parameters
    ----------
    median_mhz, least_mhz, greatest_mhz
        Statistics over the placer's seeds; of an estimate, the line and the range around it.
    seeds
        Number of seeds; of an estimate, those of all machines that it comes from.
    measured
        Whether this machine was placed on this device.
    is_current
        Whether the sources of the hardware are those of the placed RTL.
    """

    median_mhz: float
    least_mhz: float
    greatest_mhz: float
    seeds: int
    measured: bool
    is_current: bool = True

    def __str__(self) -> str:
        span = f"{self.least_mhz:.0f} to {self.greatest_mhz:.0f}"
        note = "" if self.is_current else f", {OTHER_SOURCES}"
        if self.measured:
            seeds = counted(self.seeds, "seed")
            return f"{self.median_mhz:.1f} MHz, the median of {seeds} ({span}){note}"
        return f"about {self.median_mhz:.0f} MHz ({span}), an estimate from measured machines{note}"


def clock_of(
    configuration: Configuration, device: FpgaDevice, rows: Sequence[LedgerRow] | None = None
) -> ClockEstimate | None:
    """Return the clock in the ledger, or an estimate from the device's family; None if unknown.

    Parameters
    ----------
    rows
        The `measured_rows` of the device, for callers with many configurations.
    """
    rows = measured_rows(device) if rows is None else rows
    for row in rows:
        if row.device == device.name and row.parameters == configuration.parameters():
            clocks = row.clocks_mhz
            is_current = is_of_these_sources(LEDGER)
            return ClockEstimate(
                median(clocks), min(clocks), max(clocks), len(clocks), True, is_current
            )
    return estimated_clock(configuration, rows)


def estimated_clock(
    configuration: Configuration, rows: Sequence[LedgerRow]
) -> ClockEstimate | None:
    """Estimate the clock from machines of other sizes; None for a size that is not between theirs.

    All machines have the same pipelines, but wires get longer with the array. So a line is fitted
    to the medians over the logarithm of the multiplications a cycle. The range has as much room on
    both sides of it as the seeds of all rows need.
    """
    sizes = [row.machine.tile_bytes for row in rows]
    if not rows or not min(sizes) <= configuration.tile_bytes <= max(sizes):
        return None
    degree = min(1, len(set(sizes)) - 1)
    line = np.polyfit(np.log2(sizes), [median(row.clocks_mhz) for row in rows], degree)

    def on_line(machine: Configuration) -> float:
        return float(np.polyval(line, np.log2(machine.tile_bytes)))

    off = [clock - on_line(row.machine) for row in rows for clock in row.clocks_mhz]
    middle = on_line(configuration)
    is_current = is_of_these_sources(LEDGER)
    return ClockEstimate(middle, middle + min(off), middle + max(off), len(off), False, is_current)


def measured_rows(device: FpgaDevice) -> list[LedgerRow]:
    """Return the ledger's rows with a clock on devices of this family."""
    rows = (row for row in read_rows() if row.clocks_mhz)
    return [row for row in rows if DEVICES[row.device].family is device.family]

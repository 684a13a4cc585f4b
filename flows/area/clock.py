"""The clock of a configuration on a device: measured where the ledger has it, else an estimate."""

import statistics
from dataclasses import dataclass

from ...isa.configuration import Configuration
from ..synthesis.devices import DEVICES, Device
from ..synthesis.ledger import Row, read_rows


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock in MHz.

    Parameters
    ----------
    median_mhz, least_mhz, greatest_mhz
        Statistics over the placer's seeds; an estimate uses the seeds of all measured machines.
    seeds
        Number of seeds.
    measured
        Whether this machine was placed on this device.
    """

    median_mhz: float
    least_mhz: float
    greatest_mhz: float
    seeds: int
    measured: bool

    def __str__(self) -> str:
        span = f"{self.least_mhz:.0f} to {self.greatest_mhz:.0f}"
        if self.measured:
            return f"{self.median_mhz:.1f} MHz, the median of {self.seeds} seeds ({span})"
        return f"about {self.median_mhz:.0f} MHz, an estimate: measured machines reach {span}"


def clock_of(configuration: Configuration, device: Device) -> Clock | None:
    """Return the clock in the ledger, or an estimate from the device's family; None if unknown.

    All machines have the same pipelines, but wires get longer with the array. So the estimate is
    for sizes between those of measured machines, and nothing is said of others.
    """
    rows = measured_rows(device)
    own = [
        row
        for row in rows
        if row.device == device.name and row.parameters == configuration.parameters()
    ]
    sizes = [row.machine.tile_bytes for row in rows]
    between = bool(rows) and min(sizes) <= configuration.tile_bytes <= max(sizes)
    clocks = [clock for row in own or rows if own or between for clock in row.clocks_mhz]
    if not clocks:
        return None
    return Clock(statistics.median(clocks), min(clocks), max(clocks), len(clocks), bool(own))


def measured_rows(device: Device) -> list[Row]:
    """Return the ledger's rows with a clock on devices of this family."""
    rows = (row for row in read_rows() if row.clocks_mhz)
    return [row for row in rows if DEVICES[row.device].family is device.family]

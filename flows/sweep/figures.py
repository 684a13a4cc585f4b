"""The figures of a point, for conditions, objectives, tables and the page.

A figure that is not known yet is an interval, see `expressions`.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...errors import UsageError, did_you_mean
from ...isa.configuration import PARAMETERS
from ...isa.settings import MEMORY
from .expressions import EVER, Interval, exactly, of_network
from .space import Point

TIMES: Mapping[str, str] = MappingProxyType(
    {
        "cycles": "cycles of all networks, each multiplied by its weight",
        "ms": "milliseconds of these cycles at the clock",
        "of_peak": "share of the multiplications that the array could have done",
        "energy_uj": "energy of all networks in microjoules, an estimate for 45 nm",
    }
)
"""Figures of a compiled program, with their meanings."""

COUNTS: Mapping[str, str] = MappingProxyType(
    {
        "multipliers": "multipliers: 18 by 18 bits on an ECP5, 9 by 9 on a Gowin, or DSP48",
        "ram": "block RAMs of 18 Kbit",
        "lut": "look-up tables: an estimate until `--synthesise` has measured them",
        "ff": "flip-flops: an estimate until `--synthesise` has measured them",
        "gates": "NAND2 equivalents on an ASIC: an estimate until `--synthesise` has measured them",
        "ram_bits": "bits of all scratchpads and of VECTOR's tables",
        "macs_per_cycle": "multiplications by weights in a cycle, lanes_in x lanes_out",
    }
)
"""Figures that are known before compilation."""

HEADINGS: Mapping[str, str] = MappingProxyType(
    {"energy_uj": "energy, uJ", "clock_mhz": "clock, MHz", "macs_per_cycle": "MACs a cycle"}
)
"""Headings of tables that differ from the figure's name."""

CLOCK = "clock_mhz"
"""Name of the clock, which may differ by machine once machines are placed."""

NUMBERS = tuple(name for name, about in PARAMETERS.items() if not about.choices)
"""Parameters of the configuration that are numbers."""

FIGURES: Mapping[str, str] = MappingProxyType(
    {
        **TIMES,
        **COUNTS,
        CLOCK: "clock in MHz: that of `--clock` until `--seeds` has measured it",
        **{name: PARAMETERS[name].meaning for name in NUMBERS},
        **{name: MEMORY[name] for name in ("latency", "bandwidth", "outstanding")},
    }
)
"""Every figure, with its meaning."""

OBJECTIVES = tuple(name for name in FIGURES if name not in ("of_peak", "bandwidth", CLOCK))
"""Figures that may be minimised."""

DEFAULT_OBJECTIVES = ("cycles", "multipliers", "ram")

ASIC_OBJECTIVES = ("cycles", "gates", "ram_bits")
"""The default objectives for an ASIC."""


PRICE, ASIC_PRICE = ("lut",), ("gates",)
"""Objectives that `--rate` minimises on an FPGA and on an ASIC."""


def check_objectives(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Check the names of objectives.

    Raises
    ------
    UsageError
        If a name is unknown, or there is none.
    """
    for name in names:
        if name not in OBJECTIVES:
            known = ", ".join((*TIMES, *COUNTS)).replace("of_peak, ", "")
            raise UsageError(
                f"{source}: expected figures to minimise, for example {known}, or a parameter, got "
                f"`{name}`" + did_you_mean(name, OBJECTIVES)
            )
    if not names:
        raise UsageError(f"{source}: expected a figure to minimise, got none")
    return tuple(dict.fromkeys(names))


def heading_of(name: str) -> str:
    """Return a figure's heading, with its unit."""
    return HEADINGS.get(name, name.replace("_", " "))


def known_figures(point: Point, counts: Mapping[str, Any], clock_mhz: float) -> dict[str, Interval]:
    """Return the figures of a point before it is timed.

    Parameters
    ----------
    counts
        Figures of `evaluators.resources`, or measured ones.
    """
    configuration, memory = point.machine.configuration, point.setting.memory
    found = {name: exactly(getattr(configuration, name)) for name in NUMBERS}
    found |= {
        "latency": exactly(memory.latency_cycles),
        "bandwidth": exactly(memory.beats / memory.cycles),
        "outstanding": exactly(memory.outstanding_bursts),
        "macs_per_cycle": exactly(configuration.tile_bytes),
    }
    for name in COUNTS.keys() - found.keys():
        found[name] = exactly(counts[name])
    return {**found, CLOCK: exactly(clock_mhz), **dict.fromkeys(TIMES, EVER)}


def network_figures(
    networks: Sequence[str], cycles: Sequence[Interval], clock_mhz: float
) -> dict[str, Interval]:
    """Return the figures of each network by itself, whatever its weight."""
    found: dict[str, Interval] = {}
    for network, (low, high) in zip(networks, cycles, strict=True):
        found[of_network("cycles", network)] = low, high
        found[of_network("ms", network)] = low / clock_mhz / 1e3, high / clock_mhz / 1e3
    return found


def program_figures(
    cycles: Interval,
    peak: int,
    clock_mhz: float,
    macs: float | None = None,
    energy_nj: float | None = None,
) -> dict[str, Interval]:
    """Return the figures of a program.

    Parameters
    ----------
    peak
        Multiplications in a cycle.
    macs
        Multiplications in these cycles; None while they are unknown.
    energy_nj
        Estimated energy; None while it is unknown.
    """
    low, high = cycles
    share = EVER
    if macs is not None and low > 0:
        share = macs / (high * peak), macs / (low * peak)
    return {
        "cycles": cycles,
        "ms": (low / clock_mhz / 1e3, high / clock_mhz / 1e3),
        "of_peak": share,
        "energy_uj": (0.0, math.inf) if energy_nj is None else exactly(energy_nj / 1e3),
    }

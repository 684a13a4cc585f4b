"""The ledger: area and clock of configurations, in `ledger.jsonl` and `docs/reference/area.md`."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...atomic_write import write_output
from .devices import DEVICES, RESOURCES
from .rows import SynthesisRow, read_lines, write_lines

if TYPE_CHECKING:
    from .flow import Synthesis

DATA = Path(__file__).with_name("ledger.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "area.md"

COLUMNS = [
    name for name in RESOURCES if any(name in device.capacity for device in DEVICES.values())
]
"""Resources that chips have."""

TOLERANCE = 0.03
"""Largest share of the kept figure by which a new one may be worse."""

INTRODUCTION = """\
# Area and clock

Written by `make area` from `flows/synthesis/ledger.jsonl`; do not edit.
[synthesis.md](../guide/synthesis.md) explains how to measure your own configuration.

Each row is the whole core: all units, the memory port and the registers. LUT, FF, RAM and
multipliers are what the chip spends, as nextpnr counts them after packing, with the share of the
chip; Yosys alone counts for devices without open place and route, which have no clock here. RAM is
in blocks of 18 Kbit (iCE40: 4 Kbit, and large ones of 256 Kbit), multipliers are 18x18 (Xilinx:
DSP48; iCE40: 16x16; Gowin: 9x9, of which an 18x18 one takes two). The clock is the median over the
placer's seeds, with the least and the greatest. `make area CHECK=1` fails if a figure is more than
3 % worse than here.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(SynthesisRow):
    """The area and the clock of one configuration on one device.

    Parameters
    ----------
    target_mhz
        The clock that the placer aimed at.
    clocks_mhz
        The clock of each seed, from seed 1; empty for devices without an open placer.
    flow
        Hash of the arguments and netlist passes; see `flow_hash`.
    """

    flow: str
    target_mhz: float
    clocks_mhz: list[float]

    @property
    def median_mhz(self) -> float | None:
        return statistics.median(self.clocks_mhz) if self.clocks_mhz else None


def row_of(found: "Synthesis") -> LedgerRow:
    """Return the ledger's row of a synthesis."""
    figures = {"target_mhz": found.target_mhz, "clocks_mhz": found.clocks_mhz}
    return LedgerRow.of(found, flow=found.flow, **figures)


def read_rows(path: Path = DATA) -> list[LedgerRow]:
    """Return the rows of the data file in its order."""
    return read_lines(LedgerRow, path)


def write_rows(rows: Sequence[LedgerRow], data: Path = DATA, page: Path = PAGE) -> None:
    """Write the data file and the page.

    Raises
    ------
    UsageError
        When a file cannot be written.
    """
    write_lines(rows, data)
    write_output(page, render(rows), f"`{page}`")


def with_row(rows: Sequence[LedgerRow], new: LedgerRow) -> list[LedgerRow]:
    """Return the rows with a new one in the place of its predecessor, or at the end."""
    if new.key in [row.key for row in rows]:
        return [new if row.key == new.key else row for row in rows]
    return [*rows, new]


def render(rows: Sequence[LedgerRow]) -> str:
    """Return the text of the page."""
    headings = [RESOURCES[name] for name in COLUMNS]
    headings = ["configuration", "device", *headings, "clock MHz", "seeds", "RTL"]
    lines = [
        f"| {' | '.join(headings)} |",
        f"| {' | '.join(['---'] * 2 + ['---:'] * (len(headings) - 3) + ['---'])} |",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    tools: dict[str, None] = {}
    for row in rows:
        tools.update(dict.fromkeys(f"{name} {number}" for name, number in row.tools.items()))
    return f"{INTRODUCTION}\n" + "\n".join(lines) + f"\n\nTools: {', '.join(sorted(tools))}.\n"


def _cells(row: LedgerRow) -> Iterator[str]:
    yield row.configuration
    yield row.device
    capacity = DEVICES[row.device].capacity
    for name in COLUMNS:
        used = row.resources.get(name, 0)
        yield f"{used:,} ({100 * used / capacity[name]:.0f} %)" if used else "-"
    if row.median_mhz is None:
        yield from ("-", "-")
    else:
        low, high = min(row.clocks_mhz), max(row.clocks_mhz)
        yield f"{row.median_mhz:.1f} ({low:.1f} to {high:.1f})"
        yield str(len(row.clocks_mhz))
    yield f"`{row.rtl}`"


def worse(kept: LedgerRow, found: LedgerRow) -> list[str]:
    """Return the figures that are more than `TOLERANCE` worse than the kept ones, as text.

    Clocks are compared only if the found row has some.
    """
    problems = []
    for name, before in kept.resources.items():
        now = found.resources.get(name, 0)
        if now > before * (1 + TOLERANCE):
            problems.append(f"{now:,} {RESOURCES[name]}, kept {before:,}{_change(now, before)}")
    for name, now in found.resources.items():
        if name not in kept.resources:
            problems.append(f"{now:,} {RESOURCES[name]}, kept none")
    now, before = found.median_mhz, kept.median_mhz
    if now is not None and before is not None and now < before * (1 - TOLERANCE):
        problems.append(f"{now:.1f} MHz, kept {before:.1f}{_change(now, before)}")
    return problems


def _change(now: float, before: float) -> str:
    return f" ({100 * (now / before - 1):+.1f} %)" if before else ""


def is_current(kept: LedgerRow, rtl: str, flow: str, tools: Mapping[str, str], seeds: int) -> bool:
    """Whether measuring a row again would give the same figures."""
    placed = not kept.clocks_mhz or len(kept.clocks_mhz) == seeds
    return kept.is_of(rtl, tools) and kept.flow == flow and placed

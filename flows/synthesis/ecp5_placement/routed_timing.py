"""Timing of a routed ECP5 design, from the delays that nextpnr writes as SDF.

nextpnr takes a carry chain for slower than it is, unless it has packed the design in the same run:
a placed design does not tell which of two cells passes a carry on for both. So the flow finds the
longest path itself, from nextpnr's delays of cells and of routed wires. If nextpnr has packed the
design in the same run, it finds the same path.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .placed_timing import ODD_CARRY

_WIRE = re.compile(r"\(INTERCONNECT (\S+) (\S+) \(\d+:\d+:(\d+)\)")
_CELL = re.compile(r"\(INSTANCE (\S+)\)")
_LOGIC = re.compile(r"\(IOPATH (\w+) (\w+) \(\d+:\d+:(\d+)\)")
_SETUP = re.compile(r"\(SETUPHOLD \(\w+ (\w+)\) \((\w+) (\w+)\) \((?:-?\d+:-?\d+:)?(-?\d+)\)")

ODD = "$CCU2_COMB1"
"""End of the name that nextpnr gives to the second of the two cells which it makes of a CCU2C."""

CLOCKS = ("CLK", "SCLK", "WCK")
"""First letters of clock pins."""

Part = dict[str, Any]
"""One step of a path in nextpnr's report: its type, its delay in ns, and the pin at its end."""


@dataclass(slots=True)
class _Delays:
    """The delays of a design in ps, with pins as numbers.

    Parameters
    ----------
    pins
        The number of each pin, by its name.
    edges
        From pin to pin, through a wire or a cell: source, sink, delay, and whether it is a wire.
    starts
        Outputs of registers: pin, clock pin, delay from the clock.
    ends
        Inputs of registers: pin, clock pin, setup time.
    falling
        Whether a register waits for the falling edge of its clock.
    """

    pins: dict[str, int] = field(default_factory=dict)
    edges: list[tuple[int, int, int, bool]] = field(default_factory=list)
    starts: list[tuple[int, int, int]] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    falling: bool = False

    def pin(self, name: str) -> int:
        return self.pins.setdefault(name, len(self.pins))


def longest_path(sdf: Iterable[str]) -> list[Part]:
    """Return the longest path between registers of one clock.

    Parameters
    ----------
    sdf
        The lines of nextpnr's `--sdf`.

    Returns
    -------
    list
        The parts of the path. It is empty if there is no path, or if a register waits for a falling
        edge: paths to that have half a period.
    """
    found = _read(sdf)
    if found.falling or not found.edges:
        return []
    source, sink, delay, wire = (np.array(part) for part in zip(*found.edges, strict=True))
    names = list(found.pins)
    clocks = dict(zip(sink[wire].tolist(), source[wire].tolist(), strict=True))
    longest: list[Part] = []
    longest_ps = 0.0
    for clock in sorted({clocks[own] for _, own, _ in found.starts if own in clocks}):
        begun = np.full(len(names), -np.inf)
        for output, own, start in found.starts:
            if clocks.get(own) == clock:
                begun[output] = start
        arrival = _arrivals(begun, source, sink, delay)
        ends = [(end, setup) for end, own, setup in found.ends if clocks.get(own) == clock]
        end, setup = max(ends, key=lambda end: arrival[end[0]] + end[1], default=(0, 0))
        if ends and arrival[end] + setup > longest_ps:
            longest_ps = arrival[end] + setup
            longest = [_part("setup", setup, names[end])]
            while arrival[end] != begun[end]:
                into = np.flatnonzero(sink == end)
                edge = into[np.argmax(arrival[source[into]] + delay[into])]
                kind = "routing" if wire[edge] else "logic"
                longest.append(_part(kind, float(delay[edge]), names[end]))
                end = int(source[edge])
            longest.append(_part("clk-to-q", float(arrival[end]), names[end]))
            longest.reverse()
    return longest


def _arrivals(
    begun: np.ndarray, source: np.ndarray, sink: np.ndarray, delay: np.ndarray
) -> np.ndarray:
    """Return when the last edge reaches each pin, in ps after the clock; never is -inf."""
    arrival = begun
    while True:
        later = arrival.copy()
        np.maximum.at(later, sink, arrival[source] + delay)
        if (later == arrival).all():
            return arrival
        arrival = later


def _read(sdf: Iterable[str]) -> _Delays:
    delays = _Delays()
    pin = delays.pin
    cell = ""
    for line in sdf:
        if found := _WIRE.search(line):
            delays.edges.append((pin(found[1]), pin(found[2]), int(found[3]), True))
        elif found := _CELL.search(line):
            cell = found[1]
        elif found := _LOGIC.search(line):
            entry, output, delay = found[1], found[2], int(found[3])
            if entry == "FCI" and _plain(cell).endswith(ODD):
                delay = ODD_CARRY[output]
            begin, end = pin(f"{cell}/{entry}"), pin(f"{cell}/{output}")
            if entry.startswith(CLOCKS) and not output.startswith(CLOCKS):
                delays.starts.append((end, begin, delay))
            else:
                delays.edges.append((begin, end, delay, False))
        elif found := _SETUP.search(line):
            delays.falling |= found[2] != "posedge"
            end, clock = pin(f"{cell}/{found[1]}"), pin(f"{cell}/{found[3]}")
            delays.ends.append((end, clock, int(found[4])))
    return delays


def _plain(name: str) -> str:
    return name.replace("\\", "")


def _part(kind: str, delay_ps: float, pin: str) -> Part:
    cell, port = _plain(pin).rsplit("/", 1)
    return {"type": kind, "delay": delay_ps / 1e3, "to": {"cell": cell, "port": port}}

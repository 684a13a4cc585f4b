"""Timing of a design that is placed on an ECP5, but not routed yet.

nextpnr writes a placed design as JSON, in which each cell names its place. The delays of cells are
nextpnr's for speed grade 6. Those of wires are estimates, fitted to the routed wires of a 16x16
machine; routed wires differ from them by 0.3 ns on average. All clocks count as one. Paths to and
from pins of the chip do not count, unless there is a register at the pin.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

LUT, FLIP_FLOP, RAM_WRITE = "TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW"
"""Cells of a logic tile. Carry chains and multiplexers are of type `LUT` too."""

RAM, MULTIPLIER = "DP16KD", "MULT18X18D"

CLOCK_TO_OUTPUT = {FLIP_FLOP: 525, RAM: 973, MULTIPLIER: 735, "IOLOGIC": 500, "SIOLOGIC": 500}
"""Cells with registers, and their delay from the clock to outputs in ps. RAM and multipliers have
registers at their outputs. The last two are the registers at pins."""

SETUP = {FLIP_FLOP: {"LSR": 424}, LUT: {"WRE": 392}, RAM: {"": 250}, MULTIPLIER: {"": 150}}
SETUP |= {"IOLOGIC": {"": 100}, "SIOLOGIC": {"": 100}}
"""Time in ps by which an input comes before the clock; `""` stands for all other inputs."""

TO_OUTPUT = {"F": {"FCI": 443, "": 236}, "FCO": {"FCI": 71, "": 447}}
TO_OUTPUT["OFX"] = {"M": 256, "F1": 165, "FXA": 239, "FXB": 242, "": 401}
"""Delays through a `LUT` in ps, by its output and then by its input; `""` as above."""

ODD_CARRY = {"F": 403, "FCO": 0}
"""Delays from the carry input `FCI` to odd slots, in ps; a carry passes two slots at a time."""

PLACED = "NEXTPNR_BEL"
"""nextpnr's attribute for the place that it has chosen for a cell."""

DATA = frozenset("ABCD")
CHAINED = frozenset({"FCI", "FXA", "FXB", "F1"})
"""Inputs of a `LUT`. `DATA` are those of its table. Only a cell next to it can drive `CHAINED`."""

RIGID = CHAINED | {"DI"}
"""Inputs that only a cell in the same slot or next to it can drive, if a `LUT` drives them."""

WRITES = ("WD", "WAD", "WRE")
"""First letters of the inputs of a `LUT` that end a path: the write port of a distributed RAM."""

CLOCKS = ("CLK", "WCK")

START, NEAR, FAR = 700.0, 90.0, 52.0
"""Estimate of a wire in ps: for its ends, for each of the first `NEARBY` columns and rows, and for
each further one."""

NEARBY = 5

ENTRY = {RAM: 500.0, MULTIPLIER: 500.0}
"""Additional delay of a wire that leads to such a cell, in ps."""

Cell = dict[str, Any]


class PlacedPin(NamedTuple):
    """A pin of a cell, by the cell's number."""

    cell: int
    name: str


class DesignTiming(NamedTuple):
    """Delays and path lengths of a placement.

    Parameters
    ----------
    delays
        The delay of each wire in ps.
    paths
        The length in ps of the longest path through each wire.
    """

    delays: np.ndarray
    paths: np.ndarray


def nets(cells: Sequence[Cell]) -> Iterator[tuple[PlacedPin, list[PlacedPin]]]:
    """Yield each net that has a driver: its driver and the inputs it leads to."""
    drivers: dict[int, PlacedPin] = {}
    users: dict[int, list[PlacedPin]] = defaultdict(list)
    for number, cell in enumerate(cells):
        for name, bits in cell["connections"].items():
            for bit in bits:
                if cell["port_directions"][name] == "output":
                    drivers[bit] = PlacedPin(number, name)
                else:
                    users[bit].append(PlacedPin(number, name))
    yield from ((driver, users[net]) for net, driver in drivers.items())


def is_constant(cell: Cell) -> bool:
    """Tell whether a cell is a table without inputs."""
    inputs = DATA | CHAINED | {"M"}
    return cell["type"] == LUT and not any(cell["connections"].get(name) for name in inputs)


class PlacedTiming:
    """The timing of a design, for any placement of its cells.

    A wire leads from an output to one input. Attributes `sources` and `sinks` have the numbers of
    the cells at the ends of each wire.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        timed = {*CLOCK_TO_OUTPUT, LUT, RAM_WRITE}
        kinds = [cell["type"] for cell in cells]
        odd = [cell["attributes"].get(PLACED, "").endswith("K1") for cell in cells]
        wires = [
            (driver, user)
            for driver, users in nets(cells)
            if kinds[driver.cell] in timed and not is_constant(cells[driver.cell])
            for user in users
            if kinds[user.cell] in timed and not user.name.startswith(CLOCKS)
        ]
        self.sources = np.array([driver.cell for driver, _ in wires], int)
        self.sinks = np.array([user.cell for _, user in wires], int)
        self._base = np.array([_base(kinds, *wire) for wire in wires])
        outputs: dict[PlacedPin, int] = {}
        for driver, _ in wires:
            outputs.setdefault(driver, len(outputs))
        self._from = np.array([outputs[driver] for driver, _ in wires], int)
        self._start = np.array([CLOCK_TO_OUTPUT.get(kinds[pin.cell], 0.0) for pin in outputs])
        by_cell: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for pin, output in outputs.items():
            by_cell[pin.cell].append((pin.name, output))
        ends = []
        through = []
        for wire, (_, user) in enumerate(wires):
            kind = kinds[user.cell]
            if kind in CLOCK_TO_OUTPUT or (kind == LUT and user.name.startswith(WRITES)):
                setup = SETUP[kind]
                ends.append((wire, setup.get(user.name, setup.get("", 0))))
            else:
                through += [
                    (wire, output, delay)
                    for name, output in by_cell[user.cell]
                    if (delay := _through(kind, user.name, name, odd[user.cell])) is not None
                ]
        self._ends = np.array([wire for wire, _ in ends], int)
        self._setup = np.array([setup for _, setup in ends], float)
        self._wire = np.array([wire for wire, _, _ in through], int)
        self._output = np.array([output for _, output, _ in through], int)
        self._delay = np.array([delay for _, _, delay in through], float)
        self._levels = self._order(len(outputs))

    def _order(self, outputs: int) -> list[np.ndarray]:
        """Return the ways through cells in groups, each of which follows on earlier ones only."""
        level = np.zeros(outputs, int)
        source = self._from[self._wire]
        for _ in range(outputs):
            deeper = level.copy()
            np.maximum.at(deeper, self._output, level[source] + 1)
            if (deeper == level).all():
                break
            level = deeper
        of_way = level[self._output]
        return [np.flatnonzero(of_way == depth) for depth in range(1, level.max(initial=0) + 1)]

    def delays(self, places: np.ndarray) -> np.ndarray:
        """Return the delay of each wire in ps, from the columns and rows of all cells."""
        return self.between(places[self.sources], places[self.sinks])

    def between(
        self, start: np.ndarray, end: np.ndarray, wires: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """Return the delays of some wires in ps, from the columns and rows of their ends.

        Parameters
        ----------
        start, end
            Of shape (..., wires, 2).
        """
        base = self._base[wires]
        apart = np.abs(start - end)
        near = np.minimum(apart, NEARBY)
        length = (NEAR * near + FAR * (apart - near)).sum(-1)
        return np.where(base == 0, 0.0, base + length)

    def analyse(self, places: np.ndarray) -> DesignTiming:
        """Return the timing of a placement.

        Parameters
        ----------
        places
            Column and row of each cell, whole numbers or not.
        """
        delays = self.delays(places)
        arrival = self._start.copy()
        for ways in self._levels:
            wires = self._wire[ways]
            time = arrival[self._from[wires]] + delays[wires] + self._delay[ways]
            np.maximum.at(arrival, self._output[ways], time)
        rest = np.full(len(delays), -np.inf)
        rest[self._ends] = self._setup
        onward = np.full(len(arrival), -np.inf)
        np.maximum.at(onward, self._from[self._ends], self._setup + delays[self._ends])
        for ways in reversed(self._levels):
            wires = self._wire[ways]
            np.maximum.at(rest, wires, onward[self._output[ways]] + self._delay[ways])
            np.maximum.at(onward, self._from[wires], rest[wires] + delays[wires])
        return DesignTiming(delays, arrival[self._from] + delays + rest)


def _base(kinds: Sequence[str], driver: PlacedPin, user: PlacedPin) -> float:
    """Return the part of a wire's delay that does not depend on places; 0 if it has no length."""
    if is_rigid(kinds[driver.cell], user) or kinds[driver.cell] == RAM_WRITE:
        return 0.0
    return START + ENTRY.get(kinds[user.cell], 0.0)


def is_rigid(kind: str, user: PlacedPin) -> bool:
    """Tell whether the two ends of a wire cannot move apart; `kind` is the driver's type."""
    return kind == LUT and user.name in RIGID


def _through(kind: str, entry: str, output: str, odd: bool) -> float | None:
    """Return the delay through a cell in ps; None if no path leads through it."""
    if kind == RAM_WRITE:
        return 0.0
    if entry == "FCI" and odd:
        return ODD_CARRY.get(output)
    delays = TO_OUTPUT.get(output, {})
    return delays.get(entry, delays.get("") if entry in DATA else None)

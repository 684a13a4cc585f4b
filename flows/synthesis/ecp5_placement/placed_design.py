"""Cells of a design that is placed on an ECP5: places, groups that can move, and legality."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .placed_timing import (
    FLIP_FLOP,
    LUT,
    MULTIPLIER,
    PLACED,
    RAM_WRITE,
    Cell,
    PlacedTiming,
    is_constant,
    is_rigid,
    nets,
)

SLOTS = 8
"""Number of look-up tables in a tile, and of flip-flops."""

RAM_MODES = ("DPRAM", "RAMW_BLOCK")
"""Modes of a `LUT` that is distributed RAM, or whose inputs the write port of one takes."""

STRENGTH, FIXED = "BEL_STRENGTH", "BEL"
"""nextpnr's attributes of a cell: how firmly it is bound to its place, and the place that nextpnr
has to choose for it."""

CONTROLS = tuple(f"{name}{number}" for name in ("CLK", "CE", "RST") for number in range(4))
"""Inputs that nextpnr expects of each multiplier, and drops where it has moved their nets."""

OPEN = "x"
"""Stands for the net of a pin that has none."""

USER_STRENGTH = 5
"""Cells that are bound at least as firmly have been fixed before placing."""

_PLACE = re.compile(r"X(\d+)/Y(\d+)/(?:SLICE([A-D])\.(?:K|FF)([01])$)?")

Tile = tuple[int, int]
"""Column and row."""


@dataclass(slots=True)
class CellGroup:
    """Cells that must move together, because the wires between them have a fixed length.

    Parameters
    ----------
    cells
        Their numbers.
    offsets
        Column and row of each, counted from `base`.
    base
        The least column and the least row.
    single
        Whether any slot will do: a table, a flip-flop, or one that feeds the other. Other groups
        keep their slots when they move.
    tiles
        By offset: the slots that are taken, as one mask for tables and one for flip-flops, and the
        key of its flip-flops, -1 without any.
    entries, exits
        Wires that lead to the group, and from it.
    """

    cells: list[int]
    offsets: np.ndarray
    base: Tile
    single: bool
    tiles: dict[Tile, tuple[int, int, int]]
    entries: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    exits: np.ndarray = field(default_factory=lambda: np.empty(0, int))

    @property
    def size(self) -> Tile:
        """Columns and rows that it spans beyond its first."""
        columns, rows = self.offsets.max(0)
        return int(columns), int(rows)


class PlacedDesign:
    """A placed design: what lies where, what can move, and which places are legal.

    A tile has eight slots, each with a table (kind 0) and a flip-flop (kind 1). Two slots are a
    slice. The flip-flops of a tile share clock and reset; those of a slice share the clock enable.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.timing = PlacedTiming(cells)
        found = np.array([_place(cell) for cell in cells])
        self.places, self.slots = found[:, :2], found[:, 2]
        self.kinds = [int(cell["type"] == FLIP_FLOP) for cell in cells]
        pins = [cell["connections"] for cell in cells]
        self.selects = [
            cell["type"] == LUT and bool(pin.get("M") or pin.get("OFX"))
            for cell, pin in zip(cells, pins, strict=True)
        ]
        self.takes_m = [
            cell["type"] == FLIP_FLOP and bool(pin.get("M"))
            for cell, pin in zip(cells, pins, strict=True)
        ]
        self.tile_keys = _keys(cells, ("CLK", "LSR"), ("CLKMUX", "LSRMUX", "SRMODE"))
        self.slice_keys = _keys(cells, ("CE",), ("CEMUX", "GSR"))
        self._use_logic(cells)
        self._group(cells)
        self._occupy()

    def _occupy(self) -> None:
        """Note what lies where: cells, slots in use, and the flip-flops' keys by tile."""
        self.at: dict[tuple[int, int, int, int], int] = {}
        self.taken = np.full((2, *self.logic.shape), (1 << SLOTS) - 1)
        self.taken[:, self.logic] = 0
        self.held = self.taken.copy()
        self.flip_flops = np.zeros(self.logic.shape, int)
        self.key = np.full(self.logic.shape, -1)
        for cell in np.flatnonzero(self.slots >= 0):
            column, row = map(int, self.places[cell])
            self._put(int(cell), column, row, int(self.slots[cell]))

    def _use_logic(self, cells: Sequence[Cell]) -> None:
        """Find the tiles of logic without distributed RAM, which has rules of its own."""
        columns, rows = self.places.max(0) + 1
        self.logic = np.zeros((columns, rows), bool)
        used = self.slots >= 0
        for row in np.unique(self.places[used, 1]):
            there = self.places[used & (self.places[:, 1] == row), 0]
            self.logic[there.min() : there.max() + 1, row] = True
        for cell, place in zip(cells, self.places, strict=True):
            if cell["type"] == RAM_WRITE or cell["parameters"].get("MODE") in RAM_MODES:
                self.logic[tuple(place)] = False

    def _group(self, cells: Sequence[Cell]) -> None:
        """Find the groups; cells that cannot move belong to none."""
        parent = list(range(len(cells)))

        def root(cell: int) -> int:
            while parent[cell] != cell:
                parent[cell] = parent[parent[cell]]
                cell = parent[cell]
            return cell

        for driver, users in nets(cells):
            for user in users:
                if is_rigid(cells[driver.cell]["type"], user):
                    parent[root(driver.cell)] = root(user.cell)
        members: dict[int, list[int]] = defaultdict(list)
        for cell in range(len(cells)):
            members[root(cell)].append(cell)
        self.groups: list[CellGroup] = []
        self.group_of = np.full(len(cells), -1)
        for group in members.values():
            if self._can_move([cells[cell] for cell in group]):
                self.group_of[group] = len(self.groups)
                self.groups.append(self._new_group(group))
        source, sink = self.group_of[self.timing.sources], self.group_of[self.timing.sinks]
        between = source != sink
        for ends, name in ((source, "exits"), (sink, "entries")):
            wires = np.flatnonzero(between & (ends >= 0))
            wires = wires[np.argsort(ends[wires], kind="stable")]
            bounds = np.searchsorted(ends[wires], np.arange(len(self.groups) + 1))
            for number, group in enumerate(self.groups):
                setattr(group, name, wires[bounds[number] : bounds[number + 1]])

    def _can_move(self, cells: Sequence[Cell]) -> bool:
        """Tell whether a group may move: it has no fixed cell, no RAM, and more than a constant."""
        fixed = any(
            cell["type"] not in (LUT, FLIP_FLOP)
            or cell["parameters"].get("MODE") in RAM_MODES
            or int(cell["attributes"].get(STRENGTH, "0"), 2) >= USER_STRENGTH
            or not any(cell["connections"].values())
            for cell in cells
        )
        return not fixed and not all(map(is_constant, cells))

    def _new_group(self, cells: list[int]) -> CellGroup:
        base = self.places[cells].min(0)
        offsets = self.places[cells] - base
        tiles: dict[Tile, list[int]] = {}
        for cell, (column, row) in zip(cells, offsets, strict=True):
            masks = tiles.setdefault((int(column), int(row)), [0, 0, -1])
            masks[self.kinds[cell]] |= 1 << int(self.slots[cell])
            if self.kinds[cell]:
                masks[2] = self.tile_keys[cell]
        spots = {
            (*offset, slot)
            for offset, slot in zip(map(tuple, offsets), self.slots[cells], strict=True)
        }
        single = len(spots) == 1 and not any(self.selects[cell] for cell in cells)
        frozen = {offset: (masks[0], masks[1], masks[2]) for offset, masks in tiles.items()}
        return CellGroup(cells, offsets, (int(base[0]), int(base[1])), single, frozen)

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """Return column and row of each cell, and its slot, as `restore` takes them."""
        return self.places.copy(), self.slots.copy()

    def restore(self, state: tuple[np.ndarray, np.ndarray]) -> None:
        """Move all cells to the places of a state."""
        self.places, self.slots = state[0].copy(), state[1].copy()
        for group in self.groups:
            column, row = self.places[group.cells].min(0)
            group.base = int(column), int(row)
        self._occupy()

    def write(self) -> None:
        """Ask nextpnr's placer for all places.

        When nextpnr loads a placed design instead, it does not know yet how the router may permute
        the inputs of a cell: those of carry chains and of distributed RAM end up permuted. Pins
        without a net are written as such, since nextpnr would otherwise not tie them to 0.
        """
        for cell, kind, place, slot in zip(
            self.cells, self.kinds, self.places, self.slots, strict=True
        ):
            attributes = cell["attributes"]
            name = attributes.pop(PLACED, None)
            attributes.pop(STRENGTH, None)
            if slot >= 0:
                site = f"SLICE{'ABCD'[slot // 2]}.{('K', 'FF')[kind]}{slot % 2}"
                name = f"X{place[0]}/Y{place[1]}/{site}"
            if name is not None:
                attributes[FIXED] = name
            if cell["type"] == MULTIPLIER:
                cell["port_directions"] |= dict.fromkeys(CONTROLS, "input")
            pins = cell["connections"]
            pins |= {pin: pins.get(pin) or [OPEN] for pin in cell["port_directions"]}

    def lift(self, group: CellGroup) -> None:
        """Take a group from its places."""
        for cell in group.cells:
            column, row = map(int, self.places[cell])
            slot = int(self.slots[cell])
            kind = self.kinds[cell]
            del self.at[column, row, kind, slot]
            self.taken[kind, column, row] &= ~(1 << slot)
            if not group.single:
                self.held[kind, column, row] &= ~(1 << slot)
            if kind:
                self.flip_flops[column, row] -= 1
                if self.flip_flops[column, row] == 0:
                    self.key[column, row] = -1

    def put(self, group: CellGroup, column: int, row: int, slot: int) -> None:
        """Place a group; `slot` counts only for a single one."""
        group.base = (column, row)
        for cell, offset in zip(group.cells, group.offsets, strict=True):
            place = slot if group.single else int(self.slots[cell])
            self._put(cell, column + int(offset[0]), row + int(offset[1]), place)

    def _put(self, cell: int, column: int, row: int, slot: int) -> None:
        kind = self.kinds[cell]
        self.places[cell] = column, row
        self.slots[cell] = slot
        self.at[column, row, kind, slot] = cell
        self.taken[kind, column, row] |= 1 << slot
        group = self.group_of[cell]
        if group < 0 or not self.groups[group].single:
            self.held[kind, column, row] |= 1 << slot
        if kind:
            self.flip_flops[column, row] += 1
            self.key[column, row] = self.tile_keys[cell]

    def free(self, group: CellGroup, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the tiles in a window where a group may have room.

        Single groups need a free slot; others make single groups give way.

        Parameters
        ----------
        low, high
            The first column and row of the window, and those after its last.

        Returns
        -------
        ndarray
            Columns and rows for the group's base, of shape (tiles, 2).
        """
        limit = np.array(self.logic.shape) - group.size
        low, high = np.maximum(low, 0), np.minimum(high, limit)
        if (low >= high).any():
            return np.empty((0, 2), int)
        free = np.ones(high - low, bool)
        for (column, row), (tables, flip_flops, key) in group.tiles.items():
            part = np.s_[low[0] + column : high[0] + column, low[1] + row : high[1] + row]
            if group.single:
                kinds = [kind for kind, mask in enumerate((tables, flip_flops)) if mask]
                taken = np.bitwise_or.reduce([self.taken[kind][part] for kind in kinds])
                free &= (taken != (1 << SLOTS) - 1) & self.logic[part]
                if flip_flops:
                    free &= (self.key[part] == -1) | (self.key[part] == key)
            else:
                free &= (self.held[0][part] & tables) | (self.held[1][part] & flip_flops) == 0
                free &= self.logic[part]
        return np.argwhere(free) + low

    def fit(self, group: CellGroup, column: int, row: int) -> tuple[int, set[int]] | None:
        """Return the slot for a group in some tile, and the single groups that it displaces.

        A single group displaces no other. Returns None if the place is not legal.
        """
        for slot in range(SLOTS) if group.single else (-1,):
            leaving: set[int] = set()
            spots = {
                (column + x, row + y, self.kinds[cell], slot if group.single else old): cell
                for cell, (x, y), old in zip(
                    group.cells,
                    group.offsets.tolist(),
                    self.slots[group.cells].tolist(),
                    strict=True,
                )
            }
            rivals = (
                rival for spot, cell in spots.items() for rival in self._rivals(cell, spot, spots)
            )
            if all(self._displace(group, rival, leaving) for rival in rivals):
                return slot, leaving
        return None

    def _displace(self, group: CellGroup, rival: int, leaving: set[int]) -> bool:
        """Add the group of a cell to those that leave; tell whether `group` may displace it."""
        other = int(self.group_of[rival])
        leaving.add(other)
        return not group.single and other >= 0 and self.groups[other].single

    def _rivals(
        self,
        cell: int,
        spot: tuple[int, int, int, int],
        spots: Mapping[tuple[int, int, int, int], int],
    ) -> Iterator[int]:
        """Yield the cells that cannot stay where they are if a cell takes a place.

        `spots` are the places of the cells that move with it.
        """
        column, row, kind, slot = spot

        def find(kind: int, slot: int) -> int | None:
            key = column, row, kind, slot
            return spots.get(key, self.at.get(key))

        if (here := self.at.get(spot)) is not None:
            yield here
        beside = find(kind, slot ^ 1)
        across = find(1 - kind, slot)
        if kind == 0:
            if across is not None and self.selects[cell] and self.takes_m[across]:
                yield across
            return
        if beside is not None and self.slice_keys[beside] != self.slice_keys[cell]:
            yield beside
        if across is not None and self.takes_m[cell] and self.selects[across]:
            yield across
        if self.flip_flops[column, row] and self.key[column, row] != self.tile_keys[cell]:
            yield from (
                other
                for n in range(SLOTS)
                if (other := self.at.get((column, row, 1, n))) is not None
            )


def _place(cell: Cell) -> tuple[int, int, int]:
    """Return column, row and slot of a cell; a slot of -1 outside of logic tiles."""
    found = _PLACE.match(cell["attributes"].get(PLACED, ""))
    if found is None:
        return 0, 0, -1
    slot = 2 * "ABCD".index(found[3]) + int(found[4]) if found[3] else -1
    return int(found[1]), int(found[2]), slot


def _keys(cells: Sequence[Cell], pins: Sequence[str], options: Sequence[str]) -> list[int]:
    """Number the cells; those with equal nets and parameters get the same number."""
    numbers: dict[Any, int] = {}
    return [
        numbers.setdefault(
            (
                *(tuple(cell["connections"].get(pin, ())) for pin in pins),
                *(cell["parameters"].get(option) for option in options),
            ),
            len(numbers),
        )
        for cell in cells
    ]

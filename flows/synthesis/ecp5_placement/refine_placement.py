"""A better placement for a design that nextpnr has placed on an ECP5, by its timing.

nextpnr's static placer weighs wires by their timing, but counts the wires inside a carry chain as
long ones. So paths that are truly slow get little weight, and some of their cells end up on the
other side of the chip. Here the cells on slow paths are placed anew, and the others stay:

1. `_pull` finds where the cells would lie if each place had room for all of them. Wires pull, the
   more the slower their paths are, and a weak spring ties each cell to its old place.
2. `_legalise` gives each cell that has moved a free place near there. A carry chain or a wide
   multiplexer moves as a whole, and single cells make way for it.
3. `_polish` moves cells one by one to where the paths through them are shortest.

nextpnr then takes these places, checks them, and routes the design.
"""

import math
from typing import Any

import numpy as np

from .placed_design import CellGroup, PlacedDesign, Tile

ROUNDS = 5
"""Rounds of the three steps. The best placement counts."""

PULLS, SWEEPS = 40, 8
"""Analyses of the timing in `_pull`, and movements of all cells after each."""

STIFFNESS = 0.2
"""Stiffness of the spring that ties a cell to its old place. That of a wire is its weight."""

LIGHTEST, HEAVIEST = -6.0, 2.0
"""Natural logarithms of the weights of wires in `_pull`."""

GAIN = 5e-4
"""By how much the logarithm of a weight grows in one analysis, for each ps above the target."""

POLISHES = 5
"""Passes of `_polish` over the cells in each round."""

SHARPNESS = 250.0
"""A path that is longer by this many ps costs `e` times as much."""

MARGIN = 500.0
"""Cells with more slack than this, in ps, do not move."""

TILE_COST = 5e-4
"""Cost of a wire in `_polish` for each column and row; a path as long as the target costs 1."""

MAKE_WAY = 0.05
"""Cost of a cell that makes way for a group in `_legalise`, in columns and rows of distance."""

AIM = 500.0
"""Margin of the target in ps. It is added to the longest path of the design with all cells at one
point."""

MIN_MOVE = 3.0
"""Columns and rows. Where `_pull` moves a cell by less, the cell stays."""

REACH = 1500.0
"""`_polish` looks for a place between the ends of wires whose paths are as slow as the slowest, or
faster by at most this, in ps."""

CHOICES, MAX_COST_RATIO = 40, 0.98
"""Sites that `_polish` tries for each group; a move must cut the cost below this fraction."""


def refine(module: dict[str, Any]) -> None:
    """Shorten the slow paths of a design by moving cells, in place.

    Parameters
    ----------
    module
        The top module of a placed design, as nextpnr's `--write` writes it for an ECP5. nextpnr's
        placer then gives all cells the places that are found here.
    """
    if not module["cells"]:
        return
    design = PlacedDesign(list(module["cells"].values()))
    if design.groups:
        _refine(design)
    design.write()


def _refine(design: PlacedDesign) -> None:
    at_one_point = np.zeros_like(design.places)
    target = float(design.timing.analyse(at_one_point).paths.max(initial=0)) + AIM
    best, best_cost = design.state(), _cost(design, target)
    for _ in range(ROUNDS):
        found = _legalise(design, _pull(design, target))
        if not found:
            design.restore(best)
        for _ in range(POLISHES):
            _polish(design, target)
        if (cost := _cost(design, target)) < best_cost:
            best, best_cost = design.state(), cost
        if not found:
            break
    design.restore(best)


def _cost(design: PlacedDesign, target: float) -> float:
    """Return a measure of all wires by their paths, in which the longest ones decide."""
    return float(_penalty(design.timing.analyse(design.places).paths - target).sum())


def _penalty(excess: np.ndarray) -> np.ndarray:
    """Return what paths cost that are longer than the target by some ps."""
    return np.exp(np.clip(excess / SHARPNESS, -40.0, 40.0))


def _pull(design: PlacedDesign, target: float) -> dict[int, np.ndarray]:
    """Return, by the number of each group that moves far enough, where its base would lie best."""
    timing, groups = design.timing, design.groups
    base = np.array([group.base for group in groups], float)
    offsets = np.zeros((len(design.places), 2))
    for group in groups:
        offsets[group.cells] = group.offsets
    source, sink = design.group_of[timing.sources], design.group_of[timing.sinks]
    wires = np.flatnonzero((source != sink) & ((source >= 0) | (sink >= 0)))
    ends = [
        (side[wires], here[wires], there[wires])
        for side, here, there in (
            (source, timing.sources, timing.sinks),
            (sink, timing.sinks, timing.sources),
        )
    ]
    movable = np.flatnonzero(design.group_of >= 0)
    owner = design.group_of[movable]
    places = design.places.astype(float)
    spots = base.copy()
    weights = np.full(len(source), LIGHTEST)
    for _ in range(PULLS):
        excess = timing.analyse(places).paths - target
        weights = np.clip(weights + GAIN * np.maximum(excess, -1e6), LIGHTEST, HEAVIEST)
        force = np.exp(weights[wires])
        total = np.full(len(groups), STIFFNESS)
        for side, _, _ in ends:
            total += np.bincount(side[side >= 0], force[side >= 0], len(groups))
        for _ in range(SWEEPS):
            moment = STIFFNESS * base
            for side, here, there in ends:
                own = side >= 0
                wanted = places[there[own]] - offsets[here[own]]
                for axis in range(2):
                    moment[:, axis] += np.bincount(
                        side[own], force[own] * wanted[:, axis], len(groups)
                    )
            spots = (spots + moment / total[:, None]) / 2
            places[movable] = spots[owner] + offsets[movable]
    moved = np.flatnonzero(np.abs(spots - base).sum(1) > MIN_MOVE)
    return {int(group): spots[group] for group in moved}


def _legalise(design: PlacedDesign, spots: dict[int, np.ndarray]) -> bool:
    """Give groups legal places near some spots; return False if one finds none.

    Chains and multiplexers come first; they need several slots at once.
    """
    groups = design.groups
    for group in spots:
        design.lift(groups[group])
    queue = sorted(
        spots, key=lambda group: (groups[group].single, -len(groups[group].cells), group)
    )
    spots = dict(spots)
    for number in queue:
        group = groups[number]
        found = _nearest(design, group, spots[number])
        if found is None:
            return False
        (column, row), slot, leaving = found
        for other in sorted(leaving):
            design.lift(groups[other])
            spots[other] = np.array(groups[other].base, float)
            queue.append(other)
        design.put(group, column, row, slot)
    return True


def _nearest(
    design: PlacedDesign, group: CellGroup, spot: np.ndarray
) -> tuple[Tile, int, set[int]] | None:
    """Return the nearest legal place of a group: tile, slot, and groups that must make way."""
    for reach in (4, 10, 25, max(design.logic.shape)):
        tiles = design.free(group, spot.astype(int) - reach, spot.astype(int) + reach + 1)
        distance = np.abs(tiles - spot).sum(1)
        best, best_cost = None, math.inf
        for tile in np.argsort(distance, kind="stable"):
            if distance[tile] >= best_cost:
                break
            column, row = map(int, tiles[tile])
            if (fit := design.fit(group, column, row)) is None:
                continue
            cost = distance[tile] + MAKE_WAY * len(fit[1])
            if cost < best_cost:
                best, best_cost = ((column, row), *fit), cost
        if best is not None:
            return best
    return None


def _polish(design: PlacedDesign, target: float) -> None:
    """Move each group on a slow path to the place where its wires cost least, the slowest first."""
    timing = design.timing
    delays, paths = timing.analyse(design.places)
    excess = paths - target
    slowest = [
        max(excess[group.entries].max(initial=-np.inf), excess[group.exits].max(initial=-np.inf))
        for group in design.groups
    ]
    order = np.argsort(-np.array(slowest), kind="stable")
    for number in order[: np.count_nonzero(np.array(slowest) > -MARGIN)]:
        group = design.groups[number]
        entry, exit_ = group.entries, group.exits
        wires = np.concatenate([entry, exit_])
        pins = np.concatenate([timing.sources[entry], timing.sinks[exit_]])
        own = np.concatenate([timing.sinks[entry], timing.sources[exit_]])
        base = np.array(group.base)
        # Where the base would lie if the group's end of a wire lay upon the other end.
        over = design.places[pins] - (design.places[own] - base)
        pulling = over[excess[wires] > max(slowest[number] - REACH, -MARGIN)]
        low = np.minimum(pulling.min(0), base) - 1 if len(pulling) else base - 1
        high = np.maximum(pulling.max(0), base) + 2 if len(pulling) else base + 2
        tiles = np.concatenate([base[None], design.free(group, low, high)])
        there = timing.between(over[None], tiles[:, None], wires)
        cost = _penalty(excess[wires] + there - delays[wires]).sum(1)
        cost += TILE_COST * np.abs(over[None] - tiles[:, None]).sum((1, 2))
        for tile in np.argsort(cost, kind="stable")[:CHOICES]:
            if cost[tile] >= MAX_COST_RATIO * cost[0]:
                break
            column, row = map(int, tiles[tile])
            fit = design.fit(group, column, row)
            if fit is None or fit[1]:
                continue
            design.lift(group)
            design.put(group, column, row, fit[0])
            excess[wires] += there[tile] - delays[wires]
            delays[wires] = there[tile]
            break

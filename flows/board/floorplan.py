"""A picture of the chip: a square for each tile that a placed design uses, coloured by unit."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...quoting import html_text
from ..area.features import unit_of

Tile = tuple[str, int, int, int]
"""Cells of a unit in a tile: unit, column, row, number."""

PLACE = re.compile(r"X(\d+)/?Y(\d+)")
"""Column and row in the name of a place."""

CORE = "system.core."

SYSTEM, PINS, UNNAMED = "memory and bridge", "clock and pins", "without a name"
"""Cells outside of the core, and those that Yosys names after nothing in the design."""

COLOURS: Mapping[str, str] = {
    "array": "#d1495b",
    "gemm": "#edae49",
    "vector lanes": "#00798c",
    "vector": "#66a182",
    "act": "#8d6a9f",
    "load": "#2e4057",
    "store": "#5b8bd0",
    "instructions": "#b56b45",
    "port": "#d8a7b1",
    "control": "#7a9e2f",
    SYSTEM: "#3d3d3d",
    PINS: "#e05fbf",
    UNNAMED: "#b8b8b8",
}
"""Colours of units; a tile has that of the unit with most cells in it."""

TILE, LEGEND, LINE, MARGIN = 6, 190, 16, 12
"""Pixels: of a tile, of the legend's width and lines, around all."""


def unit_of_cell(name: str) -> str:
    """Return the unit of a placed cell by its name."""
    if name.startswith("$"):
        return UNNAMED
    if name.startswith(CORE):
        return unit_of(name.removeprefix(CORE).split("."))
    return SYSTEM if name.startswith("system.") else PINS


def tiles_of(placed: str, top: str) -> list[Tile]:
    """Return the tiles that a design uses.

    Parameters
    ----------
    placed
        The design as nextpnr's `--write` gives it.
    top
        Name of the top module.
    """
    found = Counter[tuple[str, int, int]]()
    cells: Mapping[str, Any] = json.loads(placed)["modules"][top]["cells"]
    for name, cell in cells.items():
        place = PLACE.match(cell["attributes"].get("NEXTPNR_BEL", ""))
        if place:
            found[unit_of_cell(name), int(place[1]), int(place[2])] += 1
    return [(*tile, count) for tile, count in sorted(found.items())]


def draw(tiles: Iterable[Tile], caption: str) -> str:
    """Return the picture as SVG."""
    cells: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    totals = Counter[str]()
    for unit, column, row, count in tiles:
        cells[row, column][unit] += count
        totals[unit] += count
    columns = 1 + max((column for _, column in cells), default=0)
    rows = 1 + max((row for row, _ in cells), default=0)
    top = 2 * MARGIN + LINE
    width = 3 * MARGIN + columns * TILE + LEGEND
    height = top + MARGIN + max(rows * TILE, LINE * len(totals))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + LINE - 4}">{html_text(caption)}</text>',
        f'<rect x="{MARGIN}" y="{top}" width="{columns * TILE}" height="{rows * TILE}" '
        'fill="#f3f3f3"/>',
    ]
    for row, column, length, unit in _runs(cells):
        x, y = MARGIN + column * TILE, top + row * TILE
        lines.append(
            f'<rect x="{x}" y="{y}" width="{length * TILE - 1}" height="{TILE - 1}" '
            f'fill="{COLOURS[unit]}"/>'
        )
    x = 2 * MARGIN + columns * TILE
    for index, unit in enumerate(unit for unit in COLOURS if totals[unit]):
        y = top + LINE * index
        lines += [
            f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[unit]}"/>',
            f'<text x="{x + MARGIN + 4}" y="{y + 10}">{unit}: {totals[unit]:,}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _runs(cells: Mapping[tuple[int, int], Counter[str]]) -> Iterator[tuple[int, int, int, str]]:
    """Yield runs of neighbouring tiles of one unit: row, first column, length, unit."""
    row = column = length = -1
    unit = ""
    for (next_row, next_column), units in sorted(cells.items()):
        largest = min(units, key=lambda name: (-units[name], name))
        if (next_row, next_column, largest) == (row, column + length, unit):
            length += 1
            continue
        if unit:
            yield row, column, length, unit
        row, column, length, unit = next_row, next_column, 1, largest
    if unit:
        yield row, column, length, unit

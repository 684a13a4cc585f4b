"""A small design leaves rows of its chip empty; a large one takes them."""

import pytest

from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.free_rows import empty_rows, leave_empty

CHIP = DEVICES["ecp5-85"]


def left_empty(luts: int, flip_flops: int) -> list[str]:
    cells: dict[str, dict] = {f"lut_{n}": {"type": "LUT4"} for n in range(luts)}
    cells |= {f"ff_{n}": {"type": "TRELLIS_FF"} for n in range(flip_flops)}
    module = {"cells": dict(cells)}
    leave_empty(module, CHIP.empty_tiles, CHIP.capacity["ff"])
    assert cells.items() <= module["cells"].items()
    return [cell["attributes"]["BEL"] for cell in module["cells"].values() if "attributes" in cell]


def test_rows_with_memories_or_multipliers_are_not_left_empty():
    assert empty_rows(22, [13], range(4, 6)) == (
        "X4/Y9",
        "X5/Y9",
        "X4/Y17",
        "X5/Y17",
        "X4/Y21",
        "X5/Y21",
    )


def test_every_place_of_a_tile_is_taken_once():
    sites = left_empty(10, 10)
    assert len(sites) == len(set(sites)) == 16 * len(CHIP.empty_tiles)
    assert {site.split("/")[2] for site in sites} == {
        f"SLICE{letter}.{kind}{index}"
        for letter in "ABCD"
        for kind in ("K", "FF")
        for index in (0, 1)
    }


@pytest.mark.parametrize(("luts", "flip_flops"), [(40_000, 0), (0, 40_000)])
def test_a_large_design_has_the_whole_chip(luts, flip_flops):
    assert not left_empty(luts, flip_flops)

"""Multipliers get distinct sites of their chip, in the order of the design."""

import pytest

from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.multiplier_sites import CELL, assign_multipliers


def netlist(array: int, lanes: int) -> dict:
    names = [f"core.vector.lane_{n}.product.cell" for n in range(lanes)]
    names += [f"core.gemm.array.pair_{n // 4}.product_{n % 4}.cell" for n in range(array)]
    cells = {name: {"type": CELL} for name in names}
    return {"cells": {**cells, "core.table": {"type": "LUT4"}}}


def sites_of(module: dict) -> dict[str, str]:
    return {
        name: cell["attributes"]["BEL"]
        for name, cell in module["cells"].items()
        if "attributes" in cell
    }


@pytest.mark.parametrize(("chip", "count"), [("ecp5-25", 28), ("ecp5-45", 72), ("ecp5-85", 156)])
def test_a_chip_has_as_many_sites_as_multipliers(chip, count):
    sites = DEVICES[chip].multiplier_sites
    assert len(sites) == len(set(sites)) == count == DEVICES[chip].capacity["multipliers"]


def test_the_lanes_lie_between_the_halves_of_the_array():
    module = netlist(array=48, lanes=12)
    assign_multipliers(module, DEVICES["ecp5-45"].multiplier_sites)
    by_site = {site: name for name, site in sites_of(module).items()}
    order = [by_site[site] for site in DEVICES["ecp5-45"].multiplier_sites if site in by_site]
    first, lanes, second = order[:24], order[24:36], order[36:]
    assert [name.split(".")[3] for name in first] == [f"pair_{n // 4}" for n in range(24)]
    assert [name.split(".")[2] for name in lanes] == [f"lane_{n}" for n in range(12)]
    assert [name.split(".")[3] for name in second] == [f"pair_{n // 4}" for n in range(24, 48)]
    assert "core.table" not in sites_of(module)


def test_a_small_design_takes_the_sites_in_the_middle():
    module = netlist(array=8, lanes=2)
    assign_multipliers(module, DEVICES["ecp5-25"].multiplier_sites)
    assert sorted(sites_of(module).values()) == sorted(DEVICES["ecp5-25"].multiplier_sites[9:19])


def test_a_design_with_too_many_multipliers_is_left_alone():
    module = netlist(array=24, lanes=8)
    assign_multipliers(module, DEVICES["ecp5-25"].multiplier_sites)
    assert not sites_of(module)

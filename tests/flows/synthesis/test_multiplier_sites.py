"""Multipliers get distinct sites of their chip, in the order of the design."""

import pytest

from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.multiplier_sites import CELL, assign_multipliers


def netlist(array: int, lanes: int) -> dict:
    names = [f"core.vector.lane_{n}.product.cell" for n in range(lanes)]
    names += [f"core.gemm.array.pair_{n // 4}.product_{n % 4}.cell" for n in range(array)]
    pins = {"A0": ["0"], "CE0": ["1"], "RST0": ["0"], "SIGNEDA": [7], "SOURCEA": ["0"]}
    cells: dict = {name: {"type": CELL, "connections": dict(pins)} for name in names}
    cells["core.table"] = {"type": "LUT4", "connections": {"Z": [7]}}
    return {"cells": cells, "ports": {"unused": {"bits": [8]}}}


def sites_of(module: dict) -> dict[str, str]:
    return {
        name: cell["attributes"]["BEL"]
        for name, cell in module["cells"].items()
        if "BEL" in cell.get("attributes", {})
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
    assert sorted(sites_of(module).values()) == sorted(DEVICES["ecp5-25"].multiplier_sites[8:18])


def test_each_block_of_multipliers_has_its_own_constants():
    module = netlist(array=8, lanes=2)
    assign_multipliers(module, DEVICES["ecp5-25"].multiplier_sites)
    cells, sites = module["cells"], DEVICES["ecp5-25"].multiplier_sites
    tables = {
        cell["connections"]["Z"][0]: cell["parameters"]["INIT"]
        for name, cell in cells.items()
        if "constant" in name
    }
    assert len(tables) == 2 * 3, "the sites 9 to 18 are in three blocks"
    assert not {7, 8} & tables.keys()
    for name, site in sites_of(module).items():
        pins = cells[name]["connections"]
        assert (pins["A0"], pins["SIGNEDA"]) == (["0"], [7])
        assert pins["RST0"] == pins["SOURCEA"]
        assert (tables[pins["RST0"][0]], tables[pins["CE0"][0]]) == ("0" * 16, "1" * 16)
        first = 4 * (sites.index(site) // 4)
        block = [
            cells[other]["connections"]
            for other, at in sites_of(module).items()
            if at in sites[first : first + 4]
        ]
        assert {str(other["RST0"]) for other in block} == {str(pins["RST0"])}


def test_a_design_with_too_many_multipliers_is_left_alone():
    module = netlist(array=24, lanes=8)
    assign_multipliers(module, DEVICES["ecp5-25"].multiplier_sites)
    assert not sites_of(module)

"""Place and route with the real tools: the second run of nextpnr keeps what the cells compute."""

import json
import re

import pytest

from tilewright.flows.synthesis.devices import find_device
from tilewright.flows.synthesis.netlist import TOP
from tilewright.flows.synthesis.place_and_route import route_design
from tilewright.sim.gate.mapping import map_design
from tilewright.sim.gate.rtlil import keep_rtlil

from ...hardware.sums import Sums

pytestmark = pytest.mark.slow

PIP = re.compile(r"X(\d+)/Y(\d+)/([ABCD])([0-7])_SLICE;[^;]*_([ABCD])[0-7]->")
"""An input of a table, and the input that the router has taken for it."""


def inputs(placed: str) -> dict[str, list[tuple[str, str]]]:
    """Return, by the mode of the table, each of its inputs with the one that stands in for it."""
    top = json.loads(placed)["modules"]["top"]
    modes = {
        cell["attributes"]["NEXTPNR_BEL"]: cell["parameters"].get("MODE", "LOGIC")
        for cell in top["cells"].values()
        if cell["type"] == "TRELLIS_COMB"
    }
    found: dict[str, list[tuple[str, str]]] = {}
    for net in top["netnames"].values():
        for column, row, wanted, slot, taken in PIP.findall(net["attributes"].get("ROUTING", "")):
            place = f"X{column}/Y{row}/SLICE{'ABCD'[int(slot) // 2]}.K{int(slot) % 2}"
            found.setdefault(modes.get(place, "LOGIC"), []).append((wanted, taken))
    return found


def test_inputs_are_permuted_only_where_that_is_harmless(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    device = find_device("ecp5-25")
    rtl = keep_rtlil(["sums"], device.family.technology, Sums, TOP)
    mapped = map_design(rtl, device.family.mapping, TOP)
    routed = route_design(mapped, device, 1, 50, summarise=inputs)
    assert routed.placement.clock_mhz > 50
    assert len(routed.summary["CCU2"]) > 100
    halves = {"A": "AB", "B": "AB", "C": "CD", "D": "CD"}
    assert all(taken in halves[wanted] for wanted, taken in routed.summary["CCU2"])
    assert len(routed.summary["DPRAM"]) >= 32
    assert all(wanted == taken for wanted, taken in routed.summary["DPRAM"])
    assert any(wanted != taken for wanted, taken in routed.summary["LOGIC"])

"""The table of presets for chips in `docs/guide/synthesis.md`."""

import re
from pathlib import Path

from tilewright.flows.area.counts import count_blocks
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.isa.configuration import PRESETS

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "synthesis.md"
CHIPS = {
    "ecp5-25": "ecp5-25",
    "transformer-25": "ecp5-25",
    "ecp5-45": "ecp5-45",
    "ecp5-85": "ecp5-85",
    "transformer-85": "ecp5-85",
    "gowin20": "gw2ar-18",
    "gatemate": "ccgm1a1",
    "zynq7020": "xc7z020",
    "ultra96": "xczu3eg",
}
"""The device of each preset."""


def test_the_table_has_the_resources_of_each_preset():
    rows = re.findall(
        r"^\| `(\w+-?\w+)` \| [^|]+ \| (\d+)x(\d+) \| (\d+) \| (\d+ of \d+|-)[^|]* "
        r"\| (\d+ of \d+) \| (\d+) bits",
        PAGE.read_text(),
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == list(CHIPS)
    for name, *found in rows:
        machine, device = PRESETS[name], DEVICES[CHIPS[name]]
        capacity = device.capacity
        counts = count_blocks(machine, device.family.technology, capacity.get("multipliers"))
        multipliers = f"{counts.multipliers} of {capacity.get('multipliers')}"
        assert found == [
            str(machine.lanes_in),
            str(machine.lanes_out),
            str(machine.vector_lanes),
            multipliers if "multipliers" in capacity else "-",
            f"{counts.ram} of {capacity['ram']}",
            str(machine.bus_bits),
        ]
        assert not device.short({"multipliers": counts.multipliers, "ram": counts.ram or 0})

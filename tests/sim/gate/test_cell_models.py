"""The technologies that `gate` simulates are those that the flows place."""

from tilewright.flows.synthesis.devices import DEVICES
from tilewright.sim.gate.cell_models import MODELS


def test_a_netlist_shares_the_multipliers_of_the_smallest_chip():
    for name, cells in MODELS.items():
        chips = [chip for chip in DEVICES.values() if chip.family.technology.value == name]
        assert {chip.family.mapping for chip in chips} == {cells.mapping}
        if cells.multipliers is not None:
            assert cells.multipliers == min(chip.capacity["multipliers"] for chip in chips)

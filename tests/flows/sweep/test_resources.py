"""Counts by arithmetic against the cells of the elaborated core."""

from collections import Counter

import pytest
from amaranth.hdl import Fragment, Instance

from tilewright.flows.sweep.resources import resources_of
from tilewright.flows.synthesis.devices import find_device
from tilewright.flows.synthesis.flow import synthesise
from tilewright.hardware.blocks import LEAST_LANE_BLOCKS, MOST_LANE_BLOCKS
from tilewright.hardware.core import Core
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS


def cells(fragment: Fragment) -> Counter[str]:
    """Instances of vendor cells by type."""
    found = Counter[str]()
    if isinstance(fragment, Instance):
        found[fragment.type] += 1
    for inner, *_ in fragment.subfragments:
        found += cells(inner)
    return found


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("tiny", {}),
        ("4x4", {}),
        ("4x4", {"act_depth": 8192, "lut_tables": 16, "depthwise_taps": 0}),
        slow("8x8", {"depthwise_taps": 8, "acc_banks": 4, "param_depth": 16}),
        slow("16x8", {}),
        slow("4x4", {"lanes_out": 16, "vector_lanes": 2, "act_depth": 16384, "wgt_depth": 32}),
        ("4x4", {"lanes_in": 2, "acc_depth": 16, "acc_banks": 16}),
    ],
)
def test_counts_are_those_of_the_instantiated_cells(preset, changes):
    configuration = PRESETS[preset].replace(**changes)
    counted = resources_of(configuration)
    core = Core(configuration, counted["multipliers"])
    found = cells(Fragment.get(core, Technology.ECP5))
    assert counted["multipliers"] == found["MULT18X18D"]
    assert counted["ram"] == found["DP16KD"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"queue_depth": 32}])
def test_counts_are_those_of_synthesis(changes):
    configuration = PRESETS["tiny"].replace(**changes)
    found = synthesise(configuration, find_device("ecp5-25"), place=False).resources
    counted = resources_of(configuration)
    more = (MOST_LANE_BLOCKS - LEAST_LANE_BLOCKS) * configuration.vector_lanes
    assert counted["multipliers"] + more == found["multipliers"]
    assert counted["ram"] == found["ram"]


def test_there_is_no_count_where_synthesis_decides():
    assert resources_of(PRESETS["tiny"].replace(queue_depth=64))["ram"] is None
    assert resources_of(PRESETS["4x4"].replace(act_depth=32768))["ram"] is None

"""Counts by arithmetic against the cells of elaborated cores, and of synthesised ones."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from amaranth.hdl import Fragment, Instance

from tilewright.flows.area.counts import BLOCKS, count_blocks, logic_ram_bits, memory_bits
from tilewright.flows.area.features import unit_of
from tilewright.flows.area.model import estimate
from tilewright.flows.area.rows import AreaRow, read_rows
from tilewright.flows.synthesis.devices import (
    DEVICES,
    LOGIC_RAM,
    Family,
    FpgaDevice,
    find_device,
)
from tilewright.flows.synthesis.flow import core_rtlil, synthesise
from tilewright.flows.synthesis.netlist import SCOPE, TOP, read_netlist
from tilewright.hardware.core import Core
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.sim.gate.kept import read_kept
from tilewright.sim.gate.mapping import map_design


def family_of(technology: Technology) -> Family:
    return next(d.family for d in DEVICES.values() if d.family.technology is technology)


def instances(fragment: Fragment) -> Counter[str]:
    """Instances of vendor cells by type."""
    found = Counter[str]()
    if isinstance(fragment, Instance):
        found[fragment.type] += 1
    for inner, *_ in fragment.subfragments:
        found += instances(inner)
    return found


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("preset", "changes", "technology"),
    [
        ("tiny", {}, Technology.ECP5),
        ("4x4", {}, Technology.ECP5),
        ("4x4", {"act_depth": 8192, "lut_tables": 16, "depthwise_taps": 0}, Technology.ECP5),
        slow("8x8", {"depthwise_taps": 8, "acc_banks": 4, "param_depth": 16}, Technology.ECP5),
        slow("16x8", {}, Technology.ECP5),
        slow(
            "4x4",
            {"lanes_out": 16, "vector_lanes": 2, "act_depth": 16384, "wgt_depth": 32},
            Technology.ECP5,
        ),
        ("4x4", {"lanes_in": 2, "acc_depth": 16, "acc_banks": 16}, Technology.ECP5),
        ("tiny", {}, Technology.GOWIN),
        slow("8x8", {"acc_depth": 16}, Technology.GOWIN),
        ("tiny", {}, Technology.XILINX7),
        slow("8x8", {"acc_depth": 16}, Technology.XILINX7),
        ("tiny", {}, Technology.ULTRASCALE),
        ("tiny", {"row_statistics": "all", "lut_tables": 2}, Technology.ECP5),
        ("tiny", {"row_statistics": "all", "lut_tables": 2}, Technology.GOWIN),
        ("tiny", {"row_statistics": "all", "lut_tables": 2}, Technology.XILINX7),
    ],
)
def test_counts_are_those_of_the_instantiated_cells(preset, changes, technology):
    configuration = PRESETS[preset].replace(**changes)
    counted = count_blocks(configuration, technology)
    shared = counted.multipliers if technology is Technology.ECP5 else None
    found = Counter[str]()
    for cell, count in instances(Fragment.get(Core(configuration, shared), technology)).items():
        for name, each in family_of(technology).cells.get(cell, {}).items():
            found[name] += int(count * each)
    assert counted.multipliers == found["multipliers"]
    # Synthesis makes one more of the table of reciprocals.
    if configuration.row_statistics == "none":
        assert counted.ram == found["ram"]
    elif technology is Technology.ECP5:
        assert counted.ram == found["ram"] + 1


def rows(*, of_asic: bool):
    return pytest.mark.parametrize(
        "row",
        [row for row in read_rows() if (row.technology is Technology.ASIC) == of_asic],
        ids=lambda row: f"{row.configuration}-{row.device}",
    )


@rows(of_asic=True)
def test_memory_bits_are_those_of_the_measured_netlists(row: AreaRow):
    counted = Counter[str]()
    for instance, bits in memory_bits(row.machine).items():
        counted[unit_of(instance.split("."))] += bits
    measured = {unit: used.get("memory_bits", 0) for unit, used in row.units.items()}
    assert +counted == +Counter(measured)


@rows(of_asic=False)
def test_counts_are_those_of_the_measured_netlists(row: AreaRow):
    counted = count_blocks(row.machine, row.technology, row.multipliers)
    assert counted.multipliers == row.resources["multipliers"]
    assert counted.ram == row.resources.get("ram", 0)
    if row.technology is Technology.ECP5:
        assert logic_ram_bits(row.machine) == row.logic_ram_bits


def test_the_flag_of_transposed_runs_waits_in_the_queue_of_bursts():
    """Measured by synthesis: bits of `transformer-85`, and of the same without the option."""
    machine = PRESETS["transformer-85"]
    assert logic_ram_bits(machine) == 7936
    assert logic_ram_bits(machine.replace(transposed_weights="none")) == 7808


def synthesised_blocks(machine: Configuration, device: FpgaDevice, until: str) -> Counter[str]:
    """Blocks before the step of Yosys that maps logic; it and later ones change none of them."""
    mapping = device.family.mapping
    commands = f"{mapping.synthesis} -run :{until}"
    mapping = replace(mapping, synthesis=commands, finish="blackbox =A:whitebox; ", rewrite=None)
    mapped = map_design(core_rtlil(machine, device), mapping, TOP)
    return read_netlist(read_kept(mapped), TOP, device.family).total


@pytest.mark.slow
def test_counts_are_those_of_synthesis():
    machine, device = PRESETS["tiny"].replace(queue_depth=32), find_device("ecp5-25")
    found = synthesised_blocks(machine, device, "map_luts")
    counted = count_blocks(machine, multipliers=device.capacity["multipliers"])
    assert counted.multipliers == found["multipliers"]
    assert counted.ram == found["ram"]
    assert logic_ram_bits(machine) == found[LOGIC_RAM]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"bus_bits": 64, "counters": "none"}], ids=str)
def test_a_gatemate_has_block_rams_for_all_memories(changes):
    machine = PRESETS["tiny"].replace(**changes)
    found = synthesised_blocks(machine, find_device("ccgm1a1"), "map_ffram")
    assert count_blocks(machine, Technology.GATEMATE).ram == found["ram"]


@pytest.mark.slow
def test_gates_and_memory_bits_are_those_of_synthesis():
    """A machine that is none of the rows."""
    machine = PRESETS["tiny"].replace(queue_depth=4, acc_depth=64, extent_bits=10, tile_loops=4)
    assert machine.parameters() not in [row.parameters for row in read_rows()]
    device = find_device("asic")
    found = synthesise(machine, device)
    assert found.placements == ()
    bits = {unit: used["memory_bits"] for unit, used in found.netlist.units().items()}
    counted = Counter[str]()
    for instance, each in memory_bits(machine).items():
        counted[instance.split(".")[0]] += each
    assert +counted == +Counter(bits)
    told = estimate(machine, Technology.ASIC).total
    for name in ("gates", "ff"):
        assert told[name] == pytest.approx(found.resources[name], rel=0.15)
    mapped = json.loads(
        read_kept(map_design(core_rtlil(machine, device), device.family.mapping, TOP))
    )
    kinds = {cell["type"] for cell in mapped["modules"][TOP]["cells"].values()}
    assert kinds - {SCOPE} <= device.family.cells.keys()


def test_there_is_no_count_where_nobody_knows_what_synthesis_does():
    for changes in {"queue_depth": 64}, {"act_depth": 32768}:
        machine = PRESETS["tiny"].replace(**changes)
        assert count_blocks(machine, Technology.GOWIN).ram is None
        assert count_blocks(machine).ram is not None


def test_lanes_take_multipliers_that_the_array_leaves():
    counts = [count_blocks(PRESETS["4x4"], multipliers=on_chip) for on_chip in (None, 24, 72)]
    assert [count.multipliers for count in counts] == [20, 24, 28]
    others = {Technology.ICE40, Technology.CYCLONE5, Technology.ASIC}
    assert set(BLOCKS) == {d.family.technology for d in DEVICES.values()} - others

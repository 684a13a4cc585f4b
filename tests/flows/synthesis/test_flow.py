"""From a configuration to figures: capacity, tools, and one small machine on one small chip."""

import importlib
from dataclasses import replace

import pytest

from tilewright.errors import HardwareError, UsageError
from tilewright.flows.synthesis import flow, place_and_route
from tilewright.flows.synthesis.devices import DEVICES, LOGIC_RAM, RESOURCES, find_device
from tilewright.flows.synthesis.flow import Synthesis, require_capacity
from tilewright.flows.synthesis.netlist import PINS, Netlist
from tilewright.flows.synthesis.place_and_route import RoutedDesign
from tilewright.isa.configuration import PRESETS


def figures(configuration: str, device: str, clocks: tuple[float, ...] = (), **packed: int):
    placements = tuple(RoutedDesign(seed, mhz, ()) for seed, mhz in enumerate(clocks, 1))
    machine, chip = PRESETS[configuration], DEVICES[device]
    return Synthesis(machine, chip, "0" * 12, Netlist(()), packed, 100.0, placements, {})


def test_every_device_has_figures_and_arguments():
    for name, device in DEVICES.items():
        assert find_device(name.upper()) is device
        assert set(device.capacity) <= set(RESOURCES)
        assert bool(device.family.placer) == bool(device.arguments)
        counted = {resource for cell in device.family.cells.values() for resource in cell}
        assert counted - {LOGIC_RAM} == set(device.family.resources)
        assert set(device.capacity) == (set() if name == "asic" else set(device.family.resources))


def test_registers_at_the_ports_are_not_counted():
    """A logic cell of an iCE40 may hold a flip-flop alone."""
    cells = ((PINS,), {"ff": 2}), ((PINS,), {"lut": 1}), (("gemm",), {"lut": 1})
    for device, luts in (("ecp5-25", 4), ("up5k", 3)):
        found = replace(figures("tiny", device, lut=5, ff=9), netlist=Netlist(cells))
        assert found.resources == {"lut": luts, "ff": 7}


def test_an_unknown_device():
    with pytest.raises(UsageError, match="`--chip ecp5`: expected one of ecp5-25, ecp5-45, "):
        find_device("ecp5")


def test_a_design_that_fits_is_placed():
    require_capacity(figures("4x4", "ecp5-25", lut=24_288, multipliers=28))


def test_an_asic_has_no_limit():
    require_capacity(figures("32x32", "asic", gates=100_000_000, memory_bits=1 << 30))


def test_a_design_that_is_too_large_says_what_to_lower():
    with pytest.raises(HardwareError) as problem:
        require_capacity(figures("8x8", "ecp5-45", lut=19_000, ram=120, multipliers=120))
    assert str(problem.value) == (
        "configuration `8x8` on `ecp5-45`: needs 120 RAM, the device has 108; lower `act_depth`, "
        "`wgt_depth` or `acc_depth`, or the number of their banks, or choose `ecp5-85`; needs 120 "
        "multipliers, the device has 72; lower `vector_lanes`, then `lanes_in` or `lanes_out`, or "
        "choose `ecp5-85`"
    )


def test_the_median_has_a_seed():
    found = figures("tiny", "ecp5-25", (90.0, 110.0, 100.0))
    assert found.median.seed == 3
    clock = found.to_json()["clock"]
    assert (clock["least_mhz"], clock["median_mhz"], clock["greatest_mhz"]) == (90.0, 100.0, 110.0)
    assert figures("tiny", "ecp5-25", (90.0, 110.0)).median.seed == 1


def test_the_flow_has_a_hash_of_its_code_and_arguments(monkeypatch, tmp_path):
    """Comments and docstrings of its passes do not matter, since they change no figure."""
    device = find_device("ecp5-25")
    monkeypatch.syspath_prepend(tmp_path)
    code = "def assign_multipliers(module):\n    {}\n    return {}\n"
    hashes = []
    for name, line, result in (
        ("first", "pass  # nothing", 1),
        ("same", '"""Assign."""; pass', 1),
        ("other", "pass", 2),
    ):
        (tmp_path / f"sites_{name}.py").write_text(code.format(line, result))
        module = importlib.import_module(f"sites_{name}")
        monkeypatch.setattr(place_and_route, "multiplier_sites", module)
        hashes.append(flow.flow_hash(device))
    assert hashes[0] == hashes[1] != hashes[2]
    slower = replace(device, arguments=(*device.arguments, "--placer", "heap"))
    assert flow.flow_hash(slower) != flow.flow_hash(device)
    asic = find_device("asic")
    assert flow.flow_hash(asic) not in hashes

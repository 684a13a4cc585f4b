"""Cells of a netlist belong to units by their names, and a critical path is told in names."""

import json

import pytest

from tilewright.flows.synthesis.critical_path import compress, critical_path, shown_name
from tilewright.flows.synthesis.devices import DEVICES, LOGIC_RAM
from tilewright.flows.synthesis.netlist import PINS, TOP_LEVEL, read_netlist, split_name

ECP5 = DEVICES["ecp5-25"].family
SCOPES = "core", "core.gemm", "core.gemm.array", "core.act"
CELLS = {
    "core.gemm.array.sum_TRELLIS_FF_Q_3": "TRELLIS_FF",
    "core.gemm.array.sum_TRELLIS_FF_Q_3_DI_LUT4_Z": "LUT4",
    "core.gemm.step_CCU2C_S0": "CCU2C",
    "core.act.ram.0.2": "TRELLIS_DPR16X4",
    "core.act.ram.1.0": "DP16KD",
    "core.commands__payload.length_TRELLIS_FF_Q": "TRELLIS_FF",
    "$abc$12$lut$34": "LUT4",
    "before_TRELLIS_FF_Q_17": "TRELLIS_FF",
    "core.gemm.step_PFUMX_Z": "PFUMX",
}


def netlist():
    cells = {name: {"type": "$scopeinfo"} for name in SCOPES}
    cells |= {name: {"type": kind} for name, kind in CELLS.items()}
    return read_netlist(json.dumps({"modules": {"top": {"cells": cells}}}), "top", ECP5)


def test_cells_are_counted_by_unit():
    assert netlist().units() == {
        "act": {"lut": 4, "ram": 1, LOGIC_RAM: 64},
        "gemm": {"lut": 3, "ff": 1},
        TOP_LEVEL: {"lut": 1, "ff": 1},
        PINS: {"ff": 1},
    }
    assert netlist().units(2)["gemm.array"] == {"lut": 1, "ff": 1}


def test_gates_are_counted_in_nand2_equivalents_and_memories_in_bits():
    """In NAND2 equivalents, a flip-flop counts 17/3, a NAND2 one, and an inverter two thirds."""
    memory = {"type": "$mem_v2", "parameters": {"SIZE": f"{12:032b}", "WIDTH": f"{7:032b}"}}
    cells = {name: {"type": "$scopeinfo"} for name in SCOPES} | {
        "core.gemm.sum_$_DFF_P__Q_3": {"type": "$_DFF_P_"},
        "core.gemm.sum_$_DFF_P__Q_3_D_$_NOT__Y": {"type": "$_NOT_"},
        "core.gemm.array.sum_$_NAND__Y": {"type": "$_NAND_"},
        "core.act.storage": memory,
        "before_$_DFF_P__Q_17": {"type": "$_DFF_P_"},
    }
    text = json.dumps({"modules": {"top": {"cells": cells}}})
    found = read_netlist(text, "top", DEVICES["asic"].family)
    assert found.units(2) == {
        "gemm": {"gates": 6, "ff": 1},
        PINS: {"gates": 6, "ff": 1},
        "gemm.array": {"gates": 1},
        "act": {"memory_bits": 84},
    }
    assert found.units()["gemm"]["gates"] == 7


def test_what_stands_at_the_ports_is_counted_apart():
    assert netlist().pins == {"ff": 1}
    assert netlist().total == {"lut": 8, "ff": 3, "ram": 1, LOGIC_RAM: 64}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("core.gemm.array.sum_TRELLIS_FF_Q_3", ["core", "gemm", "array", "sum"]),
        ("core.gemm.sum_LUT4_Z_D_PFUMX_Z_ALUT_LUT4_Z", ["core", "gemm", "sum"]),
        ("core.control.counts__5$174_TRELLIS_FF_Q_10", ["core", "control", "counts__5"]),
        ("$flatten\\core.\\gemm.$auto$12", ["core", "gemm", ""]),
        ("core.gemm.total_SB_DFFESR_Q_2", ["core", "gemm", "total"]),
        ("core.gemm.total_FDRE_Q", ["core", "gemm", "total"]),
        ("core.gemm.total_$_DFF_P__Q_3_D_$_MUX__Y", ["core", "gemm", "total"]),
    ],
)
def test_a_cell_is_named_after_its_signal(name, parts):
    assert split_name(name) == parts


def part(kind: str, delay: float, cell: str) -> dict:
    return {"type": kind, "delay": delay, "to": {"cell": cell}}


PATH = [
    part("clk-to-q", 0.5, "core.gemm.step_TRELLIS_FF_Q"),
    part("routing", 1.0, "core.gemm.array.sum_LUT4_Z"),
    part("logic", 0.25, "core.gemm.array.sum_LUT4_Z"),
    part("routing", 0.75, "core.gemm.array.sum_TRELLIS_FF_Q_DI_LUT4_Z"),
    part("setup", 0.25, "core.gemm.array.sum_TRELLIS_FF_Q"),
]


def test_a_path_has_one_step_per_signal():
    steps = [(step.name, step.logic_ns, step.routing_ns) for step in compress(PATH)]
    assert steps == [("gemm.step", 0.5, 0.0), ("gemm.array.sum", 0.5, 1.75)]


def test_paths_to_pins_are_not_critical():
    slow = [part("routing", 50.0, "shift_out")]
    report = {
        "critical_paths": [
            {"from": "posedge clk", "to": "<async>", "path": slow},
            {"from": "posedge clk", "to": "posedge clk", "path": PATH},
        ]
    }
    assert critical_path(report) == compress(PATH)
    assert critical_path({"critical_paths": []}) == []


def test_names_leave_the_core_out():
    assert shown_name("core.gemm.$auto$3") == "gemm"
    assert shown_name("before_TRELLIS_FF_Q_17") == "before"

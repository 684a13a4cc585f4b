"""Adders equal Yosys' own; carries that make no difference are disconnected, all others stay."""

import json
from itertools import product

import pytest

from tilewright.flows.synthesis.carry_chains import ADDERS, UNCONNECTED, release_unused_carries
from tilewright.flows.synthesis.tools import YOSYS, run_in_new_folder
from tilewright.hardware.cells import models
from tilewright.hardware.technology import Technology

INPUTS = [f"{pin}{half}" for half in range(2) for pin in "ABCD"]
READER = 90, 91
"""Nets that another cell reads."""


def released(table, *, inputs=("0", "0", "0", "0"), carry="0", cout=7, s0=8, ports=()):
    """Connections of one CCU2C after the rewriting."""
    nets = {**dict.fromkeys(INPUTS, "0"), **dict(zip(INPUTS[:4], inputs, strict=True))}
    nets |= {"CIN": carry, "COUT": cout, "S0": s0, "S1": 9}
    outputs = ("COUT", "S0", "S1")
    cell = {
        "type": "CCU2C",
        "parameters": {"INIT0": f"{table:016b}", "INIT1": "0" * 16},
        "port_directions": {port: "output" if port in outputs else "input" for port in nets},
        "connections": {port: [net] for port, net in nets.items()},
    }
    reader = {
        "type": "LUT4",
        "port_directions": {"A": "input", "B": "input"},
        "connections": {"A": [READER[0]], "B": [READER[1]]},
    }
    netlist = {
        "modules": {
            "top": {
                "cells": {"chain": cell, "reader": reader},
                "ports": {f"port_{bit}": {"bits": [bit]} for bit in ports},
            }
        }
    }
    found = json.loads(release_unused_carries(json.dumps(netlist), "top"))
    return found["modules"]["top"]["cells"]["chain"]["connections"]


def test_a_carry_that_nobody_reads_is_disconnected():
    assert released(0xFFFF)["COUT"] == [UNCONNECTED]
    assert released(0xFFFF, cout=READER[0])["COUT"] == [READER[0]]
    assert released(0xFFFF, cout=7, ports=[7])["COUT"] == [7]


def test_a_carry_from_another_cell_stays():
    assert released(0x0000, carry=3)["CIN"] == [3]


def test_a_half_whose_sum_is_read_keeps_its_carry():
    assert released(0x0000, s0=READER[1])["CIN"] == ["0"]


@pytest.mark.parametrize("constants", list(product("01", repeat=2)))
@pytest.mark.parametrize("table", [0x0000, 0x000A, 0x7888, 0x00F0, 0xF000, 0x0F0F, 0x6666])
def test_a_constant_carry_is_disconnected_where_it_makes_no_difference(table, constants):
    inputs = (20, 21, *constants)
    reached = []
    for first, second in product((0, 1), repeat=2):
        bits = (first, second, *map(int, constants))
        reached.append(table >> sum(bit << index for index, bit in enumerate(bits)) & 1)
    # A half passes its carry in on where its table is 1 (CCU2C in Yosys' cells_sim.v).
    assert released(table, inputs=inputs)["CIN"] == (["0"] if any(reached) else [UNCONNECTED])


ADDER = r"""
module {name}(input [{top}:0] a, input signed [{low}:0] b, input carry, invert,
              output [{top}:0] x, y, carries);
  \$alu #(.A_SIGNED(1), .B_SIGNED(1), .A_WIDTH({bits}), .B_WIDTH({bits} - 1), .Y_WIDTH({bits}))
    adder (.A(a), .B(b), .CI({carry}), .BI({invert}), .X(x), .Y(y), .CO(carries));
endmodule
"""


def test_mapped_adders_equal_yosys_own():
    """Proved for widths of both parities: constant and other carries in, sums and differences."""
    cases = list(product((5, 6, 9), ("1'b0", "1'b1", "carry"), ("1'b0", "1'b1", "invert")))
    names = [f"adder_{index}" for index in range(len(cases))]
    adders = "".join(
        ADDER.format(name=name, bits=n, top=n - 1, low=n - 2, carry=carry, invert=invert)
        for name, (n, carry, invert) in zip(names, cases, strict=True)
    )
    script = [
        *("read_verilog -icells adders.v", "proc", "design -stash described"),
        *("read_verilog -icells adders.v", "techmap -map chains.v", "select -assert-none t:$alu"),
        *("read_verilog cells.v", "hierarchy", "proc", "flatten", "design -stash mapped"),
    ]
    for name in names:
        script += [
            f"design -reset; design -copy-from described -as described {name}",
            f"design -copy-from mapped -as mapped {name}",
            "miter -equiv -flatten described mapped difference; hierarchy -top difference",
            "techmap; opt; sat -verify -prove trigger 0 difference; write_rtlil proved.il",
        ]
    files = {
        "adders.v": adders,
        "chains.v": ADDERS.read_text(),
        "cells.v": models(Technology.ECP5).read_text(),
        "proof.ys": "\n".join(script),
    }
    assert run_in_new_folder(YOSYS, files, ["-q", "proof.ys"], "proved.il")

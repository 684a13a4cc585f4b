"""Adders as carry chains of an ECP5: equal to Yosys' own adder, and open at both ends."""

import json
from itertools import product

from tilewright.flows.synthesis.carry_chains import ADDERS, OPEN, open_ends
from tilewright.flows.synthesis.tools import YOSYS, run_in_new_folder
from tilewright.hardware.cells import models
from tilewright.hardware.technology import Technology

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


def chain(*cells: tuple[str, list, list]) -> str:
    directions = {"CIN": "input", "COUT": "output"}
    named = {
        f"cell_{index}": {
            "type": "CCU2C",
            "parameters": {"INIT0": table},
            "port_directions": directions,
            "connections": {"CIN": carry_in, "COUT": carry_out},
        }
        for index, (table, carry_in, carry_out) in enumerate(cells)
    }
    return json.dumps({"modules": {"top": {"ports": {"s": {"bits": [9]}}, "cells": named}}})


def test_ends_that_nothing_depends_on_are_open():
    begins, passes = "0000000000001010", "1001011010101010"
    before = chain((begins, ["0"], [5]), (passes, [5], [6]), (passes, ["0"], [9]))
    after = chain((begins, OPEN, [5]), (passes, [5], OPEN), (passes, ["0"], [9]))
    assert open_ends(before) == after

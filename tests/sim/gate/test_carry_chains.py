"""Shorter carry chains compute the same sums, whatever a pin holds that is left open."""

import json
import random
from functools import cache
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from tilewright.flows.synthesis.netlist import SCOPE
from tilewright.hardware.logic_adder import Gate, LogicAdder
from tilewright.hardware.technology import Technology
from tilewright.sim.gate.carry_chains import (
    CELL,
    OPEN,
    shorten_carry_chains,
    without_open_outputs,
)
from tilewright.sim.gate.mapping import ECP5
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder


class Adders:
    """Sums and differences of several widths, with every kind of carry."""

    def elaborate(self, platform):
        m = Module()
        self.ports: list[Any] = [*(Signal(12, name=name) for name in "ab"), Signal(name="carry")]
        a, b, carry = self.ports
        for bits in (7, 8, 9, 12):
            x, y = a[:bits], b[:bits]
            values = {"sum": x + y, "difference": x - y, "less": x < y, "next": x + 1}
            values["carried"] = (x + y + carry)[:bits]
            for gate in Gate:
                for start in (0, 1, carry):
                    name = f"{gate.value}_{start if isinstance(start, int) else 'carry'}"
                    adder: Any = LogicAdder(bits, gate)
                    m.submodules[f"adder_{bits}_{name}"] = adder
                    m.d.comb += [adder.a.eq(x), adder.b.eq(y), adder.c.eq(y), adder.d.eq(-1)]
                    m.d.comb += adder.carry.eq(start)
                    values[name] = adder.sum
            for name, value in values.items():
                port = Signal(len(value), name=f"{name}_{bits}")
                m.d.comb += port.eq(value)
                self.ports.append(port)
        return m


@cache
def mapped():
    adders = Adders()
    design = adders.elaborate(Technology.ECP5)
    rtl = rtlil.convert(
        design, name="top", ports=adders.ports, platform=Technology.ECP5, emit_src=False
    )
    script = f"read_rtlil rtl.il; {ECP5.synthesis} -top top; write_json mapped.json"
    return run_in_new_folder(YOSYS, {"rtl.il": rtl}, ["-q", "-p", script], "mapped.json")


def module():
    netlist = json.loads(mapped())["modules"]["top"]
    cells = netlist["cells"].items()
    netlist["cells"] = {name: cell for name, cell in cells if cell["type"] != SCOPE}
    return netlist


def table(cell, parameter, bits):
    return int(cell["parameters"][parameter], 2) >> sum(bit << n for n, bit in enumerate(bits)) & 1


def evaluate(netlist, inputs, open_level):
    """Levels of the nets, by the cell models of Lattice; an open input has `open_level`."""
    levels = {"0": 0, "1": 1, "x": open_level}
    for name, value in inputs.items():
        bits = netlist["ports"][name]["bits"]
        levels |= {bit: value >> n & 1 for n, bit in enumerate(bits)}
    waiting = list(netlist["cells"].values())
    while waiting:
        later = []
        for cell in waiting:
            pins = {
                pin: bits[0]
                for pin, bits in cell["connections"].items()
                if bits and cell["port_directions"][pin] == "input"
            }
            if any(bit not in levels for bit in pins.values()):
                later.append(cell)
                continue
            at = {pin: levels[bit] for pin, bit in pins.items()}
            for pin, level in outputs(cell, at).items():
                bits = cell["connections"].get(pin, OPEN)
                if bits != OPEN:
                    levels[bits[0]] = level
        assert len(later) < len(waiting)
        waiting = later
    return levels


def outputs(cell, at):
    if cell["type"] == "LUT4":
        return {"Z": table(cell, "INIT", [at[pin] for pin in "ABCD"])}
    if cell["type"] in ("PFUMX", "L6MUX21"):
        low, high, choice = (
            ("ALUT", "BLUT", "C0") if cell["type"] == "PFUMX" else ("D1", "D0", "SD")
        )
        return {"Z": at[low] if at[choice] else at[high]}
    assert cell["type"] == CELL
    carry, found = at["CIN"], {}
    for half in "01":
        inputs = [at[f"{pin}{half}"] for pin in "ABCD"]
        passes = table(cell, f"INIT{half}", inputs)
        found[f"S{half}"] = passes ^ carry
        carry = carry if passes else table(cell, f"INIT{half}", inputs[:2])
    return {**found, "COUT": carry}


@pytest.mark.parametrize("open_level", [0, 1])
def test_sums_stay_the_same(open_level):
    before, after = module(), module()
    shorten_carry_chains(after)
    draws = random.Random(1)
    for _ in range(20):
        inputs = {
            "a": draws.getrandbits(12),
            "b": draws.getrandbits(12),
            "carry": draws.randint(0, 1),
        }
        expected, found = evaluate(before, inputs, 0), evaluate(after, inputs, open_level)
        for name, port in before["ports"].items():
            assert [found[bit] for bit in port["bits"]] == [
                expected[bit] for bit in port["bits"]
            ], name


def test_no_chain_needs_a_cell_for_a_constant_or_for_a_carry_that_nothing_reads():
    netlist = module()
    count = len([cell for cell in netlist["cells"].values() if cell["type"] == CELL])
    shorten_carry_chains(netlist)
    chains = [cell["connections"] for cell in netlist["cells"].values() if cell["type"] == CELL]
    assert len(chains) == count
    read = {
        bit
        for cell in netlist["cells"].values()
        for pin, (bit, *_) in cell["connections"].items()
        if cell["port_directions"][pin] == "input"
    }
    assert all(pins["COUT"] == OPEN or pins["COUT"][0] in read for pins in chains)
    constant = [pins for pins in chains if pins["CIN"][0] in ("0", "1")]
    assert all(sum(isinstance(pins[f"{pin}0"][0], int) for pin in "ABCD") > 2 for pins in constant)


def test_no_input_takes_a_wire_for_a_zero():
    netlist = module()
    shorten_carry_chains(netlist)
    chains = [cell["connections"] for cell in netlist["cells"].values() if cell["type"] == CELL]
    assert not any(
        pins[f"{pin}{half}"] == ["0"] for pins in chains for pin in "CD" for half in "01"
    )


def test_open_outputs_are_removed_for_other_tools():
    netlist = module()
    shorten_carry_chains(netlist)
    without_open_outputs(netlist)
    assert not any(
        cell["connections"].get(pin) == OPEN
        for cell in netlist["cells"].values()
        for pin, direction in cell["port_directions"].items()
        if direction == "output"
    )

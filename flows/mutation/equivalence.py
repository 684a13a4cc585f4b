"""Which faults change nothing: proved by SAT over one clock cycle from any state.

The flattened netlist is cut at its registers and memories, so that the state is an input and the
next state an output. A fault under which no output and no next state differs, whatever the state
and the inputs, can never be seen. The converse does not hold: a fault may need a state that the
machine never reaches.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence

from .netlist import CONTROL, FAULTY, run_yosys

SECONDS = 20
"""For one proof; a fault without proof counts as one that can be seen."""

PROOF = """
design -load all
copy {name} gold
copy {name} gate
delete {others}
miter -equiv gold gate miter
cd miter
connect -port gold {control} {bits}'d0
connect -port gate {control} {bits}'d{number}
cd ..
hierarchy -top miter
flatten
opt_expr
opt_merge -share_all
opt_expr
opt_clean
tee -q -a proofs log FAULT {number}
tee -q -a proofs sat -prove trigger 0 -timeout {seconds} miter
"""

BITWISE = ("$and", "$or", "$xor", "$xnor", "$not", "$mux")
UPWARD = ("$add", "$sub", "$mul", "$neg")
"""A bit of the result depends on no higher bit of the operands."""

_RESULT = re.compile(r"FAULT (\d+)\n(.*?)(?=^FAULT|\Z)", re.MULTILINE | re.DOTALL)

Bits = list[int | str]


def prove_equal(netlist: str, numbers: Sequence[int]) -> set[int]:
    """Those of the faults that are proved never to be seen.

    Parameters
    ----------
    netlist
        Yosys' JSON of the flattened core with all faults, registers as `$dff`.
    """
    if not numbers:
        return set()
    cut = _Cut(json.loads(netlist)["modules"][FAULTY])
    modules = {f"cone_{number}": cut.cone(number) for number in numbers}
    empty = {number for number in numbers if not modules[f"cone_{number}"]["ports"]}
    left = [number for number in numbers if number not in empty]
    if not left:
        return empty
    script = "read_json cones.json\ndesign -save all\n"
    for number in left:
        name = f"cone_{number}"
        script += PROOF.format(
            name=name, others="cone_*", control=CONTROL, bits=32, number=number, seconds=SECONDS
        )
    kept = {name: module for name, module in modules.items() if module["ports"]}
    log = run_yosys({"cones.json": json.dumps({"modules": kept})}, script, ("proofs",))["proofs"]
    return empty | {int(n) for n, text in _RESULT.findall(log) if "no model found" in text}


class _Cut:
    """A flattened netlist, cut at registers and memories, as a graph of bits."""

    def __init__(self, module: dict) -> None:
        self.outputs: dict[str, Bits] = {}
        self.inputs: dict[str, Bits] = {}
        self.cells: dict[str, dict] = {}
        self.state: list[tuple[str, dict[str, Bits]]] = []
        for name, port in module["ports"].items():
            side = self.inputs if port["direction"] == "input" else self.outputs
            side[name] = port["bits"]
        seen = [bit for bits in self.outputs.values() for bit in bits]
        for name, cell in module["cells"].items():
            if cell["type"] == "$dff" or cell["type"].startswith("$mem"):
                for port, bits in cell["connections"].items():
                    outward = cell["port_directions"][port] == "input"
                    side = self.outputs if outward else self.inputs
                    side[f"{port}_{len(side)}"] = bits
                self.state.append((cell["type"], cell["connections"]))
            else:
                self.cells[name] = cell
        self.drivers: dict[int, str] = {}
        self.readers: dict[int, list[str]] = defaultdict(list)
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if isinstance(bit, str):
                        continue
                    if cell["port_directions"][port] == "output":
                        self.drivers[bit] = name
                    else:
                        self.readers[bit].append(name)
        self.live = self._live(seen)

    def _live(self, pending: Bits) -> set[int | str]:
        """Bits on which an output of the core depends, now or later."""
        before: dict[int | str, list[int | str]] = {}
        for kind, ports in self.state:
            if kind == "$dff":
                before |= {q: [d] for q, d in zip(ports["Q"], ports["D"], strict=True)}
            else:
                inputs = [bit for port, bits in ports.items() if port != "RD_DATA" for bit in bits]
                before |= dict.fromkeys(ports["RD_DATA"], inputs)
        live: set[int | str] = set()
        while pending:
            bit = pending.pop()
            if isinstance(bit, str) or bit in live:
                continue
            live.add(bit)
            pending += before.get(bit, [])
            if bit in self.drivers:
                pending += _deciding(self.cells[self.drivers[bit]], bit)
        return live

    def cone(self, number: int) -> dict:
        """What decides about the outputs that a fault reaches; without ports if there are none."""
        reached = self._reached(self._chosen_by(number))
        outputs = {}
        for name, bits in self.outputs.items():
            touched = [bit for bit in bits if bit in reached and bit in self.live]
            if touched:
                outputs[name] = touched
        needed, pending = set(), [bit for bits in outputs.values() for bit in bits]
        kept: dict[str, dict] = {}
        while pending:
            bit = pending.pop()
            if isinstance(bit, str) or bit in needed:
                continue
            needed.add(bit)
            name = self.drivers.get(bit)
            if name is not None and name not in kept:
                cell = kept[name] = self.cells[name]
                for port, bits in cell["connections"].items():
                    if cell["port_directions"][port] == "input":
                        pending += bits
        ports = {n: {"direction": "output", "bits": bits} for n, bits in outputs.items()}
        if ports:
            for name, bits in self.inputs.items():
                own = bits if name == CONTROL else [bit for bit in bits if bit in needed]
                if own:
                    ports[name] = {"direction": "input", "bits": own}
        return {"attributes": {}, "ports": ports, "cells": kept, "netnames": {}}

    def _chosen_by(self, number: int) -> list[int]:
        """Outputs of the comparisons that look for this fault."""
        control = self.inputs[CONTROL]
        wanted = list(format(number, f"0{len(control)}b")[::-1])
        found = []
        for name in self.readers[_bit(control[0])]:
            connections = self.cells[name]["connections"]
            if connections.get("A") == control and connections.get("B") == wanted:
                found += connections["Y"]
        return found

    def _reached(self, bits: list[int]) -> set[int | str]:
        reached: set[int | str] = set()
        while bits:
            bit = bits.pop()
            if bit in reached:
                continue
            reached.add(bit)
            for name in self.readers[bit]:
                cell = self.cells[name]
                for port, outs in cell["connections"].items():
                    if cell["port_directions"][port] == "output":
                        bits += outs
        return reached


def _bit(bit: int | str) -> int:
    assert isinstance(bit, int)
    return bit


def _deciding(cell: dict, bit: int) -> Bits:
    """Inputs of a cell that may decide about one bit of its output."""
    ports, kind = cell["connections"], cell["type"]
    place = ports["Y"].index(bit) if "Y" in ports else 0
    if kind in BITWISE:
        return [
            each
            for port, bits in ports.items()
            if port != "Y"
            for each in (bits if port == "S" else bits[min(place, len(bits) - 1) :][:1])
        ]
    last = place + 1 if kind in UPWARD else None
    return [
        each
        for port, bits in ports.items()
        if cell["port_directions"][port] == "input"
        for each in bits[:last]
    ]

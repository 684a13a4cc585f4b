"""Proof that faults change nothing: SAT over one clock cycle from any state.

The flattened netlist is cut at its registers and memories: the state becomes an input, and the next
state an output. If a fault changes no output and no next state for any state and input, it can
never be seen. The converse does not hold: a fault may need a state that the machine never reaches.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence

from .netlist import CONTROL, CONTROL_BITS, FAULTY, run_yosys

DEPTHS = 4, None
"""Depth in cells after a fault at which differences are sought; None for no limit."""

SECONDS = 20
"""Seconds for one proof; a fault without proof counts as visible."""

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
    """Faults that are proved to be invisible.

    The first, quick attempt is to prove that no bit differs a few cells after the fault.

    Parameters
    ----------
    netlist
        Yosys' JSON of the flattened core with all faults, registers as `$dff`.
    """
    if not numbers:
        return set()
    cut = _Cut(json.loads(netlist)["modules"][FAULTY])
    proved: set[int] = set()
    for depth in DEPTHS:
        left = [number for number in numbers if number not in proved]
        cones = {f"cone_{number}": cut.cone(number, depth) for number in left}
        proved |= {number for number in left if not cones[f"cone_{number}"]["ports"]}
        script = "read_json cones.json\ndesign -save all\n"
        for number in (n for n in left if n not in proved):
            script += PROOF.format(
                name=f"cone_{number}", others="cone_*", control=CONTROL, bits=CONTROL_BITS,
                number=number, seconds=SECONDS,
            )  # fmt: skip
        modules = {name: module for name, module in cones.items() if module["ports"]}
        if modules:
            text = json.dumps({"modules": modules})
            log = run_yosys({"cones.json": text}, script, ("proofs",))["proofs"]
            proved |= {int(n) for n, result in _RESULT.findall(log) if "no model found" in result}
    return proved


def reached_registers(netlist: str, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Per fault, the registers and outputs that it can change in one cycle, without their bits."""
    module = json.loads(netlist)["modules"][FAULTY]
    cut = _Cut(module)
    names: dict[int | str, str] = {}
    for name, wire in sorted(module["netnames"].items(), key=lambda item: len(item[0])):
        if not wire.get("hide_name"):
            for bit in wire["bits"]:
                names.setdefault(bit, name)
    states: dict[int | str, set[str]] = defaultdict(set)
    for kind, ports in cut.state:
        if kind == "$dff":
            for d, q in zip(ports["D"], ports["Q"], strict=True):
                if q in names:
                    states[d].add(names[q])
    found = {}
    for number in numbers:
        ports = cut.cone(number)["ports"].values()
        bits = [bit for port in ports if port["direction"] == "output" for bit in port["bits"]]
        found[number] = tuple(
            sorted({name for bit in bits for name in states.get(bit, {names.get(bit, "?")})})
        )
    return found


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
        before: dict[int | str, Bits] = {}
        for kind, ports in self.state:
            if kind == "$dff":
                before |= {
                    q: [d, *ports["CLK"]] for q, d in zip(ports["Q"], ports["D"], strict=True)
                }
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

    def cone(self, number: int, depth: int | None = None) -> dict:
        """Return the logic cone of the outputs that a fault reaches; it may have no ports.

        With a depth, bits at this distance in cells behind the fault are outputs too.
        """
        reached, border = self._reached(self._chosen_by(number), depth)
        outputs: dict[str, Bits] = {"border": [bit for bit in border if bit in self.live]}
        for name, bits in self.outputs.items():
            touched = [bit for bit in bits if bit in reached and bit in self.live]
            if touched:
                outputs[name] = touched
        outputs = {name: bits for name, bits in outputs.items() if bits}
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
        """Outputs that are compared for this fault."""
        control = self.inputs[CONTROL]
        wanted = list(format(number, f"0{len(control)}b")[::-1])
        found = []
        lowest = control[0]
        assert isinstance(lowest, int)
        for name in self.readers[lowest]:
            connections = self.cells[name]["connections"]
            if connections.get("A") == control and connections.get("B") == wanted:
                found += connections["Y"]
        return found

    def _reached(self, bits: list[int], depth: int | None) -> tuple[set[int | str], list[int]]:
        """All bits that depend on these, and those at which the walk stopped."""
        reached: set[int | str] = set(bits)
        level = 0
        while bits and (depth is None or level < depth):
            behind = []
            for name in {name for bit in bits for name in self.readers[bit]}:
                cell = self.cells[name]
                for port, outs in cell["connections"].items():
                    if cell["port_directions"][port] == "output":
                        behind += [out for out in outs if out not in reached]
            reached.update(behind)
            bits, level = list(dict.fromkeys(behind)), level + 1
        return reached, bits


def _deciding(cell: dict, bit: int) -> Bits:
    """Inputs of a cell that may affect one bit of its output."""
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

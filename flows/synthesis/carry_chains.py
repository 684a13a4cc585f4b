"""Ends of carry chains of the ECP5, which nextpnr would otherwise build from cells of their own.

nextpnr leads every carry that enters or leaves a chain through one more CCU2C, also where nobody
reads the last carry, or where the first cell ignores the one that it gets: Yosys connects both.
With the adders of `ADDERS`, no chain depends on the carry that enters it.
"""

import json
from collections.abc import Set
from itertools import product
from pathlib import Path

ADDERS = Path(__file__).with_name("ecp5_carry_chains.v")
"""How Yosys' `techmap` shall map adders."""

UNCONNECTED = "x"
"""A bit of a port without a net, in Yosys' JSON."""


def release_unused_carries(text: str, top: str) -> str:
    """Disconnect the carries that make no difference, in the JSON text of a netlist.

    Parameters
    ----------
    top
        Its top module.
    """
    netlist = json.loads(text)
    module = netlist["modules"][top]
    cells = module["cells"].values()
    read = {
        bit
        for cell in cells
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input"
        for bit in bits
    }.union(*(port["bits"] for port in module["ports"].values()))
    for cell in cells:
        if cell["type"] == "CCU2C":
            ports = cell["connections"]
            if read.isdisjoint(ports["COUT"]):
                ports["COUT"] = [UNCONNECTED]
            if ports["CIN"][0] in ("0", "1") and _ignores_carry(cell, read):
                ports["CIN"] = [UNCONNECTED]
    return json.dumps(netlist)


def _ignores_carry(cell: dict, read: Set[int | str]) -> bool:
    """Whether the first half's sum is unread and its table is 0 for all inputs that can occur.

    Then the half passes its carry on from the lowest four bits of the table.
    """
    ports = cell["connections"]
    if not read.isdisjoint(ports["S0"]):
        return False
    pins = [ports[f"{pin}0"][0] for pin in "ABCD"]
    variables = sorted({bit for bit in pins if isinstance(bit, int)})
    table = int(cell["parameters"]["INIT0"], 2)
    for values in product((0, 1), repeat=len(variables)):
        value_of = dict(zip(variables, values, strict=True))
        inputs = [value_of[bit] if bit in value_of else int(bit == "1") for bit in pins]
        if table >> sum(value << index for index, value in enumerate(inputs)) & 1:
            return False
    return True

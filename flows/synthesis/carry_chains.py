"""Carry chains of an ECP5 whose ends nextpnr would otherwise lengthen.

nextpnr adds a cell of two look-up tables where a carry leaves a chain, and where a constant enters
it. Yosys connects the last carry of every chain, and the first one to a constant, even if nothing
depends on them.
"""

import json
from pathlib import Path

ADDERS = Path(__file__).with_name("ecp5_carry_chains.v")
"""How Yosys' `techmap` maps adders: chains that depend on no carry at their beginning."""

OPEN = ["x"]
"""A port's bits without a connection, in Yosys' JSON."""

GENERATES = "000000000000"
"""Upper part of the table of a half that passes no carry on."""


def open_ends(netlist: str) -> str:
    """Disconnect the carries at both ends of each chain that nothing depends on.

    Parameters
    ----------
    netlist
        A flat netlist, as Yosys' `write_json` writes it.
    """
    design = json.loads(netlist)
    for module in design["modules"].values():
        cells = module["cells"].values()
        read = {bit for port in module["ports"].values() for bit in port["bits"]}
        for cell in cells:
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] != "output":
                    read.update(bits)
        for cell in cells:
            if cell["type"] != "CCU2C":
                continue
            ports = cell["connections"]
            generates = cell["parameters"]["INIT0"].startswith(GENERATES)
            if generates and ports.get("CIN") in (["0"], ["1"]):
                ports["CIN"] = OPEN
            if "COUT" in ports and ports["COUT"][0] not in read:
                ports["COUT"] = OPEN
    return json.dumps(design)

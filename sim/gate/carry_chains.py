"""Carry chains of the ECP5 without the cells that nextpnr adds at their ends.

A CCU2C holds two bits of a chain. For a carry in from a net or a constant, nextpnr adds a cell
before the chain. For a carry out, it adds one after it, even if nothing reads the carry. Most
chains need neither. An input that is 1 takes no wire; one that is 0 may take one.
"""

from collections import Counter
from typing import Any

CELL = "CCU2C"
OPEN = ["x"]
"""Connection of an open pin."""

_PINS = "ABCD"


def shorten_carry_chains(module: dict[str, Any]) -> None:
    """Change the carry chains of a netlist in place, so that they take fewer cells on the chip.

    * Sums and carries that nothing reads are left open.
    * A chain whose last half is free begins with a half that makes the carry.
    * In other chains, a constant carry in becomes part of the first bit's carry, if that carry
      depends on two inputs at most. The first bit's sum, if it is used, moves to a look-up table.
    * Inputs `C` and `D` that are 0 become 1, and tables change with them.

    Parameters
    ----------
    module : dict
        A module as Yosys' `write_json` writes it, mapped to the ECP5 and flat.
    """
    cells = module["cells"]
    readers = _readers(module)
    links = {name: cell["connections"] for name, cell in cells.items() if cell["type"] == CELL}
    for pins in links.values():
        for pin in ("CIN", "S0", "S1", "COUT"):
            if not pins.get(pin) or (pin != "CIN" and not readers[pins[pin][0]]):
                pins[pin] = OPEN
    followers = {pins["CIN"][0]: name for name, pins in links.items() if pins["CIN"] != OPEN}
    carries = {pins["COUT"][0] for pins in links.values() if pins["COUT"] != OPEN}
    for name, pins in links.items():
        if pins["CIN"] == OPEN or pins["CIN"][0] in carries:
            continue
        if not _shift(cells, _chain(links, name, followers, readers)):
            _absorb(cells, name)
    for name in links:
        for index in "01":
            _tie_high(cells[name], index)


def without_open_outputs(module: dict[str, Any]) -> None:
    """Remove the open outputs of a netlist's cells in place, for tools that read them as nets."""
    for cell in module["cells"].values():
        for pin, direction in cell["port_directions"].items():
            if direction == "output" and cell["connections"].get(pin) == OPEN:
                del cell["connections"][pin]


def _readers(module: dict[str, Any]) -> Counter:
    """Return the number of inputs that read each net."""
    found: Counter = Counter()
    for cell in module["cells"].values():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"][pin] != "output":
                found.update(bit for bit in bits if isinstance(bit, int))
    for port in module["ports"].values():
        found.update(port["bits"])
    return found


def _chain(links: dict, name: str, followers: dict, readers: Counter) -> list[str]:
    """Return the names of a chain's cells; it ends where its carry is read elsewhere too."""
    chain = [name]
    while True:
        carry = links[chain[-1]]["COUT"][0]
        if readers[carry] != 1 or carry not in followers:
            return chain
        chain.append(followers[carry])


def _absorb(cells: dict, name: str) -> None:
    """Make the constant carry into a chain part of its first half, if that half has two inputs."""
    cell = cells[name]
    pins = cell["connections"]
    inputs = [pins[f"{pin}0"][0] for pin in _PINS]
    nets = sorted({bit for bit in inputs if isinstance(bit, int)})
    if isinstance(pins["CIN"][0], int) or len(nets) > 2:
        return
    carry, table = pins["CIN"][0] == "1", int(cell["parameters"]["INIT0"], 2)
    sums, carries = [], []
    for index in range(4):
        levels = {"1": 1, **{net: index >> place & 1 for place, net in enumerate(nets)}}
        place = sum(levels.get(bit, 0) << pin for pin, bit in enumerate(inputs))
        passes = table >> place & 1
        sums.append(passes ^ carry)
        carries.append(carry if passes else table >> (place & 3) & 1)
    used = dict(zip("AB", [[net] for net in nets] + [["0"]] * 2, strict=False))
    if pins["S0"] != OPEN:
        cells[f"{name}_LUT4"] = {
            "hide_name": cell["hide_name"],
            "type": "LUT4",
            "parameters": {"INIT": _table(sums * 4)},
            "attributes": {},
            "port_directions": {**dict.fromkeys(_PINS, "input"), "Z": "output"},
            "connections": {**used, "C": ["0"], "D": ["0"], "Z": pins["S0"]},
        }
    pins |= {"CIN": OPEN, "S0": OPEN, "C0": ["1"], "D0": ["1"]}
    pins |= {f"{pin}0": bit for pin, bit in used.items()}
    cell["parameters"]["INIT0"] = _table([*carries, *[0] * 12])


def _shift(cells: dict, chain: list[str]) -> bool:
    """Begin a chain with a half that makes its carry, if its last half is free."""
    last, first = cells[chain[-1]]["connections"], cells[chain[0]]["connections"]
    if last["S1"] != OPEN or last["COUT"] != OPEN:
        return False
    lead = {"A": first["CIN"], "B": ["0"], "C": ["1"], "D": ["1"], "S": OPEN}
    halves = [(lead, _table([0, 1, 0, 1, *[0] * 12]))]
    for name in chain:
        pins, parameters = cells[name]["connections"], cells[name]["parameters"]
        for index in "01":
            half = {pin: pins[f"{pin}{index}"] for pin in f"{_PINS}S"}
            halves.append((half, parameters[f"INIT{index}"]))
    first["CIN"] = OPEN
    for number, (half, table) in enumerate(halves[:-1]):
        cell, index = cells[chain[number // 2]], number % 2
        cell["connections"] |= {f"{pin}{index}": bits for pin, bits in half.items()}
        cell["parameters"][f"INIT{index}"] = table
    return True


def _tie_high(cell: dict, index: str) -> None:
    """Tie the inputs `C` and `D` of a half to 1 where they are 0, with the same sum and carry.

    The sum takes one of the table's sixteen bits, and the carry one of the first four, by `A` and
    `B` alone. These four stay.
    """
    pins, parameters, name = cell["connections"], cell["parameters"], f"INIT{index}"
    low = {pin: 1 << _PINS.index(pin) for pin in "CD" if pins[f"{pin}{index}"] == ["0"]}
    ties = sum(low.values())
    table = int(parameters[name], 2)
    parameters[name] = _table([table >> (place & ~ties) & 1 for place in range(16)])
    pins |= {f"{pin}{index}": ["1"] for pin in low}


def _table(bits: list[int]) -> str:
    """Return a table's parameter from its bits, the lowest first."""
    return "".join(str(int(bit)) for bit in reversed(bits))

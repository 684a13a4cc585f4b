"""The large memories of a core as instances of one module, and the list of all memories.

Memories of `hardware.ram` may return anything for a word that is read while it is written, as the
macros of most processes do. The others, queues and counters, are small and stay registers or
whatever a tool infers.
"""

import math
import re
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from .rtlil import Attributes, Cell, RtlilModule, Signal, constant_bits

RAM = "tilewright_ram"
RAM_SOURCE = Path(__file__).with_name(f"{RAM}.v")
ZEROS = re.compile(r"  // For a simulation.*?`endif\n\n", re.DOTALL)
"""The part of it that is for memories with initial values."""

SWAPPABLE = '"hardware/ram.py:'
"""Beginning of the source attribute of memories that any macro can replace."""


@dataclass(frozen=True, slots=True)
class MemoryShape:
    """A memory of the core, with one write and one read port on `clk`.

    Parameters
    ----------
    path
        Its instance below the top module, with dots.
    depth, width
        Words, and bits of a word.
    granule
        Bits of a word that one write-enable bit covers.
    read_cycles
        From the address to the data: 1, or 0 for an asynchronous read.
    module
        Module of the instance; empty if the memory is described in place.
    """

    path: str
    depth: int
    width: int
    granule: int
    read_cycles: int
    module: str

    def to_json(self) -> dict[str, Any]:
        """The fields, and the size."""
        return {**asdict(self), "bits": self.depth * self.width}


def ram_source(*, initialised: bool) -> str:
    """Return the Verilog of module `RAM`."""
    text = RAM_SOURCE.read_text("utf-8")
    return text if initialised else ZEROS.sub("", text)


def extract_memories(modules: dict[str, RtlilModule]) -> list[MemoryShape]:
    """Replace the memories of `hardware.ram` by instances of `RAM`; list all that are written."""
    shapes = []
    for module in modules.values():
        for cell in module.cells:
            if _is_written(cell):
                swaps = cell.attributes.get("\\src", "").startswith(SWAPPABLE)
                shape = _shape(module, cell, RAM if swaps else "")
                if swaps:
                    _instantiate(cell, shape)
                shapes.append(shape)
    return sorted(shapes, key=lambda shape: shape.path)


def forget_initial_values(modules: dict[str, RtlilModule]) -> None:
    """Registers and memories hold anything until a reset or a write; tables become logic."""
    for module in modules.values():
        for wire in module.wires.values():
            wire.attributes.pop("\\init", None)
        for cell in [cell for cell in module.cells if cell.kind == "$mem_v2"]:
            if _is_written(cell):
                cell.parameters["\\INIT"] = "1'x"
            else:
                _select_words(module, cell)


def _is_written(cell: Cell) -> bool:
    return cell.kind == "$mem_v2" and cell.number("\\WR_PORTS") > 0


def _select_words(module: RtlilModule, table: Cell) -> None:
    """Turn a table with one clocked port into a selection among constants, and a register."""
    assert table.number("\\RD_PORTS") == table.number("\\RD_CLK_ENABLE") == 1
    ports, width = table.ports, table.number("\\WIDTH")
    address, word = ports["\\RD_ADDR"], module.add_wire(f"{table.name}_word", width)
    register = Cell(
        "$dffe",
        module.free_name(f"{table.name}_register", [cell.name for cell in module.cells]),
        {"\\WIDTH": str(width), "\\CLK_POLARITY": "1'1", "\\EN_POLARITY": "1'1"},
        {
            "\\CLK": ports["\\RD_CLK"], "\\EN": ports["\\RD_EN"],
            "\\D": word, "\\Q": ports["\\RD_DATA"],
        },
        table.attributes,
    )  # fmt: skip
    module.cells.append(register)
    bits = constant_bits(table.parameters["\\INIT"]).replace("x", "0")[::-1]
    table.kind, table.parameters = "$bmux", {"\\WIDTH": str(width), "\\S_WIDTH": str(len(address))}
    words = tuple(bits.ljust(width << len(address), "0"))
    table.ports = {"\\A": words, "\\S": address, "\\Y": word}


def _shape(module: RtlilModule, cell: Cell, kind: str) -> MemoryShape:
    for ports in ("\\RD_PORTS", "\\WR_PORTS"):
        assert cell.number(ports) == 1
    runs = [len(list(run)) for _, run in groupby(cell.ports["\\WR_EN"])]
    return MemoryShape(
        ".".join([*module.name[1:].split(".")[1:], cell.name[1:]]),
        cell.number("\\SIZE"),
        cell.number("\\WIDTH"),
        math.gcd(*runs),
        cell.number("\\RD_CLK_ENABLE"),
        kind,
    )


def _instantiate(cell: Cell, shape: MemoryShape) -> None:
    ports = cell.ports
    kept: Attributes = {"\\src": cell.attributes["\\src"]}
    signals: dict[str, Signal] = {
        "clk": ports["\\RD_CLK"],
        "read_enable": ports["\\RD_EN"],
        "read_address": ports["\\RD_ADDR"],
        "read_data": ports["\\RD_DATA"],
        "write_enable": ports["\\WR_EN"][:: shape.granule],
        "write_address": ports["\\WR_ADDR"],
        "write_data": ports["\\WR_DATA"],
    }
    numbers = {
        "DEPTH": shape.depth,
        "WIDTH": shape.width,
        "GRANULE": shape.granule,
        "ADDRESS_BITS": len(signals["read_address"]),
    }
    cell.kind, cell.attributes = f"\\{RAM}", kept
    cell.ports = {f"\\{name}": signal for name, signal in signals.items()}
    cell.parameters = {f"\\{name}": str(number) for name, number in numbers.items()}

"""A project for AMD's Vivado of a board without processors: the whole system, pins, a script."""

from pathlib import Path
from typing import Any

from ...atomic_write import write_files
from ...quoting import comment, tcl_word
from ..synthesis.netlist import TOP
from .constraints import CONSTRAINTS
from .design import Design, make_output_folder

SCRIPT = "board.tcl"

TOP_FILE = "top.v"


def write_system_project(design: Design, folder: Path) -> list[Path]:
    """Write the project to a folder; return the paths of its files, the script last.

    Raises
    ------
    UsageError
        When the folder or a file cannot be written.
    """
    # Imported here: it brings the hardware description language, which takes time.
    from ..verilog.readable import readable_rtlil

    make_output_folder(folder)
    name, write = CONSTRAINTS[design.technology]
    texts = {
        TOP_FILE: readable_rtlil(design.rtlil(), TOP),
        name: write(design.board),
        SCRIPT: script(design),
    }
    return write_files(folder, texts)


def script(design: Design) -> str:
    """Return the script for Vivado: the values of the board, then `board.tcl`."""
    board = design.board
    values = {
        "name": board.name,
        "part": board.part,
        "clock_mhz": f"{design.clock_hz / 1e6:g}",
    }
    head = (
        f"# {comment(board.name)}, written by `tilewright build`. Run it with:\n"
        f"#   vivado -mode batch -source {SCRIPT}\n"
    )
    lines = "".join(f"set {name} {tcl_word(value)}\n" for name, value in values.items())
    return head + lines + Path(__file__).with_name(SCRIPT).read_text("utf-8")


def to_json(design: Design, files: list[Path]) -> dict[str, Any]:
    """Return what is built as JSON values, with the paths of the files."""
    return {
        "board": design.board.name,
        "part": design.board.part,
        "configuration": design.configuration.name,
        "parameters": design.configuration.parameters(),
        "hash": f"{design.configuration.hash:#010x}",
        "memory_bytes": design.memory_bytes,
        "clock_mhz": design.clock_hz / 1e6,
        "baud": design.board.baud,
        "files": [str(file) for file in files],
    }

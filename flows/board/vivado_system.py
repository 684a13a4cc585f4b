"""A project for AMD's Vivado of a board without processors: the whole system, pins, a script.

A DDR memory gets AMD's controller (MIG, UG586) in a block design. Its pins and timing are those of
the maker's files for Vivado, so that none of them is written here.
"""

from pathlib import Path
from typing import Any

from ...atomic_write import make_output_folder, write_files
from ...quoting import comment, tcl_list
from ..synthesis.netlist import TOP
from .constraints import CONSTRAINTS
from .design import Design
from .vivado import WRAPPER, script_of, wrapper

SCRIPT, DDR_SCRIPT = "board.tcl", "ddr.tcl"

TOP_FILE = "top.v"


def write_system_project(design: Design, folder: Path) -> list[Path]:
    """Write a project for Vivado, of a whole system; return its files, the script last.

    Raises
    ------
    UsageError
        When the folder or a file cannot be written.
    """
    # Imported here: it brings the hardware description language, which takes time.
    from ..verilog.readable import readable_rtlil

    make_output_folder(folder)
    name, write = CONSTRAINTS[design.technology]
    top = readable_rtlil(design.rtlil(), TOP)
    texts = {TOP_FILE: top, name: write(design.board)}
    if design.board.ddr:
        texts[f"{WRAPPER}.v"] = wrapper(design.configuration, top, TOP)
    texts[SCRIPT] = script(design)
    return write_files(folder, texts)


def script(design: Design) -> str:
    """Return the script for Vivado."""
    board = design.board
    values = {
        "name": board.name,
        "part": board.part,
        "clock_mhz": f"{design.clock_hz / 1e6:g}",
    }
    if ddr := board.ddr:
        values |= {
            "board_files": ddr.board_files,
            "interface": ddr.interface,
            "memory_range": f"{design.memory_bytes >> 20}M",
            "pins_of_board": tcl_list(name for name in board.pins if name != "oscillator"),
        }
    head = (
        f"# {comment(board.name)}, written by `tilewright build`. Run it with:\n"
        f"#   vivado -mode batch -source {SCRIPT}\n"
    )
    return head + script_of(values, DDR_SCRIPT if board.ddr else SCRIPT)


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

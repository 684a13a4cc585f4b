"""Simulators of a core's netlist: mapped by Yosys to the cells of an FPGA, built by Verilator.

The netlist is the one that is placed on the chip. Its cells are Yosys' models, and ours
(`hardware.cells`) where Yosys has none. The ports are those of the core, so the harness of the RTL
drives it, with programs and data placed in main memory directly.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

from ...hardware.cells import models
from ...isa.configuration import Configuration
from ..cache import cache_folder, keep_text
from ..rtl import TOP, harness_constants
from ..toolchain import find_compiler, find_verilator, progress
from ..verilate import build_library
from .carry_chains import without_open_outputs
from .cell_models import CellModels
from .kept import read_kept
from .mapping import map_design
from .rtlil import bare_rtlil
from .tools import YOSYS, run_in_new_folder, tool_version

SCRIPT = """
read_json mapped.json
delete t:$scopeinfo =A:blackbox=1 =A:whitebox=1
techmap -map lut.v
read_verilog -D NO_INCLUDES +/{yosys}
read_verilog -overwrite cells.v
hierarchy -top {top}
proc
memory_collect
opt_clean
write_verilog -noattr gates.v
"""
"""Yosys commands that turn the mapped netlist into Verilog with the cells' models. A cell without a
model remains a black box, and Verilator rejects it."""

LINE_S = 15.0
"""Minimum time between two lines of progress."""


def build_gates(configuration: Configuration, cells: CellModels, multipliers: int | None) -> Path:
    """Build the simulator of a configuration's netlist, or find it in the cache.

    Parameters
    ----------
    multipliers
        As `Core` takes them, usually those of `cells`.

    Raises
    ------
    ToolError
        When a tool is missing or fails.
    HardwareError
        When a tool rejects the design.
    """
    # A missing tool is told before minutes of synthesis.
    find_verilator()
    find_compiler()
    label = f"the {cells.name} netlist of configuration `{configuration.name}`"
    technology = cells.mapping.technology
    rtl = bare_rtlil(configuration, technology, multipliers)
    mapped = map_design(rtl, cells.mapping, TOP, _progress_of(label))
    script = SCRIPT.format(top=TOP, yosys=cells.yosys)
    ours = models(technology)
    texts = {"lut.v": cells.lut_map, "cells.v": ours.read_text("utf-8") if ours.is_file() else ""}

    def make() -> str:
        netlist = json.loads(read_kept(mapped))
        without_open_outputs(netlist["modules"][TOP])
        files = {"mapped.json": json.dumps(netlist), **texts}
        return run_in_new_folder(YOSYS, files, ["-q", "-p", script], "gates.v")

    verilog = keep_text(
        [tool_version(YOSYS), mapped.name, script, *texts.values()], "gates.v", make
    )
    return build_library(verilog, TOP, harness_constants(configuration), label, quick=True)


def _progress_of(label: str) -> Callable[[str], None]:
    """Return a function that is called with each step of Yosys, and prints lines of progress."""
    began, last = time.monotonic(), 0.0

    def show(step: str) -> None:
        nonlocal last
        now = time.monotonic()
        if not last:
            progress(
                f"synthesising {label}, which takes a minute or more (once; kept in "
                f"{cache_folder()})",
                "gate",
            )
        elif now - last >= LINE_S:
            progress(f"{now - began:.0f} s: {step}", "gate")
        else:
            return
        last = now

    return show

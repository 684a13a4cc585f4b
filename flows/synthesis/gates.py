"""Simulators of a core's netlist: mapped by Yosys to the cells of an FPGA, built by Verilator.

The netlist is the one that is placed on the chip. Its cells are Yosys' models, and ours
(`hardware.cells`) where Yosys has none. The ports are those of the core, so the harness of the RTL
drives it, with programs and data placed in main memory directly.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError, did_you_mean
from ...hardware.cells import models
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ...sim.cache import cache_folder, keep_text
from ...sim.rtl import TOP, harness_constants
from ...sim.toolchain import find_compiler, find_verilator, progress
from ...sim.verilate import build_library
from .carry_chains import without_open_outputs
from .devices import DEVICES, Device
from .flow import bare_rtlil, map_design, read_mapped
from .tools import YOSYS, run_in_new_folder, tool_version


@dataclass(frozen=True, slots=True, kw_only=True)
class CellModels:
    """Models of a technology's cells.

    Parameters
    ----------
    yosys
        The file with Yosys' own models, relative to the folder of its data.
    lut, output, inputs, table
        A look-up table of four inputs and its ports, and the parameter with its content. It becomes
        one operator, which simulates fast.
    """

    yosys: str
    lut: str
    output: str
    inputs: tuple[str, str, str, str]
    table: str

    @property
    def lut_map(self) -> str:
        """Verilog that maps the look-up table for Yosys' `techmap`."""
        ports = self.inputs
        return (
            f"module {self.lut}(input {', '.join(ports)}, output {self.output});\n"
            f"  parameter [15:0] {self.table} = 0;\n"
            f"  \\$lut #(.WIDTH(4), .LUT({self.table})) _TECHMAP_REPLACE_\n"
            f"    (.A({{{', '.join(reversed(ports))}}}), .Y({self.output}));\n"
            "endmodule\n"
        )


MODELS = {
    Technology.ECP5: CellModels(
        yosys="ecp5/cells_sim.v", lut="LUT4", output="Z", inputs=("A", "B", "C", "D"), table="INIT"
    ),
    Technology.GOWIN: CellModels(
        yosys="gowin/cells_sim.v",
        lut="LUT4",
        output="F",
        inputs=("I0", "I1", "I2", "I3"),
        table="INIT",
    ),
    Technology.ICE40: CellModels(
        yosys="ice40/cells_sim.v",
        lut="SB_LUT4",
        output="O",
        inputs=("I0", "I1", "I2", "I3"),
        table="LUT_INIT",
    ),
}
"""Technologies whose netlists can be simulated."""

CHIPS: Mapping[str, Device] = {
    kind.value: next(chip for chip in DEVICES.values() if chip.family.technology is kind)
    for kind in MODELS
}
"""The chip whose cells a netlist has, by the name of its technology. Nothing is placed, so a
machine may be larger than the chip; only the number of its multipliers matters."""

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
"""Least seconds between two lines of progress."""


def find_chip(technology: str) -> Device:
    """Return the chip whose cells a technology's netlists have, by the technology's name.

    Raises
    ------
    DeviceError
        For an unknown technology, or one without models of its cells.
    """
    found = CHIPS.get(technology)
    if found is None:
        raise DeviceError(
            f"device `gate`: technology `{technology}`: expected one of {', '.join(CHIPS)}"
            + did_you_mean(technology, CHIPS, "; choose one")
        )
    return found


def build_gates(configuration: Configuration, chip: Device) -> Path:
    """Build the simulator of a configuration's netlist, or find it in the cache.

    Parameters
    ----------
    chip
        One of `CHIPS`, or another chip of their technologies.

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
    family = chip.family
    assert family.technology is not None
    label = f"the {family.name} netlist of configuration `{configuration.name}`"
    cells = MODELS[family.technology]
    mapped = map_design(bare_rtlil(configuration, chip), family, _progress_of(label), TOP)
    script = SCRIPT.format(top=TOP, yosys=cells.yosys)
    ours = models(family.technology)
    texts = {"lut.v": cells.lut_map, "cells.v": ours.read_text() if ours.is_file() else ""}

    def make() -> str:
        netlist = json.loads(read_mapped(mapped))
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

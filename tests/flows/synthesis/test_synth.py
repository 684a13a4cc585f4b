"""`tilewright synth`: what it prints, and what it keeps."""

import json

import pytest


@pytest.mark.slow
def test_figures_by_unit_clock_and_critical_path(tilewright):
    said = tilewright("synth", "--config", "tiny", "--device", "ecp5-25", "--depth", "2")
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line}
    assert "gemm.array" in rows
    assert rows["chip"][:2] == ["24,288", "24,288"]
    assert "clock: " in said
    assert "critical path of seed 1: " in said
    found = json.loads(
        tilewright("synth", "--config", "tiny", "--device", "ecp5-25", "--no-place", "--json")
    )
    assert rows["core"][0] == f"{found['resources']['lut']:,}"
    assert found["clock"] is None


@pytest.mark.slow
def test_xilinx_is_estimated(tilewright):
    command = ("synth", "--config", "tiny", "--device", "xc7z020", "--json")
    found = json.loads(tilewright(*command))
    assert found["clock"] is None
    assert set(found["tools"]) == {"yosys"}
    assert found["resources"]["multipliers"] == sum(
        unit.get("multipliers", 0) for unit in found["units"].values()
    )

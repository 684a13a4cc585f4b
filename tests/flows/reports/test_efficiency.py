"""Speed against resources and energy, in a run's table and JSON, and in the report's data."""

import json

import pytest

from tilewright.flows.area.counts import count_blocks
from tilewright.flows.area.model import estimate
from tilewright.isa.configuration import PRESETS


@pytest.fixture
def run(tilewright, model) -> dict:
    options = ("--config", "8x8", "--clock", 125, "--json")
    return json.loads(tilewright("run", model, *options))


def test_speed_is_divided_by_what_the_machine_takes(run):
    found, machine = run["efficiency"], PRESETS["8x8"]
    cycles, macs = run["totals"]["cycles"], run["totals"]["macs"]
    assert found["chip"] == "ecp5-45"
    assert found["gops"] == pytest.approx(2 * macs / cycles * 125e6 / 1e9)
    assert found["resources"]["lut"] == estimate(machine, multipliers=72).lut
    multipliers = count_blocks(machine, multipliers=72).multipliers
    assert found["gops_per_multiplier"] == pytest.approx(found["gops"] / multipliers)
    assert found["gops_per_lut"] == pytest.approx(found["gops"] / found["resources"]["lut"])


def test_energy_is_an_interval_that_is_called_an_estimate(run, tilewright, model):
    found = run["efficiency"]
    energy, macs = found["energy_j"], run["totals"]["macs"]
    parts = energy["arithmetic"] + energy["scratchpads"]
    assert [energy["least"], energy["greatest"]] == pytest.approx(
        [parts + memory for memory in energy["main_memory"]]
    )
    assert found["gops_per_watt"] == pytest.approx(
        [2e-9 * macs / energy["greatest"], 2e-9 * macs / energy["least"]]
    )
    assert "energy_j" in found["estimates"]
    said = tilewright("run", model, "--config", "8x8")
    (line,) = (line for line in said.splitlines() if line.startswith("energy per sample: "))
    assert "an estimate for 45 nm" in line


def test_energy_does_not_depend_on_the_clock(run, tilewright, model):
    slow = json.loads(tilewright("run", model, "--config", "8x8", "--clock", 25, "--json"))
    assert slow["efficiency"]["energy_j"] == run["efficiency"]["energy_j"]
    assert slow["efficiency"]["gops"] == pytest.approx(run["efficiency"]["gops"] / 5)


def test_there_is_no_efficiency_without_the_accelerator(tilewright, model):
    values = json.loads(tilewright("run", model, "--device", "host", "--json"))
    assert values["efficiency"] is None


def test_the_report_has_the_same_figures(run, tilewright, model, tmp_path):
    path = tmp_path / "report.json"
    options = ("--config", "8x8", "--clock", 125, "-o", tmp_path / "page.html", "--json", path)
    tilewright("report", model, *options)
    assert json.loads(path.read_text())["summary"]["efficiency"] == run["efficiency"]

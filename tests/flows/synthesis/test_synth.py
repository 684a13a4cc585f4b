"""`tilewright synth`: what it prints, and what it keeps.

The tests that synthesise the same small machine stand here together, so that one process does it.
"""

import json
from dataclasses import replace

import pytest

from tilewright.flows.cli.commands import synth
from tilewright.flows.cli.main import main
from tilewright.flows.synthesis.critical_path import CriticalStep
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.flow import Synthesis, synthesise
from tilewright.flows.synthesis.ledger import LedgerRow, read_rows, row_of, worse
from tilewright.flows.synthesis.netlist import Netlist
from tilewright.flows.synthesis.place_and_route import RoutedDesign
from tilewright.isa.configuration import PRESETS

TOOLS = {"yosys": "0.70", "nextpnr-ecp5": "0.11"}


def figures(rtl: str, luts: int, clocks: tuple[float, ...]) -> Synthesis:
    placements = tuple(RoutedDesign(seed, mhz, ()) for seed, mhz in enumerate(clocks, 1))
    cells = Netlist(((("gemm",), {"lut": luts}),))
    device = DEVICES["ecp5-25"]
    return Synthesis(PRESETS["tiny"], device, rtl, cells, {"lut": luts}, 130.0, placements, TOOLS)


KEPT = row_of(figures("kept", 1000, (100.0, 101.0, 102.0)))


@pytest.fixture
def ledger(monkeypatch):
    """A ledger of one row; `found` is what a new measurement gives, `written` what is written."""

    class Ledger:
        found = figures("new", 1000, (100.0, 101.0, 102.0))
        written: tuple[list[LedgerRow], ...] = ()
        measured = 0

    state = Ledger()

    def synthesise(configuration, device, *, place=True, **options):
        state.measured += place
        return state.found if place else figures(state.found.rtl, state.found.packed["lut"], ())

    def write(rows):
        state.written += (rows,)

    monkeypatch.setattr(synth, "read_rows", lambda: [KEPT])
    monkeypatch.setattr(synth, "write_rows", write)
    monkeypatch.setattr(synth, "synthesise", synthesise)
    monkeypatch.setattr(synth, "core_rtlil", lambda configuration, device: "")
    monkeypatch.setattr(synth, "hash_of", lambda rtl: state.found.rtl)
    monkeypatch.setattr(synth, "tool_versions", lambda device: TOOLS)
    return state


def test_a_row_whose_rtl_is_the_same_is_not_measured(tilewright, ledger):
    ledger.found = figures("kept", 1000, (100.0, 101.0, 102.0))
    assert tilewright("synth", "--ledger") == "tiny on ecp5-25: current\n"
    assert not ledger.measured
    assert ledger.written == ()


def test_a_row_whose_rtl_changed_is_renewed(tilewright, ledger):
    assert tilewright("synth", "--ledger") == "tiny on ecp5-25: no figure is worse\n"
    assert ledger.written == ([row_of(ledger.found)],)


def test_a_row_is_added(tilewright, ledger):
    ledger.found = replace(ledger.found, configuration=PRESETS["4x4"])
    tilewright("synth", "--ledger", "--config", "4x4", "--chip", "ecp5-25")
    assert ledger.written == ([KEPT, row_of(ledger.found)],)


def test_a_check_fails_when_a_figure_is_worse(ledger, capsys):
    ledger.found = figures("new", 1100, (90.0, 90.0, 90.0))
    assert main(["synth", "--check"]) == 1
    assert capsys.readouterr().err == (
        "error: area: tiny on ecp5-25: 1,100 LUT, kept 1,000 (+10.0 %); tiny on ecp5-25: 90.0 MHz, "
        "kept 101.0 (-10.9 %); improve the change, or renew the rows with `make area` and say "
        "why in the commit\n"
    )
    assert ledger.written == ()


def test_a_check_without_places_compares_resources(tilewright, ledger):
    ledger.found = figures("new", 1000, (50.0,))
    assert tilewright("synth", "--check", "--no-place") == "tiny on ecp5-25: no figure is worse\n"
    assert not ledger.measured


def test_a_design_that_is_too_large_is_shown_and_refused(ledger, capsys):
    ledger.found = figures("new", 30_000, (100.0,))
    assert main(["synth", "--config", "tiny", "--chip", "ecp5-25"]) == 1
    said = capsys.readouterr()
    assert "124 %" in said.out
    assert said.err == (
        "error: configuration `tiny` on `ecp5-25`: needs 30,000 LUT, the device has 24,288; lower "
        "`vector_lanes`, then `lanes_in` or `lanes_out`, or choose `ecp5-45`\n"
    )
    assert not ledger.measured


def test_an_asic_is_not_compared_with_a_chip(tilewright, monkeypatch):
    cells = Netlist(((("gemm",), {"gates": 2500, "ff": 90}), (("act",), {"memory_bits": 4096})))
    found = replace(
        figures("new", 0, ()), device=DEVICES["asic"], netlist=cells, packed=cells.total
    )
    monkeypatch.setattr(synth, "synthesise", lambda *arguments, **options: found)
    said = tilewright("synth", "--config", "tiny", "--chip", "asic")
    rows = [line.split() for line in said.splitlines() if line]
    assert ["unit", "gate", "equivalents", "FF", "memory", "bits"] in rows
    assert ["gemm", "2,500", "90", "-"] in rows
    assert rows[-1] == ["core", "2,500", "90", "4,096"]


def test_clock_and_critical_path(tilewright, ledger):
    """`tests/flows/board/test_bitstreams.py` places a machine."""
    path = (CriticalStep("gemm.level", 0.5, 3.5), CriticalStep("gemm.busy", 0.25, 3.75))
    ledger.found = replace(ledger.found, placements=(RoutedDesign(7, 125.0, path),))
    said = tilewright("synth", "--config", "tiny", "--chip", "ecp5-25")
    assert "clock: 125.0 MHz" in said
    assert "critical path of seed 7: " in said
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line}
    assert rows["gemm.level"] == ["3.5", "0.5", "4.0"]


@pytest.mark.slow
def test_figures_by_unit(tilewright):
    command = ["synth", "--config", "tiny", "--chip", "ecp5-25", "--no-place"]
    said = tilewright(*command, "--depth", "2")
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line}
    assert "gemm.array" in rows
    assert rows["chip"][:2] == ["24,288", "24,288"]
    found = json.loads(tilewright(*command, "--json"))
    assert rows["core"][0] == f"{found['resources']['lut']:,}"
    assert found["clock"] is None


@pytest.mark.slow
def test_xilinx_is_estimated(tilewright):
    found = json.loads(tilewright("synth", "--config", "tiny", "--chip", "xc7z020", "--json"))
    assert found["clock"] is None
    assert set(found["tools"]) == {"yosys"}
    assert found["resources"]["multipliers"] == sum(
        unit.get("multipliers", 0) for unit in found["units"].values()
    )


@pytest.mark.slow
def test_a_small_machine_is_no_larger_than_the_ledger_says():
    """Counts resources only; `make area CHECK=1` places too."""
    device = DEVICES["ecp5-25"]
    found = synthesise(PRESETS["tiny"], device, place=False)
    (kept,) = (row for row in read_rows() if row.key == ("tiny", device.name))
    assert worse(kept, row_of(found)) == []
    units = found.netlist.units()
    assert {"load", "gemm", "vector", "store", "fetch", "control"} <= set(units)
    assert found.netlist.total["multipliers"] == sum(u["multipliers"] for u in units.values())
    assert json.loads(json.dumps(found.to_json()))["resources"] == found.resources
    assert not device.short(found.packed)

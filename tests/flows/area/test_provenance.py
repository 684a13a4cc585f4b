"""Measured figures say so when the RTL has changed since."""

import json
from dataclasses import replace

import pytest

from tilewright.flows.area import provenance
from tilewright.flows.area.clock import clock_of
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.ledger import read_rows

ROW = next(row for row in read_rows() if row.configuration == "tiny" and row.clocks_mhz)
DEVICE = DEVICES[ROW.device]


@pytest.fixture
def rtl(monkeypatch):
    """The hash of any RTL, chosen by the test; how often it was asked for."""
    state = {"hash": ROW.rtl, "asked": 0}

    def hash_of(text):
        state["asked"] += 1
        return state["hash"]

    monkeypatch.setattr("tilewright.flows.synthesis.flow.core_rtlil", lambda *_: "")
    monkeypatch.setattr("tilewright.flows.synthesis.flow.hash_of", hash_of)
    monkeypatch.setattr(provenance, "_found", {})
    return state


def test_a_figure_of_other_rtl_says_so(monkeypatch, rtl):
    monkeypatch.setattr(provenance, "_known", lambda kind: "other sources")
    assert "other RTL" not in str(clock_of(ROW.machine, DEVICE))
    monkeypatch.setattr(provenance, "_found", {})
    rtl["hash"] = "changed"
    said = str(clock_of(ROW.machine, DEVICE))
    assert said.endswith("), measured on other RTL; run `tilewright synth`")
    wider = ROW.machine.replace(name="wider", act_depth=32)
    assert "an estimate from measured machines, measured on other RTL" in str(
        clock_of(wider, DEVICE)
    )
    assert not provenance.is_fitted_to_this_rtl(DEVICE)


def test_unchanged_sources_need_no_rtl(monkeypatch, rtl):
    monkeypatch.setattr(provenance, "_known", lambda kind: provenance.source_hash())
    assert "other RTL" not in str(clock_of(ROW.machine, DEVICE))
    assert provenance.is_fitted_to_this_rtl(DEVICE)
    assert rtl["asked"] == 0


def test_lists_of_boards_do_not_wait_for_rtl(monkeypatch, rtl, tilewright):
    monkeypatch.setattr(provenance, "_known", lambda kind: "other sources")
    said = tilewright("boards")
    assert "MHz*" in said
    assert "*: measured before the hardware's sources changed; run `tilewright synth`" in said
    assert not any(one["core_clock_current"] for one in json.loads(tilewright("boards", "--json")))
    assert rtl["asked"] == 0


def test_what_was_measured_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "SOURCES", tmp_path / "it.json")
    provenance.SOURCES.write_text('{"ledger": "", "model": "m"}')
    provenance._known.cache_clear()
    provenance.note_sources(provenance.LEDGER)
    found = json.loads(provenance.SOURCES.read_text())
    assert found == {"ledger": provenance.source_hash(), "model": "m"}
    row = replace(ROW, rtl="none")
    assert provenance.is_of_this_rtl(row, provenance.LEDGER)
    provenance._known.cache_clear()

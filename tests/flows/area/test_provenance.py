"""Measured figures say so when the hardware has changed since."""

import json

import pytest

from tilewright.flows.area import provenance
from tilewright.flows.area.clock import clock_of
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.ledger import read_rows

ROW = next(row for row in read_rows() if row.configuration == "tiny" and row.clocks_mhz)
DEVICE = DEVICES[ROW.device]
NOTE = (
    "measured before the hardware's sources changed; `tilewright synth --config NAME --chip CHIP` "
    "measures again"
)


@pytest.mark.parametrize("is_same", [True, False])
def test_every_command_says_what_is_of_other_sources(monkeypatch, tilewright, is_same):
    known = provenance.source_hash() if is_same else "others"
    monkeypatch.setattr(provenance, "_known", lambda kind: known)
    wider = ROW.machine.replace(name="wider", act_depth=32)
    said = [str(clock_of(machine, DEVICE)) for machine in (ROW.machine, wider)]
    said += [tilewright("boards"), tilewright("config", "show", "--config", "tiny")]
    assert [NOTE in text for text in said] == [not is_same] * 4
    boards = json.loads(tilewright("boards", "--json"))
    assert any(one["core_clock_current"] for one in boards) is is_same


@pytest.mark.parametrize("is_same", [True, False])
def test_figures_say_whether_they_are_of_these_sources(
    monkeypatch, tilewright, model, tmp_path, is_same
):
    known = provenance.source_hash() if is_same else "others"
    monkeypatch.setattr(provenance, "_known", lambda kind: known)
    told, path = tilewright("run", model, "--config", "tiny"), tmp_path / "it.json"
    assert (f"figures of machines {NOTE}: lut, multipliers" in told) is not is_same
    tilewright("report", model, "--config", "tiny", "-o", tmp_path / "it.html", "--json", path)
    efficiency = json.loads(path.read_text("utf-8"))["summary"]["efficiency"]
    assert efficiency["outdated"] == ([] if is_same else ["lut", "multipliers"])
    words = "sweep", model, "--config", "tiny", "--vary", "queue_depth=1,2", "--chip", "ecp5-25"
    names = "clock, ff, lut, multipliers, ram"
    told = tilewright(*words, "--clock", "own", "--json", path)
    assert (f"figures of machines {NOTE}: {names}" in told) is not is_same
    outdated = json.loads(path.read_text("utf-8"))["outdated"]
    assert outdated == ([] if is_same else names.replace("clock", "clock_mhz").split(", "))
    assert "clock" not in "".join(line for line in tilewright(*words).splitlines() if NOTE in line)
    shown = tilewright("config", "show", "tiny", "--chip", "ecp5-25")
    assert ("others are exact" in shown) is is_same
    assert (f"figures of machines {NOTE}: ff, lut, multipliers, ram" in shown) is not is_same


def test_what_was_measured_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "SOURCES", tmp_path / "it.json")
    provenance.SOURCES.write_text('{"ledger": "", "model": "m"}')
    assert not provenance.is_of_these_sources(provenance.LEDGER)
    provenance.note_sources(provenance.LEDGER)
    found = json.loads(provenance.SOURCES.read_text())
    assert found == {"ledger": provenance.source_hash(), "model": "m"}
    assert provenance.is_of_these_sources(provenance.LEDGER)

"""The benchmark of sweeps: a whole command with an empty cache, and its figures."""

import json
from pathlib import Path

import pytest

from tilewright.flows.bench.searches import DIGITS
from tilewright.flows.bench.sweep_speed import main, sentence


def test_the_time_of_all_machines_follows_from_that_of_some():
    row = {"machines": 216, "compiled": 54, "workers": 2, "wall_s": 40.0, "processor_s": 67.5}
    assert sentence(row) == (
        "sweep: 54 machines with 2 workers: 40 s, processor time 1.25 s a machine; all 216 take at "
        "most 160 s at this speed (goal: 300 s)"
    )


@pytest.mark.slow
def test_a_sweep_of_some_machines_is_measured(tmp_path: Path, capsys):
    path = tmp_path / "row.json"
    assert main([str(DIGITS), "--points", "2", "--workers", "0", "--json", str(path)]) == 0
    row = json.loads(path.read_text())
    assert (row["machines"], row["compiled"], row["workers"]) == (216, 2, 0)
    assert row["processor_s"] > 0
    assert capsys.readouterr().out == sentence(row) + "\n"

"""The benchmark of workers: what it derives from the figures, and a whole run of it."""

import json
from pathlib import Path

import pytest

from tilewright.flows.bench import sweep_workers
from tilewright.flows.bench.searches import DIGITS
from tilewright.flows.bench.sweep_workers import main, overhead, sentences, throughput

ONE = {"workers": 1, "machines": 10, "workers_s": 20.0, "own_s": 0.5, "wall_s": 25.0, "idle": 0.0}
TWO = {"workers": 2, "machines": 10, "workers_s": 25.0, "own_s": 0.5, "wall_s": 20.0, "idle": 0.1}


def test_idle_workers_and_doubled_work_lower_the_throughput():
    assert throughput(ONE, ONE) == 1
    assert throughput(ONE, {**TWO, "workers_s": 20.0, "idle": 0.0}) == 2
    assert throughput(ONE, TWO) == pytest.approx(2 * 0.9 * 20 / 25)
    assert overhead(ONE) == pytest.approx(0.5 / 20.5)


def test_figures_are_compared_with_the_goals():
    said = sentences(ONE, TWO).splitlines()
    assert said[0] == (
        "1 workers: 10 machines in 25 s; workers 2.00 s of processor time a machine, without work "
        "0.0% of the time; this process 2.4% of all processor time (goal: 5%)"
    )
    assert said[2] == (
        "throughput of 2 workers: 1.44 times that of one on free cores, 1.25 times by the clock "
        "here (goal: 1.8)"
    )


@pytest.mark.slow
def test_one_worker_and_two_compile_the_same_machines(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(sweep_workers, "VARY", {"lanes": "4x4,8x8", "bus_bits": "32,64"})
    path = tmp_path / "rows.json"
    assert main([str(DIGITS), "--json", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert [(row["workers"], row["machines"]) for row in rows] == [(1, 4), (2, 4)]
    for row in rows:
        assert 0 <= row["idle"] < 1
        assert row["workers_s"] > 0
        assert row["own_s"] > 0
    assert capsys.readouterr().out == sentences(*rows) + "\n"

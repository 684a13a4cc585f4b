"""The benchmark of sweeps: a whole command with an empty cache, and its figures."""

import json
from pathlib import Path

import pytest

from tilewright.flows.bench.resnet18_layers import ConvolutionShape
from tilewright.flows.bench.searches import DIGITS
from tilewright.flows.bench.sweep_speed import candidate_ms, main, sentence
from tilewright.isa.configuration import PRESETS


def test_the_time_of_all_machines_follows_from_that_of_some():
    row = {"machines": 216, "compiled": 54, "workers": 2, "wall_s": 40.0, "processor_s": 67.5,
           "candidate_ms": 4.26}  # fmt: skip
    assert sentence(row) == (
        "sweep: 54 machines with 2 workers: 40 s, processor time 1.25 s a machine; all 216 take at "
        "most 160 s at this speed (goal: 300 s); a schedule of one layer of ResNet-18 is lowered "
        "and timed in 4.3 ms"
    )


def test_schedules_of_a_layer_are_lowered_and_timed():
    """A small layer: the benchmark's own ten take some 10 s."""
    small = ConvolutionShape("small", 7, 64, 64, 1, 1, 1)
    assert candidate_ms(PRESETS["8x8"], [small]) > 0


@pytest.mark.slow
def test_a_sweep_of_some_machines_is_measured(tmp_path: Path, capsys):
    path = tmp_path / "row.json"
    assert main([str(DIGITS), "--points", "2", "--workers", "0", "--json", str(path)]) == 0
    row = json.loads(path.read_text())
    assert (row["machines"], row["compiled"], row["workers"]) == (216, 2, 0)
    assert row["processor_s"] > 0
    assert capsys.readouterr().out == sentence(row) + "\n"

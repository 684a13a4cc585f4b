"""The benchmark of the order in which the accelerator's candidates are tried."""

import json

from tilewright.flows.bench.first_candidates import benches, main, row_of
from tilewright.flows.bench.searches import DIGITS


def test_each_layer_is_compared_with_the_best_of_its_candidates(tmp_path):
    file = tmp_path / "rows.json"
    arguments = [str(DIGITS), "--config", "8x8", "--candidates", "20", "--json", str(file)]
    assert main(arguments) == 0
    rows = json.loads(file.read_text("utf-8"))["rows"]
    assert [row["machine"] for row in rows] == ["8x8"] * len(rows)
    assert len({row["layer"] for row in rows}) == len(rows) > 2
    for row in rows:
        assert 0 <= row["first_five"] <= row["first"]
        assert row["bound"] <= row["best"]
        assert row["timed"] == min(20, row["space"])


def test_the_first_five_are_the_first_of_the_compilers_order():
    bench = next(benches(DIGITS, "8x8"))
    cycles = [bench.cycles(one) for one in bench.candidates()[:20]]
    row = row_of(bench, 20)
    best = min(*cycles, bench.gap.cycles)
    assert row["first_five"] == min(cycles[:5]) / best - 1
    assert row_of(bench, 1)["timed"] == 1


def test_a_number_of_candidates_has_to_be_positive(capsys):
    assert main(["--candidates", "0"]) == 2
    assert "expected at least 1" in capsys.readouterr().err

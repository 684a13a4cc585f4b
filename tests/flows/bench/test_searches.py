"""The benchmark of searches: replayed results, medians, and the share of the hypervolume."""

import math

import pytest
from rich.console import Console

from tilewright.compiler.frontend import import_model
from tilewright.flows.bench.searches import DIGITS, PLAIN, curve, summary, table
from tilewright.flows.sweep import Database, Space, SweepNetwork, sweep
from tilewright.flows.sweep.search import METHODS


@pytest.fixture(scope="module")
def exhausted():
    network = SweepNetwork("digits", import_model(DIGITS))
    database = Database()
    space = Space.of({"lanes": "4x4,8x8,16x16", "bus_bits": "32,128"})
    return sweep([network], space, database, exhaustive=True), database


@pytest.mark.parametrize("method", [PLAIN, *METHODS])
def test_a_replayed_search_gains_and_computes_nothing(exhausted, method, monkeypatch):
    monkeypatch.setattr("tilewright.flows.sweep.executors.run_jobs", None)
    every, database = exhausted
    shares = curve(every, database, method, 1)
    assert len(shares) == math.ceil(len(every.results) / 4) == 2
    assert 0 < shares[0] <= shares[1] < 1


def test_medians_and_the_goal_are_over_seeds():
    curves = [[0.5, 0.99], [0.7, 0.98], [0.1, 0.2]]
    row = summary(curves, machines=8)
    assert row["evaluations"] == [1, 1, 1, 2, 2, 2]
    assert row["hypervolume"] == [0.5, 0.5, 0.5, 0.98, 0.98, 0.98]
    assert (row["goal_median"], row["goal_worst"]) == (2, None)


def test_a_search_that_misses_the_goal_says_so(exhausted):
    console = Console(width=120, record=True)
    rows = [{"method": "random", **summary([[0.5, 0.99], [0.1, 0.2]], machines=8)}]
    console.print(table(rows, "digits", exhausted[0]))
    text = console.export_text()
    assert "of all 6 machines" in text
    assert "never" in text

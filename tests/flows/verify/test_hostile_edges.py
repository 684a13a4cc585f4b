"""Hostile inputs at the edges: each ends in its result or in one sentence."""

from collections import Counter

import pytest

from tilewright.flows.verify.damage import edges
from tilewright.flows.verify.damage.edges import KINDS, edge_trial, hostile_inputs


def test_hostile_inputs_end_in_a_sentence_or_the_right_result(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    found: Counter[tuple[str, str]] = Counter()
    with edge_trial() as trial:
        for seed, source, data in hostile_inputs(range(144)):
            kind, message = trial(data, seed)
            assert kind in ("equal", "refused"), f"seed {seed}: {message}"
            found[source, kind] += 1
    assert {source for source, _ in found} == set(KINDS)
    assert all(found[source, "refused"] for source in KINDS)
    assert sum(found[source, "equal"] for source in KINDS) > 5, "some are harmless"


@pytest.mark.parametrize("problem", [ValueError("raw"), RecursionError("deep"), KeyError("x")])
def test_a_raw_exception_is_a_failure(monkeypatch, tmp_path, problem):
    def fail(path, data):
        raise problem

    monkeypatch.setattr(edges, "KINDS", {"database": (None, fail)})
    kind, message = edges.try_input(tmp_path / "input", b"", 0)
    assert (kind, message) == ("failed", f"{type(problem).__name__}: {problem}")

"""Graphs evaluated jointly give what they give alone, and run common nodes once."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import evaluate
from tilewright.compiler.quantiser import EFFORTS, QuantiserOptions, make_batches, quantise
from tilewright.compiler.quantiser.candidates import CandidateSearch
from tilewright.compiler.quantiser.joint import JointPlan
from tilewright.compiler.quantiser.prepare import prepare

from .networks import small_network


def search_of(**options) -> CandidateSearch:
    net, output = small_network()
    graph = prepare(net.graph(output))
    chosen = QuantiserOptions(equalise=False, **options)
    return CandidateSearch(graph, make_batches(graph, net.inputs(8)), chosen, lambda text: None)


def test_candidates_share_the_layers_before_their_difference() -> None:
    search = search_of()
    (source,) = search.sources
    layers = search.points(search.graph).layers
    last = layers[-1].head
    graphs = [
        search.candidate(source, search.points(search.graph, kept), "mse").inserted.graph
        for kept in ((), (last,))
    ]
    keep = [[graph.outputs[0].value] for graph in graphs]
    alone = [
        len(JointPlan([graph], [names]).steps) for graph, names in zip(graphs, keep, strict=True)
    ]
    together = JointPlan(graphs, keep)
    assert len(together.steps) < sum(alone) * 0.6
    sample = {"x": small_network()[0].inputs(1)["x"][0]}
    for graph, values in zip(graphs, together.run(sample), strict=True):
        expected = evaluate(graph, sample)[graph.outputs[0].name]
        np.testing.assert_array_equal(values[graph.outputs[0].value], expected)


def test_known_statistics_are_not_collected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of()
    (source,) = search.sources
    runs: list[object] = []
    monkeypatch.setattr(
        "tilewright.compiler.quantiser.calibrate.run_jointly", lambda *given: runs.append(given)
    )
    for method in ("mse", "percentile"):
        search.candidate(source, search.points(search.graph), method)
    assert runs == []


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_effort_gives_the_same_result_twice(effort: str) -> None:
    net, output = small_network()
    graph = net.graph(output)
    batches = make_batches(graph, net.inputs(8))
    first, second = (quantise(graph, batches, QuantiserOptions(effort=effort)) for _ in range(2))
    assert first.end_db == second.end_db > 30
    for a, b in zip(first.graph.constants, second.graph.constants, strict=True):
        np.testing.assert_array_equal(a.data, b.data)


@pytest.mark.parametrize(("result_db", "is_corrected"), [(30.0, True), (29.5, False)])
def test_a_correction_that_costs_the_result_is_refused(
    result_db: float, is_corrected: bool
) -> None:
    """Although the states beside it gain much more."""
    search = search_of()
    (source,) = search.sources
    plain = search.candidate(source, search.points(search.graph), "mse")
    plain.ends, plain.end_db = {"result": 30.0, "state": 30.0}, 30.0
    other = replace(
        plain,
        corrections={"conv": np.ones(4)},
        ends={"result": result_db, "state": 40.0},
        end_db=(result_db + 40) / 2,
    )
    assert search.best([plain, other]) is (other if is_corrected else plain)

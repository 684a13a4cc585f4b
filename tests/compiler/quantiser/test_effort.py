"""Efforts in seconds, by a clock that work moves on: the search ends in time with its best."""

import math
import sys

import pytest

from tilewright.compiler.quantiser import QuantisedNetwork, QuantiserOptions, make_batches, quantise
from tilewright.errors import CompileError

from .test_quantise import fragile_network

NODE_S, ELEMENT_S = 1e-4, 1e-6
"""Time that the clock of a test gives each node, and each element of a result."""


class WorkClock:
    """A clock that only the evaluation of nodes moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        module = sys.modules["tilewright.compiler.graph.evaluate"]
        compute = module.evaluate_outputs

        def evaluate_outputs(operator, arrays):
            results = compute(operator, arrays)
            self.now += NODE_S + ELEMENT_S * sum(result.size for result in results)
            return results

        monkeypatch.setattr(module, "evaluate_outputs", evaluate_outputs)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> WorkClock:
    return WorkClock(monkeypatch)


def search(clock: WorkClock, effort: str | float, told: list[str]) -> QuantisedNetwork:
    """Quantise a network that needs a layer in float; the clock starts at 0."""
    net, output = fragile_network()
    graph = net.graph(output)
    batches = make_batches(graph, net.inputs(32))
    options = QuantiserOptions("minmax", equalise=False, effort=effort)
    clock.now = 0.0
    return quantise(graph, batches, options, told.append, clock)


def test_the_search_ends_in_time_and_uses_it(clock) -> None:
    whole = search(clock, "thorough", [])
    needed = clock.now
    assert whole.rescued
    results = {}
    for share in (0.1, 0.3, 1.0, 4.0):
        results[share] = search(clock, needed * share, [])
        assert clock.now < needed * max(share, 0.2)
    least, *_, most = results.values()
    assert least.rescued == ()
    assert most.rescued == whole.rescued
    assert least.end_db < most.end_db == whole.end_db


def test_progress_tells_the_best_and_the_time_left(clock) -> None:
    told: list[str] = []
    result = search(clock, 60.0, told)
    assert told[0] == "calibrating with 32 samples, 60 s left"
    assert told[-1].startswith(f"measuring layers, best {result.end_db:.1f} dB, ")
    assert told[-1].endswith(" s left")


@pytest.mark.parametrize("effort", [0, -1.0, math.inf, math.nan, "fast"])
def test_an_effort_is_a_name_or_seconds(effort) -> None:
    with pytest.raises(CompileError) as caught:
        QuantiserOptions(effort=effort)
    assert str(caught.value) == (
        "quantisation: expected an effort of quick, normal, thorough or seconds above 0, got "
        f"`{effort}`; choose one"
    )

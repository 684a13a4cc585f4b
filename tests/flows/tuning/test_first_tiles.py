"""First tiles that are smaller than the others: legal, exact, and kept only where they gain."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import PRESETS, compile_graph, import_model
from tilewright.compiler import te
from tilewright.flows.tuning.chain_search import Places
from tilewright.flows.tuning.first_tiles import search_first_tiles, with_first_tiles
from tilewright.flows.tuning.layer_bench import LayerBench, Verdict
from tilewright.flows.tuning.network_trials import NetworkTrials
from tilewright.isa.settings import DEFAULT_MEMORY
from tilewright.runtime import Session, open_device

from ...compiler.te.scheduled import TARGET, network

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["4x4"]


@pytest.fixture(scope="module")
def graph():
    return import_model(DIGITS)


def test_a_split_of_data_gets_a_smaller_first_block():
    schedule = te.Schedule.parse(network(), "split(out, y, 4)\nsplit(acc, i, 2)", TARGET)
    texts = list(with_first_tiles(schedule))
    assert "split_first(out, y, 4, 2)\nsplit(acc, i, 2)" in texts
    assert all(text.startswith("split_first(out, y, ") for text in texts)
    assert all(te.Schedule.parse(network(), text, TARGET).program() for text in texts)


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
def test_layers_compute_the_same_with_smaller_first_tiles(graph, layer):
    module = compile_graph(graph, MACHINE)
    bench, names = LayerBench(module, layer), [one.name for one in module.segments[0].layers]
    kernel, given = Places(module, 0).given(names.index(bench.name))
    texts = with_first_tiles(given.schedule(kernel, MACHINE))
    found = [bench.evaluate(text).verdict for text in texts]
    assert found.count(Verdict.OK) > 1
    assert Verdict.WRONG not in found


def test_first_tiles_are_kept_where_the_network_gains(graph):
    memory = replace(DEFAULT_MEMORY, latency_cycles=200)

    def compile_with(schedules):
        return compile_graph(graph, MACHINE, memory=memory, schedules=schedules)

    modules = [compile_with({})]
    trials = NetworkTrials(modules[0], compile_with)
    search_first_tiles(trials, 100, lambda: True)
    assert trials.cycles < trials.before
    assert trials.cycles == min(change.cycles for change in trials.first_tiles)
    modules.append(compile_with(trials.kept))
    assert modules[1].report["cycles"] == trials.cycles
    assert any("split_first(" in layer.schedule for layer in modules[1].segments[0].layers)
    scans = np.random.default_rng(4).uniform(0, 16, graph.inputs[0].type.shape)
    outputs = []
    for module in modules:
        with open_device("sim", MACHINE) as device:
            session = Session(module, device)
            outputs.append(session.run({graph.inputs[0].name: scans.astype(np.float32)}).outputs)
    for name, values in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][name], values)


def test_no_budget_tries_nothing(graph):
    def compile_with(schedules):
        pytest.fail("nothing is tried")

    trials = NetworkTrials(compile_graph(graph, MACHINE), compile_with)
    search_first_tiles(trials, 0, lambda: True)
    search_first_tiles(trials, 100, lambda: False)
    assert not trials.first_tiles

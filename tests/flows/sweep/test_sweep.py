"""The ladder: the same front as an exhaustive sweep, with fewer programs, whoever does the work."""

import gc
import json
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from tilewright.compiler.frontend import import_model
from tilewright.errors import CompileError, UsageError
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.sweep import Database, Space, executors, sweep
from tilewright.flows.sweep.evaluators import SIM, sim
from tilewright.flows.sweep.executors import Done, InProcess, run_jobs
from tilewright.flows.sweep.local_workers import LocalWorkers
from tilewright.flows.sweep.outcome import STATES, SweepNetwork
from tilewright.flows.sweep.outcome_json import outcome_json
from tilewright.flows.sweep.pareto import front
from tilewright.flows.sweep.records import LOST, Record
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel

from ...compiler.test_fusion import Network as Layers

FORTY = {"lanes": "2x2,2x4,4x4,4x8,8x8,8x16,16x8,16x16", "bus_bits": "32,64", "wgt_banks": "1,2,4"}
"""A space of 48 combinations, of which 8 break a rule or are alike."""


@pytest.mark.usefixtures("compiled_anew")
def test_a_machine_leaves_no_cycles_of_objects(digits):
    """Cycles cost time in the garbage collector, and memory until it runs."""
    sim(digits.graph, PRESETS["4x4"], [MemoryModel()])  # imports modules and fills caches
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        sim(digits.graph, PRESETS["4x4"], [MemoryModel()])
        gc.collect()
        kinds = {f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # Threads of other libraries may have left garbage meanwhile.
    assert not {kind for kind in kinds if kind.startswith("tilewright.")}


class Reversing(InProcess):
    """Runs the last batch first, and several before any result is returned."""

    def __init__(self, graphs) -> None:
        super().__init__(graphs)
        self.workers = 3

    def wait(self, handles):
        *_, last = handles
        return [(last, run_jobs(self.graphs, last))]


def told(outcome) -> str:
    """The outcome without what may differ."""
    return json.dumps(outcome_json(outcome), sort_keys=True)


def figures(outcome) -> list[tuple]:
    return [
        (tuple(result.point.chosen.items()), tuple(result.figures[n] for n in outcome.objectives))
        for result in outcome.front
    ]


def test_the_front_is_that_of_an_exhaustive_sweep(swept, kept):
    with Database(kept) as database:
        every = swept(database=database, exhaustive=True)
        assert every.compiled == 0, "all of them are known"
        assert every.counts["front"] + every.counts["beaten"] == 6
        assert figures(swept(database=database)) == figures(every)


@pytest.mark.slow
def test_the_front_of_forty_machines_is_that_of_an_exhaustive_sweep(tmp_path):
    """Of two layers that loads bind; the sweep of fewer machines above is of a whole network."""
    layers = Layers((1, 1, 1, 96))
    graph = layers.graph(layers.conv(layers.conv(layers.input, "first", 64), "second", 20))
    networks, space = [SweepNetwork("two layers", graph)], Space.of(FORTY)
    assert 40 <= len(list(space.machines())) <= 48
    with Database(tmp_path / "forty.db") as database:
        some = sweep(networks, space, database)
        assert some.counts["ruled out"] >= 4
        every = sweep(networks, space, database, exhaustive=True)
        assert every.compiled == some.counts["ruled out"]
        assert figures(some) == figures(every)
    assert len(some.front) > 4
    for result in some.front:
        module = compile_graph(graph, result.point.machine.configuration, cache=False)
        assert module.report["cycles"] == result.cycles[0]


NARROW = {"lanes": "4x4,8x16,16x16", "bus_bits": "32,128"}
"""With 32 bits, LOAD binds 16x16, and 8x16 is faster with 128."""


@pytest.fixture
def short_window(monkeypatch):
    monkeypatch.setattr("tilewright.flows.sweep.ladder.WINDOW", 2)


def test_a_point_that_is_ruled_out_is_not_compiled(swept, short_window):
    outcome = swept(NARROW, objectives=("cycles", "multipliers"))
    assert outcome.counts["ruled out"] > 0
    assert outcome.compiled == len(outcome.results) - outcome.counts["ruled out"]
    for result in outcome.results:
        if result.state == "ruled out":
            least = result.bounds[0], result.figures["multipliers"]
            assert any(
                other.cycles[0] <= least[0] and other.figures["multipliers"] <= least[1]
                for other in outcome.front
            )
            assert result.cycles == ()


def test_cycles_are_those_of_a_compiled_program(swept, kept, digits):
    with Database(kept) as database:
        outcome = swept(database=database)
    for result in outcome.front[:2]:
        configuration = result.point.machine.configuration
        module = compile_graph(digits.graph, configuration, cache=False)
        assert result.cycles == (module.report["cycles"],)
        macs = sum(layer.macs for segment in module.segments for layer in segment.layers)
        peak = configuration.lanes_in * configuration.lanes_out
        assert result.figures["of_peak"] == macs / (result.cycles[0] * peak)
        assert result.figures["ms"] == result.cycles[0] / 100 / 1e3


def test_nothing_is_computed_twice(swept, kept, monkeypatch):
    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(executors, "run_jobs", refuse)
    with Database(kept) as database:
        before = len(database)
        outcome = swept(database=database, exhaustive=True)
        assert (outcome.compiled, outcome.reused) == (0, 6)
        assert len(database) == before


def test_the_order_in_which_results_come_changes_nothing(swept, digits, short_window):
    alone, together = Database(), Database()
    first = swept(NARROW, alone)
    second = swept(NARROW, together, executor=Reversing([digits.graph]))
    assert first.counts["ruled out"] > 0
    assert told(first) == told(second)
    assert list(alone.rows()) == list(together.rows())


@pytest.mark.slow
def test_workers_give_the_same_bytes(swept, digits, short_window):
    machines = {**FORTY, "lanes": "2x2,4x4,4x8,8x8,8x16,16x16", "wgt_banks": "2"}
    alone, together = Database(), Database()
    first = swept(machines, alone)
    executor = LocalWorkers([digits.graph], workers=2)
    try:
        second = swept(machines, together, executor=executor)
    finally:
        executor.close()
    assert first.counts["ruled out"] > 0
    assert told(first) == told(second)
    assert list(alone.rows()) == list(together.rows())


def test_every_memory_has_a_front_of_its_own(swept):
    outcome = swept({"lanes": "4x4,8x8", "latency": "16,200", "bandwidth": "1/4,1/1"})
    assert outcome.compiled == 8, "each memory has a program of its own"
    assert [(r.point.chosen["latency"], r.point.chosen["bandwidth"]) for r in outcome.front] == [
        *[("16", "1/4")] * 2, *[("16", "1/1")] * 2, *[("200", "1/4")] * 2, *[("200", "1/1")] * 2,
    ]  # fmt: skip
    cycles = [result.cycles[0] for result in outcome.front]
    assert cycles[0] > cycles[2]
    assert cycles[6] > cycles[2]


def test_conditions_exclude_points_as_early_as_they_can(swept, kept):
    with Database(kept) as database:
        few = swept(database=database, where=("multipliers <= 60", "latency < 100"))
        assert few.counts["excluded"] == 2
        assert few.reused <= 4
        assert all(result.figures["multipliers"] <= 60 for result in few.front)
        quick = swept(database=database, where=("cycles < 8000",))
        excluded = [result for result in quick.results if result.state == "excluded"]
        assert {result.point.chosen["lanes"] for result in excluded} >= {"4x4"}
        assert all(result.cycles == () for result in excluded if result.bounds[0] >= 8000)
        assert all(result.cycles[0] < 8000 for result in quick.front)
        assert swept(database=database, where=("of_peak > 1",)).front == []


def test_several_networks_count_by_their_weights(digits, kept):
    space = Space.of({"lanes": "4x4,8x8", "bus_bits": "32,128"})
    other = SweepNetwork("other", digits.graph, 3.0)
    with Database(kept) as database:
        outcome = sweep([digits, other], space, database)
    for result in outcome.front:
        assert result.cycles[0] == result.cycles[1]
        assert result.figures["cycles"] == 4 * result.cycles[0]
        assert 0 < result.figures["of_peak"] < 1


def test_a_machine_that_does_not_fit_is_a_failure_with_its_text(swept, tmp_path):
    """Sixteen rows of accumulators hold no tile of this network."""
    with Database(tmp_path / "records.db") as database:
        vary = {"act_depth": "8,1024", "wgt_depth": "16,1024", "extent_bits": "4,12"}
        outcome = swept(vary, database)
        failed = [result for result in outcome.results if result.state == "failed"]
        assert failed
        assert all(result.error and not result.cycles for result in failed)
        assert outcome.counts["front"] > 0
        again = swept(vary, database)
        assert again.compiled == 0
        assert told(again) == told(outcome)


def test_a_worker_that_dies_is_told_and_tried_again(swept, digits):
    """Lost work is a failure of this sweep only."""

    class Dying(InProcess):
        def wait(self, handles):
            first = next(iter(handles))
            if first[0].evaluator == SIM and first[0].configuration.lanes_in == 8:
                return [(first, Done([[Record(error=f"{LOST}it died")]], 0.0))]
            return super().wait(handles)

    database = Database()
    outcome = swept({"lanes": "4x4,8x8"}, database, executor=Dying([digits.graph]))
    assert [result.state for result in outcome.results] == ["front", "failed"]
    assert outcome.results[1].error == "lost: it died"
    again = swept({"lanes": "4x4,8x8"}, database)
    assert [result.state for result in again.results] == ["front", "front"]
    assert again.compiled == 1


def test_a_worker_with_another_version_computes_nothing(swept, digits):
    class Older(InProcess):
        def wait(self, handles):
            first = next(iter(handles))
            return [(first, run_jobs(self.graphs, [replace(job, version="old") for job in first]))]

    database = Database()
    outcome = swept({"lanes": "4x4,8x8"}, database, executor=Older([digits.graph]))
    assert {result.state for result in outcome.results} == {"failed"}
    assert outcome.results[0].error == (
        "lost: the worker has another version of Tilewright; install the same one there"
    )
    assert swept({"lanes": "4x4,8x8"}, database).counts["front"] == 2


def test_a_result_below_its_bound_is_a_fault(swept, digits):
    class Lying(InProcess):
        def wait(self, handles):
            ((handle, done),) = super().wait(handles)
            if handle[0].evaluator == SIM and handle[0].configuration.lanes_in == 8:
                done = Done([[Record({**done.records[0][0].figures, "cycles": 12})]], done.seconds)
            return [(handle, done)]

    outcome = swept({"lanes": "4x4,8x8"}, executor=Lying([digits.graph]))
    assert [result.state for result in outcome.results] == ["front", "failed"]
    assert str(outcome.results[1].error).startswith("cycles 12: expected at least ")


def test_an_interrupted_sweep_has_an_outcome(swept, digits, tmp_path):
    class Interrupted(InProcess):
        count = 0

        def wait(self, handles):
            first = next(iter(handles))
            self.count += first[0].evaluator == SIM
            if self.count == 3:
                raise KeyboardInterrupt
            return super().wait(handles)

    with Database(tmp_path / "records.db") as database:
        outcome = swept(database=database, executor=Interrupted([digits.graph]), exhaustive=True)
        assert outcome.interrupted
        assert outcome.counts["open"] == 4
        assert outcome.counts["front"] + outcome.counts["beaten"] == 2
        rest = swept(database=database, exhaustive=True)
        assert (rest.compiled, rest.reused) == (4, 2)


def test_progress_is_told(swept, kept):
    seen = []
    with Database(kept) as database:
        swept(database=database, progress=seen.append, exhaustive=True)
    assert [progress.done for progress in seen if progress.rung == SIM] == [*range(7)]
    assert seen[-1].front > 0


def test_a_space_without_a_legal_machine_is_refused(digits):
    space = Space.of({"lanes": "4x4", "vector_lanes": "8,16"})
    with pytest.raises(UsageError) as caught:
        sweep([digits], space)
    assert str(caught.value).startswith(
        "space: expected a legal configuration, got none of 2: `lanes_in` must be a multiple of "
        "vector_lanes"
    )


def test_a_space_too_large_to_list_is_refused(digits):
    depths = ",".join(str(1 << shift) for shift in range(3, 17))
    space = Space.of(dict.fromkeys(("act_depth", "wgt_depth", "acc_depth", "latency"), depths))
    large = Space((*space.dimensions, *Space.of({"queue_depth": "1..64"}).dimensions))
    assert large.combinations == 268_912
    with pytest.raises(UsageError) as caught:
        sweep([digits], large)
    assert str(caught.value) == (
        "space: expected at most 250,000 combinations, got 268,912; vary fewer values, or compile "
        "only some of them: add `--search random --evaluations 200`"
    )


def test_a_network_without_accelerated_layers_is_refused(digits, tmp_path):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    save(helper.make_model(graph), tmp_path / "float.onnx")
    network = SweepNetwork("float", import_model(tmp_path / "float.onnx"))
    for networks in ([network], [digits, network]):
        with pytest.raises(CompileError) as caught:
            sweep(networks, Space.of({"lanes": "4x4"}))
        assert str(caught.value) == (
            "model `float`: expected layers on the accelerator, got none, so there are no cycles "
            "to compare; no convolution and no matrix product depends on the network's inputs"
        )


def test_every_state_is_explained(swept, kept):
    with Database(kept) as database:
        outcome = swept(database=database)
    assert {result.state for result in outcome.results} <= STATES.keys()
    values = [[result.figures[name] for name in outcome.objectives] for result in outcome.front]
    assert front(np.array(values)).all()

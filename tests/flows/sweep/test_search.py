"""Searches: few machines of a large space, the same ones whoever compiles them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import UsageError
from tilewright.flows.sweep import Database, Search, Space
from tilewright.flows.sweep.evaluators import BOUND, SIM, version_of
from tilewright.flows.sweep.executors import Done, InProcess, run_jobs
from tilewright.flows.sweep.outcome_json import outcome_json
from tilewright.flows.sweep.pareto import front, hypervolume
from tilewright.flows.sweep.records import Record, configuration_digest
from tilewright.flows.sweep.search import METHODS
from tilewright.flows.sweep.search.drawing import BATCH, LISTED, Drawing
from tilewright.flows.sweep.space import Rejected

WIDE = {
    "lanes": "4x4,4x8,8x8,8x16,16x8,16x16",
    "bus_bits": "32,128",
    "act_depth": "128..512",
    "wgt_depth": "64..256",
    "acc_depth": "32,128",
}
"""A space of 216 machines."""

TIMED = {"macs": 1, "energy_nj": 1, "limits": {}, "layers": []}
"""Figures of a program beside its cycles."""

HUGE = {
    "lanes_in": "2..64",
    "lanes_out": "2..64",
    "vector_lanes": "2..64",
    **dict.fromkeys(("act_depth", "wgt_depth", "acc_depth"), "8..65536"),
    **dict.fromkeys(("queue_depth", "outstanding_bursts"), "1..64"),
    **dict.fromkeys(("tile_loops", "map_loops", "dma_loops"), "1..6"),
}
"""A space of some 10^9 combinations, most of which break a rule."""


OBJECTIVES = ("cycles", "multipliers", "ram")


class Formula(InProcess):
    """Takes cycles from a formula instead of compiling: shallow memories cost time."""

    def __init__(self, graphs) -> None:
        super().__init__(graphs)
        self.compiled: list[str] = []

    def wait(self, handles):
        batch = self.pick(list(handles))
        if batch[0].evaluator != SIM:
            return [(batch, run_jobs(self.graphs, batch))]
        return [(batch, Done([self.cycles(job) for job in batch], 0.0))]

    def pick(self, handles):
        return handles[0]

    def cycles(self, job) -> list[Record]:
        machine = job.configuration
        self.compiled.append(configuration_digest(machine))
        bound = replace(job, evaluator=BOUND, version=version_of(BOUND))
        (records,) = run_jobs(self.graphs, [bound]).records
        shallow = 64 / machine.act_depth + 32 / machine.wgt_depth + 64 / machine.acc_depth
        ratio = 1 + shallow * (1 + 4 * machine.lanes_in / machine.bus_bits)
        return [
            Record({**TIMED, "cycles": math.ceil(each.figures["cycles"] * ratio)})
            for each in records
        ]


class Together(Formula):
    """Returns the last batch first, as several workers may."""

    def __init__(self, graphs) -> None:
        super().__init__(graphs)
        self.workers = 3

    def pick(self, handles):
        return handles[-1]


class Watched(Formula):
    """Counts how often a single batch is left to wait for."""

    def __init__(self, graphs) -> None:
        super().__init__(graphs)
        self.workers, self.lonely = 3, 0

    def pick(self, handles):
        self.lonely += len(handles) == 1 and handles[0][0].evaluator == SIM
        return super().pick(handles)


def test_a_random_search_keeps_the_workers_busy(swept, digits):
    """Workers run out of machines twice: some of the first draw are ruled out and replaced."""
    watched = Watched([digits.graph])
    swept(WIDE, executor=watched, search=Search("random", 24, 3))
    assert len(watched.compiled) == 24
    assert watched.lonely == 2  # in batches of eight: 4


def told(outcome) -> str:
    return json.dumps(outcome_json(outcome), sort_keys=True)


def volume(outcome, reference) -> float:
    """The hypervolume of the compiled machines."""
    rows = [[r.figures[name] for name in OBJECTIVES] for r in outcome.results if r.cycles]
    values = np.log(np.array(rows))
    return hypervolume(values[front(values)], reference)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_decides_everything(swept, digits, method):
    """Whoever compiles, in whatever order, and with whatever results known."""
    search = Search(method, 24, 3)
    alone, together = Formula([digits.graph]), Together([digits.graph])
    database = Database()
    first = swept(WIDE, database, executor=alone, search=search)
    second = swept(WIDE, executor=together, search=search)
    assert told(first) == told(second)
    assert sorted(alone.compiled) == sorted(together.compiled)
    assert len(alone.compiled) == len(set(alone.compiled)) == first.evaluated == 24
    again = swept(WIDE, database, executor=Formula([digits.graph]), search=search)
    assert (again.compiled, again.reused, again.evaluated) == (0, 24, 24)
    assert told(again) == told(first)
    other = Formula([digits.graph])
    longer = swept(WIDE, database, executor=other, search=Search(method, 24 + BATCH, 3))
    assert (longer.compiled, longer.reused) == (BATCH, 24)
    if method != "model":  # in a space smaller than its pool, the model leaves little to chance
        other = Formula([digits.graph])
        swept(WIDE, executor=other, search=Search(method, 24, 4))
        assert set(other.compiled) != set(alone.compiled)


@pytest.mark.parametrize("method", METHODS)
def test_a_search_ends_when_the_space_does(swept, digits, method):
    """Every machine is compiled, or ruled out, or breaks a condition."""
    vary = {"lanes": "4x4,8x8,16x16", "act_depth": "64..256", "vector_lanes": "4,8"}
    space = Space.of({**vary, "latency": "16,200"})
    options = {"where": ("multipliers < 130",), "executor": Formula([digits.graph])}
    found = swept(space, search=Search(method, 1000), **options)
    every = swept(space, exhaustive=True, **options)
    assert found.evaluated < 1000
    assert found.counts["open"] == 0
    assert found.counts["excluded"] == every.counts["excluded"] > 0
    assert found.rejected.count == every.rejected.count > 0
    assert found.front
    fronts = [
        {(r.point.chosen["latency"], *(r.figures[name] for name in OBJECTIVES)) for r in o.front}
        for o in (found, every)
    ]
    assert fronts[0] == fronts[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_huge_space_is_searched_without_listing_it(swept, digits, method, monkeypatch):
    monkeypatch.setattr("tilewright.flows.sweep.search.model.POOL", 64)
    space = Space.of(HUGE)
    assert space.combinations > 10**9
    outcome = swept(space, executor=Formula([digits.graph]), search=Search(method, 24))
    assert outcome.evaluated == 24
    assert outcome.counts["front"] > 0
    assert len(outcome.results) < 2000


def test_the_model_needs_a_few_machines_where_chance_needs_many(swept, digits):
    executor = Formula([digits.graph])
    database = Database()
    every = swept(WIDE, database, executor=executor, exhaustive=True)
    rows = [[r.figures[name] for name in OBJECTIVES] for r in every.results if r.cycles]
    reference = np.log(np.array(rows)).max(axis=0) + 0.1
    whole = volume(every, reference)

    def share(method: str, seed: int) -> float:
        search = Search(method, 32, seed)
        return volume(swept(WIDE, database, executor=executor, search=search), reference) / whole

    assert min(share("model", seed) for seed in range(3)) > 0.98
    assert float(np.median([share("random", seed) for seed in range(5)])) < 0.96


@pytest.mark.parametrize("method", METHODS)
def test_failed_machines_are_evaluated_once(swept, digits, method):
    class Failing(Formula):
        def cycles(self, job):
            if job.configuration.act_depth < 512:
                self.compiled.append(configuration_digest(job.configuration))
                return [Record(error="does not fit")] * len(job.memories)
            return super().cycles(job)

    executor = Failing([digits.graph])
    outcome = swept(WIDE, executor=executor, search=Search(method, 32))
    assert outcome.evaluated == len(set(executor.compiled)) == len(executor.compiled) == 32
    assert outcome.counts["failed"] > 0
    assert outcome.counts["front"] > 0
    if method == "model":
        assert outcome.counts["failed"] < 16, "it learns where machines fail"


def test_an_interrupted_search_has_an_outcome(swept, digits):
    class Interrupted(Formula):
        def cycles(self, job):
            if len(self.compiled) == 12:
                raise KeyboardInterrupt
            return super().cycles(job)

    database = Database()
    search = Search("model", 24)
    outcome = swept(WIDE, database, executor=Interrupted([digits.graph]), search=search)
    assert outcome.interrupted
    assert outcome.counts["front"] > 0
    rest = swept(WIDE, database, executor=Formula([digits.graph]), search=search)
    assert (rest.compiled, rest.reused) == (12, 12)


def test_each_legal_machine_is_drawn_once():
    space = Space.of({"lanes": "4x4,8x8,16x16", "vector_lanes": "4,8,16", "lut_tables": "1,2"})
    rejected = Rejected()
    drawing = Drawing(space, 5, rejected)
    drawn = [machine.configuration.parameters() for machine in drawing.draw(1000)]
    listed = [machine.configuration.parameters() for machine in space.machines()]
    assert drawn != listed
    assert sorted(map(str, drawn)) == sorted(map(str, listed))
    assert rejected.count == space.combinations - len(listed) > 0
    assert drawing.draw(1) == []


def test_a_space_beyond_the_list_is_drawn_from():
    space = Space.of(HUGE)
    assert space.combinations > LISTED
    drawn = [
        [machine.chosen for machine in Drawing(space, seed, Rejected()).draw(20)]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({str(chosen) for chosen in drawn[0]}) == 20


def test_neighbours_differ_by_one_value():
    drawing = Drawing(Space.of({"lanes": "4x4,8x8,16x16", "bus_bits": "32,64"}), 0, Rejected())
    assert set(drawing.neighbours((0, 1))) == {(1, 1), (0, 0)}
    assert set(drawing.neighbours((1, 0))) == {(0, 0), (2, 0), (1, 1)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("modle", 10),
            "`--search modle`: expected one of random, nsga2, model; did you mean `model`?",
        ),
        (("model", 0), "`--evaluations 0`: expected at least 1 machine; correct it"),
        (("model", 10, -1), "`--seed -1`: expected 0 or more; correct it"),
    ],
)
def test_an_impossible_search_is_explained(arguments, message):
    with pytest.raises(UsageError) as caught:
        Search(*arguments)
    assert str(caught.value) == message

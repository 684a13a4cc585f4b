"""Tuning: who gets trials, when it stops, and what is recorded; times come from a formula."""

import itertools
import json
from dataclasses import replace

import pytest

from tilewright.compiler.cpu import MatrixProduct, generic
from tilewright.compiler.cpu.kernels.choices import choice_text
from tilewright.errors import UsageError
from tilewright.flows.execution.recorded_choices import best_texts, target_digest
from tilewright.flows.sweep.records import Database, DatabaseError
from tilewright.flows.tuning.kernel_records import KernelRecords
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.measuring import TrialMeasurer
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.ranking import TriedTask
from tilewright.flows.tuning.tasks import KernelTask
from tilewright.flows.tuning.tune import PATIENCE, TuningBudget, tune
from tilewright.flows.tuning.tuners import TUNERS, open_tuner

TARGET = generic("avx2")
VERSIONS = {"code": "as it is"}


class ModelMeasurer(TrialMeasurer):
    """Gives times by a formula of the choices, and failures to some."""

    def __init__(self, best=("vectors=2", "rows=4"), interrupt_after=None):
        self.best, self.asked, self.interrupt_after = best, [], interrupt_after

    def measure(self, setting, choices, incumbent):
        for choice in choices:
            if len(self.asked) == self.interrupt_after:
                raise KeyboardInterrupt
            self.asked.append(choice)
            yield self.outcome(setting, choice, incumbent)

    def outcome(self, setting, choice, incumbent):
        text = choice_text(choice)
        if "rows_outside=1" in text and "apart=1" in text:
            return TrialOutcome(choice, TrialVerdict.WRONG, "3 values differ", "program")
        ratio = self.ratio(text)
        to_incumbent = ratio / (self.ratio(choice_text(incumbent)) if incumbent else 1.0)
        seconds = setting.product.macs * 1e-9
        times = Times(ratio, to_incumbent, ratio * seconds, 0.0, seconds, 31)
        return TrialOutcome(choice, TrialVerdict.OK, "", f"{hash(text):x}", "steps", times)

    def ratio(self, text):
        return 1.0 - 0.1 * sum(one in text.split(",") for one in self.best)

    def close(self):
        pass


def task(rows=24, names=("y",)):
    return KernelTask(names, MatrixProduct(rows, 64, 96), CpuMachine(TARGET, 1))


def records(path=None):
    return KernelRecords(Database(path), VERSIONS)


def tuned(tasks, measurer=None, tuner="random", budget="1000", book=None, **more):
    book = book or records()
    parsed = TuningBudget.parse(budget)
    return tune(tasks, measurer or ModelMeasurer(), book, tuner, parsed, **more)


@pytest.mark.parametrize("tuner", TUNERS)
def test_equal_seeds_give_equal_logs_and_winners(tuner):
    tasks = [task(), task(36)]
    logs = [json.dumps(tuned(tasks, tuner=tuner, seed=5, budget="64").to_json()) for _ in range(2)]
    assert logs[0] == logs[1]


def test_every_tuner_finds_the_best_of_a_whole_space():
    space = task(3).space()
    model = ModelMeasurer(best=("vectors=2", "rows=1"))
    fine = [p for p in space.points if "rows_outside=1,apart=1" not in choice_text(p)]
    least = min(model.ratio(choice_text(point)) for point in fine)
    assert least < 0.9
    for tuner in TUNERS:
        method, seen = open_tuner(tuner, task(3), space, 1), []
        while points := method.propose(32):
            seen += points
            for point in points:
                method.learn(point, model.ratio(choice_text(space.points[point])))
        assert sorted(seen) == list(range(len(space))), tuner


def test_evolution_needs_fewer_trials_than_chance():
    space, model = task(96).space(), ModelMeasurer()
    ratios = [model.ratio(choice_text(point)) for point in space.points]

    def trials(tuner, seed):
        method = open_tuner(tuner, task(96), space, seed)
        for count in itertools.count(1):
            (point,) = method.propose(1)
            method.learn(point, ratios[point])
            if ratios[point] == min(ratios):
                return count
        raise AssertionError

    middle = {
        tuner: sorted(trials(tuner, seed) for seed in range(20))[10]
        for tuner in ("evolutionary", "random")
    }
    assert middle["evolutionary"] < middle["random"]


def test_trials_go_to_the_kernel_with_the_most_to_gain():
    small, large = task(4, ("small",)), task(400, ("a", "b", "c"))
    report = tuned([small, large], budget="40")
    counts = {one.task.names[0]: len(one.outcomes) for one in report.states}
    assert counts["a"] > counts["small"]
    assert sum(counts.values()) == report.trials == 40
    assert report.stopped == "budget of 40 trials"


def test_a_run_ends_when_nothing_is_gained():
    report = tuned([task(400)], ModelMeasurer(best=()))
    (state,) = report.states
    assert state.stopped == f"no gain over the noise in {PATIENCE} batches"
    assert report.stopped == "no task has anything left to gain"
    assert state.best is None


def test_seconds_are_those_of_the_clock():
    clock = itertools.count(0, 10)
    report = tuned([task(400)], budget="60s", clock=lambda: next(clock))
    assert report.stopped == "budget of 60 s"
    assert 0 < report.trials < 60


def test_failures_are_outcomes_and_never_best():
    book = records()
    report = tuned([task()], tuner="grid", book=book, budget="60")
    (state,) = report.states
    assert state.verdicts["wrong result"] > 0
    assert state.best is not None
    assert state.best.verdict is TrialVerdict.OK
    errors = {row["error"] for row in book.database.rows()} - {None}
    assert errors == {"wrong result: 3 values differ"}


def test_an_interrupted_run_keeps_its_best_and_continues(tmp_path):
    whole = tuned([task()], budget="60", seed=2).to_json()
    with Database(tmp_path / "records.db") as database:
        book = KernelRecords(database, VERSIONS)
        first = ModelMeasurer(interrupt_after=21)
        report = tuned([task()], first, budget="60", seed=2, book=book)
        assert report.stopped == "interrupted; the same command continues"
        assert best_texts(database)
    with Database(tmp_path / "records.db") as database:
        second = ModelMeasurer()
        book = KernelRecords(database, VERSIONS)
        again = tuned([task()], second, budget="60", seed=2, book=book).to_json()
    assert again == whole
    assert not set(first.asked) & set(second.asked)


def test_a_full_disk_does_not_hide_what_was_found(tmp_path):
    whole = tuned([task()], budget="40").to_json()
    database = Database(tmp_path / "records.db")
    database._connection.execute("pragma max_page_count = 1")
    assert tuned([task()], budget="40", book=KernelRecords(database, VERSIONS)).to_json() == whole
    with pytest.raises(DatabaseError, match=r"full.*make room"):
        database.__exit__(None)


def test_records_of_another_version_are_measured_again():
    book = records()
    tuned([task()], budget="20", book=book)
    book.versions = {"code": "changed"}
    again = ModelMeasurer()
    tuned([task()], again, budget="20", book=book)
    assert len(again.asked) == 20


def test_the_best_is_found_with_its_target_only():
    book = records()
    tuned([task()], book=book, tuner="grid", budget="200")
    found = best_texts(book.database)
    assert list(found) == [(task().workload, target_digest(TARGET, 1))]
    assert target_digest(TARGET, 2) != target_digest(TARGET, 1)
    assert target_digest(generic("sse2"), 1) != target_digest(TARGET, 1)


def test_lines_are_merged_once(tmp_path):
    book, lines = records(), tmp_path / "records.jsonl"
    tuned([task()], book=book, tuner="grid", budget="60")
    count = book.export(lines)
    other = records()
    assert other.merge_lines(lines) == count
    assert other.merge_lines(lines) == 0
    assert best_texts(other.database) == best_texts(book.database)
    other.export(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == lines.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"evaluator": "sim"},
        {"figures": {"ratio": float("nan")}},
        {"figures": 3},
        {"choice": "$(reboot)"},
        {"parameters": {"threads": 99}},
        {"name": "two\nlines"},
        {"more": 1},
    ],
)
def test_strange_lines_are_refused_and_nothing_is_added(tmp_path, change):
    book, lines = records(), tmp_path / "records.jsonl"
    tuned([task()], book=book, tuner="grid", budget="4")
    book.export(lines)
    first, *others = lines.read_text().splitlines()
    strange = json.dumps({**json.loads(first), **change})
    lines.write_text("\n".join([*others, strange]))
    other = records()
    with pytest.raises(UsageError, match=r"line \d: expected a record of `tilewright tune`, got"):
        other.merge_lines(lines)
    assert len(other.database) == 0


@pytest.mark.parametrize("text", ["", "0", "60x", "-5s", "1e3", "s", "99999999"])
def test_strange_budgets_are_refused(text):
    with pytest.raises(UsageError, match="expected a time such as 60s, 5m or 2h, or a number"):
        TuningBudget.parse(text)


def test_what_other_tasks_taught_is_used_before_the_first_trial():
    model, other = ModelMeasurer(), task(48)
    known = other.space().points
    history = [
        TriedTask(
            [other.features(point) for point in known],
            [model.ratio(choice_text(point)) for point in known],
        )
    ]
    mine = task(96)
    space = mine.space()
    ratios = [model.ratio(choice_text(point)) for point in space.points]
    tuner = open_tuner("xgboost", mine, space, 0, history)
    assert tuner.propose(1) == [0]
    assert min(ratios[point] for point in tuner.propose(8)) == min(ratios)


def test_records_teach_other_tasks_and_not_their_own():
    book = records()
    tuned([task()], book=book, budget="20")
    assert book.history(task()) == []
    (group,) = book.history(task(36))
    assert len(group.ratios) == 20
    features = [task().features(point) for point in task().space().points]
    assert all(each in features for each in group.features)


class SlowDefaultMeasurer(ModelMeasurer):
    """Gives abandoned candidates a good ratio, as if only the default had been disturbed."""

    def __init__(self, to_incumbent, turns):
        super().__init__(best=("vectors=2",))
        self.to_incumbent, self.turns = to_incumbent, turns

    def outcome(self, setting, choice, incumbent):
        found = super().outcome(setting, choice, incumbent)
        if found.times is None or found.times.ratio == 1:
            return found
        times = replace(found.times, to_incumbent=self.to_incumbent, turns=self.turns)
        return replace(found, times=times)


@pytest.mark.parametrize(("to_incumbent", "turns"), [(1.4, 3), (1.1, 31), (0.9, 11)])
def test_the_best_beats_the_incumbent_in_all_turns(to_incumbent, turns):
    book = records()
    measurer = SlowDefaultMeasurer(to_incumbent, turns)
    (state,) = tuned([task()], measurer, budget="60", book=book).states
    assert min(one.ratio for one in state.outcomes if one.ratio) == 0.9
    assert state.best is None
    assert not best_texts(book.database)

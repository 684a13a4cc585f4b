"""Logs of tuning runs: what is written, which one counts, and the page's data."""

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.sweep.records import Database, Record, RecordKey
from tilewright.flows.tuning.page import page_data, render
from tilewright.flows.tuning.run_log import RUN, LoggedTrial, RunLog, add_log, logs_of

from .test_tune import ModelMeasurer, records, task, tuned


def log(count=3, **changed):
    trials = tuple(
        LoggedTrial({"rows": at}, "ok", 1 - at / 10, 0.01, -at / 10) for at in range(count)
    )
    values = {
        "title": "conv", "place": "here", "workload": "w", "target": "t", "tuner": "random",
        "seed": 0, "space": 9, "unit": "s", "default": 1e-3, "bound": 0.0, "trials": trials,
    }  # fmt: skip
    return RunLog(**(values | changed))


def test_a_run_writes_its_trials_in_order():
    book = records()
    report = tuned([task(), task(36, ("z",))], tuner="grid", budget="40", book=book)
    found = {one.workload: one for one in logs_of(book.database)}
    assert len(found) == 2
    for state in report.states:
        mine = found[state.task.workload]
        assert [one.choice for one in mine.trials] == [dict(one.choice) for one in state.outcomes]
        assert [one.ratio for one in mine.trials] == [one.ratio for one in state.outcomes]
        assert (mine.tuner, mine.seed, mine.space) == ("grid", 0, len(state.space))
        assert all(one.predicted is None for one in mine.trials)


def test_a_run_that_is_continued_counts_once():
    book = records()
    tuned([task()], ModelMeasurer(interrupt_after=21), budget="60", seed=2, book=book)
    (first,) = logs_of(book.database)
    tuned([task()], budget="60", seed=2, book=book)
    (second,) = logs_of(book.database)
    assert first.trials == second.trials[: len(first.trials)]
    assert len(first.trials) < len(second.trials)
    tuned([task()], budget="60", seed=3, book=book)
    assert sorted(one.seed for one in logs_of(book.database)) == [2, 3]


def test_a_model_says_what_it_expects_before_a_trial():
    book = records()
    tuned([task(96)], tuner="random", budget="60", book=book)
    report = tuned([task(48)], tuner="xgboost", budget="40", book=book)
    (mine,) = (one for one in logs_of(book.database) if one.tuner == "xgboost")
    assert mine.trials[0].predicted is None, "the default comes first"
    judged = [(one.ratio, one.predicted) for one in mine.trials[1:]]
    assert all(score is not None for _, score in judged)
    timed = [(ratio, score) for ratio, score in judged if ratio and score is not None]
    pairs = [
        score < other_score
        for ratio, score in timed
        for other, other_score in timed
        if ratio > other
    ]
    assert sum(pairs) > 0.6 * len(pairs), "more is faster"
    assert report.states[0].scores == [one.predicted for one in mine.trials]


@pytest.mark.parametrize(
    "change",
    [
        {"trials": 3},
        {"trials": [{"choice": {"rows": 1}, "verdict": "ok", "ratio": -1, "noise": 0,
                     "predicted": None}]},
        {"trials": [{"choice": {"rows": [1]}, "verdict": "ok", "ratio": 1, "noise": 0,
                     "predicted": None}]},
        {"unit": "pages"},
        {"default": 0},
        {"title": None},
    ],
)  # fmt: skip
def test_strange_logs_are_left_out(change):
    with Database() as database:
        add_log(database, log())
        ((key, record),) = database.of_evaluator(RUN)
        other = RecordKey(RUN, "another", *(key.network, key.configuration, key.memory))
        database.add([(other, Record({**record.figures, "tuner": "grid", **change}))])
        assert list(logs_of(database)) == [log()]


def test_candidates_of_several_runs_are_points_of_one_task():
    data = page_data("net", [log(3), log(2, seed=1), log(4, tuner="grid"), log(1, title="other")])
    (conv, other) = data["tasks"]
    assert (conv["title"], other["title"]) == ("conv", "other")
    assert [point["choice"]["rows"] for point in conv["points"]] == [0, 1, 2, 3]
    assert [(run["tuner"], run["seed"]) for run in conv["runs"]] == [
        ("grid", 0), ("random", 0), ("random", 1),
    ]  # fmt: skip
    assert conv["runs"][2]["trials"] == [[0, 1, 0.0], [1, 0.9, -0.1]]


def test_text_of_records_stays_text():
    page = render(page_data("net", [log(title="</script><script>alert(1)")]))
    assert "alert(1)" in page
    assert "<script>alert" not in page


def test_the_command_draws_runs_of_the_past(tmp_path, capsys):
    path, page = tmp_path / "records.db", tmp_path / "page.html"
    with Database(path) as database:
        add_log(database, log(title="first conv"))
    assert main(["tune", "--database", str(path), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: open the page in a browser\n"
    assert "first conv" in page.read_text("utf-8")
    empty = tmp_path / "empty.db"
    assert main(["tune", "--database", str(empty), "-o", str(tmp_path / "none.html")]) == 2
    assert capsys.readouterr().err == (
        f"error: `--database {empty}`: expected records of earlier runs, got no such file; correct "
        f"the path, or tune first: `tilewright tune MODEL --database {empty}`\n"
    )
    assert not empty.exists()
    Database(empty).close()
    assert main(["tune", "--database", str(empty), "-o", str(tmp_path / "none.html")]) == 2
    assert capsys.readouterr().err == (
        f"error: `--output {tmp_path / 'none.html'}`: expected records of a run, got "
        f"none in `{empty}`; tune a model without `--list` first\n"
    )
    assert not (tmp_path / "none.html").exists()

"""Shipped schedules: who uses them, what wins over them, and that they fit today's planners."""

import json
from pathlib import Path

import pytest

from tilewright import compile_graph, import_model
from tilewright.compiler.cpu import MatrixProduct, generic, host
from tilewright.compiler.cpu.kernels.choices import choice_of, choice_text
from tilewright.compiler.placement import Placement
from tilewright.flows.bench import shipped_records
from tilewright.flows.bench.shipped_records import graph_of
from tilewright.flows.cli.main import main
from tilewright.flows.execution import shipped_choices
from tilewright.flows.execution.recorded_choices import (
    NO_RECORDS,
    RECORDS_VARIABLE,
    best_texts,
    recorded_schedules,
    recorded_texts,
    usable_threads,
)
from tilewright.flows.execution.shipped_choices import (
    SHIPPED,
    ShippedRecord,
    ShippedSet,
    processor_name,
    set_lines,
    shipped_sets,
    shipped_texts,
)
from tilewright.flows.sweep.records import Database
from tilewright.flows.tuning.kernel_records import KernelRecords
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.tasks import KernelTask, tasks_of
from tilewright.flows.tuning.tune import TuningBudget, tune
from tilewright.isa.configuration import DEFAULT
from tilewright.isa.settings import DEFAULT_MEMORY
from tilewright.runtime.artifact import artifact_bytes

from .test_tune import ModelMeasurer

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
SHIPPED_CHOICE, OWN_CHOICE = "vectors=1,unroll=2", "vectors=1"
MAX_BYTES = 60_000


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Return a function that lets a file of one set be the shipped one."""
    path = tmp_path / "shipped.jsonl"
    monkeypatch.setattr(shipped_choices, "SHIPPED", path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(RECORDS_VARIABLE)

    def write(task, choice, threads=None, alike=False):
        records = [ShippedRecord(task.workload, choice, 0.5, alike, "a network: a kernel")]
        machine = task.machine
        made = ShippedSet(
            processor_name(), machine.host.triple, machine.host.level, threads or machine.threads,
            "2026-01-01", "a command", {}, tuple(records),
        )  # fmt: skip
        path.write_text(set_lines([made]))
        shipped_texts.cache_clear()

    yield write
    shipped_texts.cache_clear()


def dense():
    tasks = tasks_of(import_model(DIGITS), CpuMachine(host(), usable_threads()))
    return next(task for task in tasks if "dense" in task.names[0])


def on_cpu():
    return compile_graph(import_model(DIGITS), placement=Placement("host"))


@pytest.mark.cpu_kernels
def test_a_shipped_schedule_is_used_and_gives_the_same_program_every_time(ship, monkeypatch):
    monkeypatch.setenv(RECORDS_VARIABLE, NO_RECORDS)
    ship(dense(), SHIPPED_CHOICE)
    plain = artifact_bytes(on_cpu())
    monkeypatch.delenv(RECORDS_VARIABLE)
    module = on_cpu()
    assert list(module.choices.values()) == [SHIPPED_CHOICE]
    assert artifact_bytes(module) == artifact_bytes(on_cpu()) != plain


@pytest.mark.cpu_kernels
@pytest.mark.parametrize("change", ["threads", "processor"])
@pytest.mark.parametrize("alike", [False, True])
def test_a_shipped_schedule_is_for_its_processor_and_threads(ship, monkeypatch, change, alike):
    ship(dense(), SHIPPED_CHOICE, usable_threads() + (change == "threads"), alike)
    if change == "processor":
        monkeypatch.setattr(shipped_choices, "processor_name", lambda: "another")
    # A schedule whose loops threads share as they share the default's suits any number.
    assert bool(on_cpu().choices) == (alike and change == "threads")


@pytest.mark.cpu_kernels
@pytest.mark.parametrize(("choice", "ratio"), [(choice_of(OWN_CHOICE), 0.9), ((), 1.0)])
def test_a_record_of_the_users_own_wins(ship, tmp_path, monkeypatch, choice, ratio):
    ship(dense(), SHIPPED_CHOICE)
    path = tmp_path / "records.db"
    with Database(path) as database:
        times = Times(ratio, ratio, 1e-6, 0.0, 2e-6, 31)
        outcome = TrialOutcome(choice, TrialVerdict.OK, "", "program", "steps", times)
        KernelRecords(database).add_best(dense(), outcome, {})
    monkeypatch.setenv(RECORDS_VARIABLE, str(path))
    assert list(on_cpu().choices.values()) == ([OWN_CHOICE] if choice else [])


@pytest.mark.cpu_kernels
def test_the_commands_say_that_shipped_schedules_are_used(ship, tmp_path, capsys):
    ship(dense(), SHIPPED_CHOICE)
    target = tmp_path / "digits.tw"
    command = ["compile", str(DIGITS), "--placement", "host", "-o", str(target)]
    said = "records: schedules of 1 kernel shipped with Tilewright; `--no-records` ignores them"
    for _ in range(2):  # the second time from the cache
        assert main(command) == 0
        assert said in capsys.readouterr().out
    assert main(["run", str(target), "--device", "host", "--compare"]) == 0
    assert said in capsys.readouterr().out
    assert main([*command, "--no-records"]) == 0
    assert "records:" not in capsys.readouterr().out


def small_task():
    return KernelTask(("y",), MatrixProduct(24, 64, 96), CpuMachine(generic("avx2"), 1))


@pytest.mark.parametrize("tuner", ["random", "grid", "evolutionary", "xgboost"])
def test_the_shipped_schedule_is_tried_first_and_once(ship, tuner):
    points = small_task().space().points
    ship(small_task(), choice_text(points[9]))
    measurer, records = ModelMeasurer(), KernelRecords(Database(None), {"code": "as it is"})
    budget = TuningBudget(trials=len(points))
    report = tune([small_task()], measurer, records, tuner, budget)
    assert measurer.asked[:2] == [points[0], points[9]]
    assert len(measurer.asked) == len(set(measurer.asked)) == report.trials


def test_a_default_that_the_shipped_schedule_does_not_beat_here_is_recorded(ship):
    points = small_task().space().points
    slow = next(point for point in points[1:] if ModelMeasurer().ratio(choice_text(point)) == 1)
    ship(small_task(), choice_text(slow))
    book = KernelRecords(Database(None), {"code": "as it is"})
    tune([small_task()], ModelMeasurer(best=()), book, "random", TuningBudget(trials=9))
    assert list(best_texts(book.database).values()) == ["default"]


def test_without_records_nothing_shipped_is_used(ship, monkeypatch):
    ship(small_task(), choice_text(small_task().space().points[9]))
    assert len(recorded_texts()) == 1
    assert not recorded_schedules(recorded_texts(), import_model(DIGITS), DEFAULT, DEFAULT_MEMORY)
    monkeypatch.setenv(RECORDS_VARIABLE, NO_RECORDS)
    assert not recorded_texts()


def test_the_shipped_file_is_small_ordered_and_says_where_it_comes_from():
    text = SHIPPED.read_text()
    sets = shipped_sets(SHIPPED)
    assert set_lines(sets) == text
    assert 0 < len(text) < MAX_BYTES
    assert len({one.title for one in sets}) == len(sets) > 0
    for one in sets:
        assert one.command.startswith("python -m tilewright.flows.bench.shipped_records")
        assert one.date > "2026-11-28"
        assert one.records
        assert set(one.versions) == {"tilewright", "llvm", "code"}
        assert len({each.workload for each in one.records}) == len(one.records)
        for each in one.records:
            assert 0 < each.ratio < 0.98
    assert all(json.loads(line) for line in text.splitlines())


@pytest.mark.cpu_kernels
def test_the_set_of_this_processor_is_made_anew_and_others_stay(tmp_path, monkeypatch, capsys):
    measurers = []

    def open_measurer():
        measurers.append(ModelMeasurer(best=("unroll=1",)))
        return measurers[-1]

    monkeypatch.setattr(shipped_records, "ProcessMeasurer", open_measurer)
    monkeypatch.setattr(shipped_records, "MODELS", {"digits": DIGITS.read_bytes})
    path = tmp_path / "made.jsonl"
    other = ShippedSet("another", "triple", "avx2", 1, "2026-01-01", "a command", {}, ())
    path.write_text(set_lines([other]))
    command = ["--trials", "9", "--database", str(tmp_path / "it.db"), "--output", str(path)]
    texts = []
    for _ in range(2):
        assert shipped_records.main(command) == 0
        assert "digits: 5 kernels, " in capsys.readouterr().out
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    (mine,) = [one for one in shipped_sets(path) if one != other]
    assert len(shipped_sets(path)) == 2
    assert 0 < len(mine.records) < 5
    assert all("unroll=1" in each.choice for each in mine.records)
    # The second measurer times winners only, and the second run knows all trials.
    assert len(measurers[1].asked) == len(mine.records)
    assert not measurers[2].asked
    assert shipped_records.main(["--trials", "0", *command[2:]]) == 0
    assert [one.records for one in shipped_sets(path)] == [other.records, mine.records]
    assert not measurers[4].asked


@pytest.mark.slow
def test_shipped_schedules_are_those_of_kernels_that_todays_planners_know():
    for one in shipped_sets(SHIPPED):
        left = {each.workload: choice_of(each.choice) for each in one.records}
        for network in sorted({each.name.partition(":")[0] for each in one.records}):
            for task in tasks_of(graph_of(network), CpuMachine(generic(one.level), one.threads)):
                if choice := left.pop(task.workload, None):
                    assert choice in task.space().points
                    assert choice != task.space().points[0]
        assert not left

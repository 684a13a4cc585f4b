"""`tilewright tune`: what it finds is used by `compile` and `run`, and can be turned off."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import compile_graph, import_model
from tilewright.compiler.cpu import host
from tilewright.compiler.placement import Placement
from tilewright.errors import ArtifactError
from tilewright.flows.cli.main import main
from tilewright.flows.execution.recorded_choices import NO_RECORDS, RECORDS_VARIABLE, usable_threads
from tilewright.flows.sweep.records import Database
from tilewright.flows.tuning.kernel_records import KernelRecords
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.tasks import tasks_of
from tilewright.runtime.artifact import artifact_bytes, load

pytestmark = pytest.mark.cpu_kernels

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
CHOICE = (("vectors", 1), ("unroll", 2))


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """A cache of its own; the commands' options change the variable of records."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(RECORDS_VARIABLE, NO_RECORDS)


@pytest.fixture
def records(tmp_path):
    """A database in which the dense layer has a schedule."""
    path = tmp_path / "records.db"
    with Database(path) as database:
        for task in tasks_of(import_model(DIGITS), CpuMachine(host(), usable_threads())):
            if task.names == ("dense.qconv",) or "dense" in task.names[0]:
                times = Times(0.5, 0.5, 1e-6, 0.0, 2e-6, 31)
                outcome = TrialOutcome(CHOICE, TrialVerdict.OK, "", "program", "steps", times)
                KernelRecords(database).add_best(task, outcome, {})
    return path


def on_cpu():
    return compile_graph(import_model(DIGITS), placement=Placement("host"))


def test_equal_records_give_equal_programs(records, monkeypatch):
    plain = artifact_bytes(on_cpu())
    monkeypatch.setenv(RECORDS_VARIABLE, str(records))
    module = on_cpu()
    assert list(module.choices.values()) == ["vectors=1,unroll=2"]
    tuned = artifact_bytes(module)
    assert tuned == artifact_bytes(on_cpu()) != plain
    assert load(tuned).choices == module.choices
    monkeypatch.setenv(RECORDS_VARIABLE, NO_RECORDS)
    assert artifact_bytes(on_cpu()) == plain


def test_the_commands_say_that_records_are_used(records, tmp_path, capsys):
    target = tmp_path / "digits.tw"
    command = ["compile", str(DIGITS), "--placement", "host", "-o", str(target)]
    sentence = f"records: schedules of 1 kernel from `{records}`; `--no-records` ignores them"
    for _ in range(2):  # the second time from the cache
        assert main([*command, "--records", str(records)]) == 0
        assert sentence in capsys.readouterr().out
    run = ["run", str(target), "--device", "host", "--compare"]
    assert main([*run, "--records", str(records)]) == 0
    assert "records: schedules of 1 kernel" in capsys.readouterr().out
    assert main([*command, "--no-records"]) == 0
    assert "records:" not in capsys.readouterr().out


def test_each_number_of_threads_has_a_program_of_its_own(records, tmp_path, capsys, monkeypatch):
    """Records apply to one number of threads, so the cache keeps a program for each number."""
    command = ["compile", str(DIGITS), "--placement", "host", "-o", str(tmp_path / "digits.tw")]
    more = set(range(usable_threads() + 1))
    with monkeypatch.context() as patch:
        patch.setattr("os.sched_getaffinity", lambda process: more)
        assert main([*command, "--records", str(records)]) == 0
        assert "records:" not in capsys.readouterr().out
    assert main([*command, "--records", str(records)]) == 0
    assert "records: schedules of 1 kernel from" in capsys.readouterr().out


def test_strange_choices_of_an_artifact_are_refused_or_ignored(records, monkeypatch, tmp_path):
    monkeypatch.setenv(RECORDS_VARIABLE, str(records))
    module = on_cpu()
    key = next(iter(module.choices))
    path = tmp_path / "strange.tw"
    path.write_bytes(artifact_bytes(replace(module, choices={key: "wings=3"})))
    assert main(["run", str(path), "--device", "host", "--compare"]) == 0
    number: Any = 3
    with pytest.raises(ArtifactError, match="`choices`: expected texts by key"):
        load(artifact_bytes(replace(module, choices={key: number})))


def test_a_database_that_the_user_names_has_to_exist(tmp_path, capsys):
    missing = tmp_path / "missing.db"
    assert main(["compile", str(DIGITS), "--records", str(missing)]) == 2
    assert f"`--records {missing}`: there is no such file; " in capsys.readouterr().err


def test_a_network_is_tuned_listed_and_exchanged(tmp_path, capsys):
    path, lines = tmp_path / "new.db", tmp_path / "lines.jsonl"
    command = ["tune", str(DIGITS), "--database", str(path), "--threads", "1"]
    assert main([*command, "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    spaces = [(task["kind"], task["space"] > 5) for task in listed["tasks"]]
    # Ten results are converted to float32: too few for a choice.
    assert sorted(spaces) == [("Convolution", True)] * 3 + [
        ("Elementwise", False),
        ("MatrixProduct", True),
    ]
    assert listed["without_space"] == {"BytePooling": 1, "Elementwise": 1}
    assert main([*command, "--list"]) == 0
    assert "no space: 1 Elementwise: one schedule each" in capsys.readouterr().out
    assert main([*command, "--budget", "3", "--export", str(lines)]) == 0
    said = capsys.readouterr().out
    assert "ended: budget of 3 trials" in said
    assert len(lines.read_text().splitlines()) >= 3
    other = tmp_path / "other.db"
    for sentence in (f"{len(lines.read_text().splitlines())} new records", "0 new records"):
        assert main(["tune", "--database", str(other), "--import", str(lines)]) == 0
        assert sentence in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tuner", "rondom"], "`--tuner rondom`: expected one of "),
        (["--budget", "soon"], "`--budget soon`: expected a time such as 60s, 5m or 2h"),
        (["--threads", "0"], "`--threads 0`: expected 1 or more"),
        (["--seed", "-1"], "`--seed -1`: expected 0 or more"),
        (["--target", "accelerator", "--threads", "1"], "`--threads 1`: layers of the acc"),
        (["--target", "accelerator", "--tuner", "grid"], "`--tuner grid`: layers of the acc"),
    ],
)
def test_mistakes_of_the_user(options, message, tmp_path, capsys):
    assert main(["tune", str(DIGITS), "--database", str(tmp_path / "it.db"), *options]) == 2
    assert message in capsys.readouterr().err


def test_one_layer_is_tuned_alone(tmp_path, capsys):
    path = tmp_path / "one.db"
    command = ["tune", str(DIGITS), "--database", str(path), "--layer", "conv2"]
    assert main([*command, "--threads", "1", "--list", "--json"]) == 0
    assert [task["kernels"] for task in json.loads(capsys.readouterr().out)["tasks"]] == [["conv2"]]
    assert main([*command, "--threads", "1", "--budget", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("conv2: 2 of ")
    option = f"--records {path}"
    use = f"records: {path}; `compile {option}` and `run {option}` use them"
    others = f" where they may use 1 processor, not {usable_threads()} as here"
    assert use + others * (usable_threads() > 1) in said
    accelerator = [*command, "--target", "accelerator", "--config", "8x8"]
    assert main([*accelerator, "--list"]) == 0
    first, *choices, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"conv2: [\d,]+ cycles, lower bound [\d,]+: \d+ candidates", first)
    assert any(re.fullmatch(r"  y: \d+(, \d+)+", line) for line in choices)
    assert last == "left out: all tiles that do not fit the scratchpads of 8x8"
    assert main([*accelerator, "--budget", "9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [layer["layer"] for layer in found["layers"]] == ["conv2"]
    assert not found["chains"]
    assert not found["first_tiles"]


@pytest.mark.parametrize("target", ["host", "accelerator"])
def test_a_layer_that_is_not_there_is_named(target, tmp_path, capsys):
    command = ["tune", str(DIGITS), "--database", str(tmp_path / "it.db"), "--target", target]
    assert main([*command, "--layer", "conv9"]) == 2
    error = capsys.readouterr().err
    assert "`--layer conv9`: expected " in error
    assert "`conv1`" in error

"""The certified search of accelerator schedules, on exact cycles: equal runs give equal answers."""

import itertools
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright import PRESETS, compile_graph, import_model
from tilewright.compiler.options import DEFAULT_OPTIONS
from tilewright.errors import TilewrightError
from tilewright.flows.cli.main import main
from tilewright.flows.cli.tuning_results import layer_sentences
from tilewright.flows.execution.recorded_choices import RECORDS_VARIABLE, best_texts
from tilewright.flows.sweep import executors
from tilewright.flows.sweep.executors import OnDask
from tilewright.flows.sweep.local_workers import LocalWorkers
from tilewright.flows.sweep.records import Database
from tilewright.flows.tuning import layer_search
from tilewright.flows.tuning.candidate_workers import CandidateWorkers
from tilewright.flows.tuning.kernel_records import KernelRecords
from tilewright.flows.tuning.layer_bench import LayerBench
from tilewright.flows.tuning.layer_records import LAYER_TRIAL, LayerRecords
from tilewright.flows.tuning.layer_search import (
    SearchedLayer,
    SearchedNetwork,
    search_layer,
    search_network,
)
from tilewright.flows.tuning.layer_trials import LayerTrials
from tilewright.flows.tuning.network_trials import NetworkTrials, TriedChange
from tilewright.flows.tuning.shared_devices import SharedDevices
from tilewright.isa.settings import DEFAULT_MEMORY
from tilewright.runtime import Session, open_device
from tilewright.runtime.wire import JobError, JobVerdict

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["8x8"]


@pytest.fixture(scope="module")
def module():
    return compile_graph(import_model(DIGITS), MACHINE)


def test_a_layer_ends_with_a_proof(module):
    found = search_layer(module, "dense", 100)
    assert found.timed == found.space == 9
    assert found.certificate == "the best of all 9 candidates"
    assert found.bound <= found.cycles < found.default_cycles
    assert found == search_layer(module, "dense", 100)
    cut = search_layer(module, "dense", 2)
    assert (cut.timed, cut.certificate) == (2, "")


def test_the_network_decides_and_equal_runs_are_equal(module):
    graph = import_model(DIGITS)

    def compile_with(schedules):
        return compile_graph(graph, MACHINE, schedules=schedules)

    runs = [search_network(module, compile_with, trials=40) for _ in range(2)]
    assert runs[0] == runs[1]
    (found, _) = runs
    assert found.cycles == compile_with(found.schedules).report["cycles"] <= found.before
    assert sum(layer.timed for layer in found.layers) <= 40


def test_other_divisions_into_layers_are_faster_and_compute_the_same():
    """Where ACT is small, the compiler's division is not the best one."""
    graph, machine = import_model(DIGITS), MACHINE.replace(name="shallow", act_depth=128)

    def compile_with(schedules):
        return compile_graph(graph, machine, schedules=schedules)

    module = compile_with({})
    found = search_network(module, compile_with, trials=10)
    after = compile_with(found.schedules)
    names = [layer.name for layer in after.segments[0].layers]
    assert names == ["conv1", "conv2", "conv3 + residual", "pool", "dense"]
    assert found.cycles == after.report["cycles"] < module.report["cycles"]
    assert [change.layers for change in found.chains if change.kept] == [
        ("conv3 + residual", "pool")
    ]
    assert found.bound <= found.cycles
    assert found.least is not None
    assert found.least <= min(found.bound, module.report["bound"])
    assert len(found.chains) <= 5
    scans = np.random.default_rng(3).uniform(0, 16, graph.inputs[0].type.shape)
    outputs = []
    for one in (module, after):
        with open_device("sim", machine) as device:
            session = Session(one, device)
            outputs.append(session.run({graph.inputs[0].name: scans.astype(np.float32)}).outputs)
    for name, values in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][name], values)


def test_schedules_of_parts_cut_a_layer(module):
    graph = import_model(DIGITS)
    single = compile_graph(graph, MACHINE, options=replace(DEFAULT_OPTIONS, fuse=False))
    texts = {layer.name: layer.schedule for layer in single.segments[0].layers}
    assert [layer.name for layer in module.segments[0].layers][3:] == ["residual + pool", "dense"]
    for named in (["residual"], ["pool"], ["residual", "pool"]):
        given = {name: texts[name] for name in named}
        cut = compile_graph(graph, MACHINE, schedules=given)
        assert [one.name for one in cut.segments[0].layers][3:] == ["residual", "pool", "dense"]


def test_every_layer_gets_a_share_of_the_budget(module):
    found = search_network(module, lambda schedules: module, trials=25)
    timed = [layer.timed for layer in found.layers]
    assert sum(timed) <= 25
    assert all(layer.timed or layer.certificate for layer in found.layers)


def test_a_run_that_runs_out_of_time_has_tried_what_it_found_in_the_network(module):
    now, compiled = itertools.count(), []

    def compile_with(schedules):
        compiled.append(dict(schedules))
        return module

    # A second for every look at the clock: the time is over long before all candidates are timed.
    found = search_network(module, compile_with, seconds=30, clock=lambda: next(now))
    better = [layer.name for layer in found.layers if layer.steps]
    assert better
    assert any(not layer.certificate for layer in found.layers)
    divided = {name for change in found.chains for name in change.layers}
    assert {name for schedules in compiled for name in schedules} <= {*better, *divided}
    assert compiled


def test_an_interrupted_search_is_continued_and_times_nothing_twice(module, tmp_path):
    graph, calls = import_model(DIGITS), []

    def search(path=None, watch=lambda result: None):
        def compile_with(schedules):
            made = compile_graph(graph, MACHINE, schedules=schedules)
            calls.append((dict(schedules), made.report["cycles"]))
            return made

        with Database(path) as database:
            records = LayerRecords(database, graph, MACHINE, DEFAULT_MEMORY)
            found = search_network(module, compile_with, trials=12, records=records, watch=watch)
            return found, list(best_texts(database).values())

    def interrupt(result):
        raise KeyboardInterrupt

    whole, _ = search()
    assert whole.schedules
    calls.clear()
    path = tmp_path / "records.db"
    part, kept = search(path, interrupt)
    assert part.stopped == "interrupted; the same command continues"
    assert part.cycles < part.before
    assert [json.loads(one) for one in kept] == [dict(part.schedules)], "used at once"
    first = list(calls)
    calls.clear()
    continued, _ = search(path)
    assert continued == whole
    # Only a division that was the best is compiled again, to search among its layers.
    least = itertools.accumulate((whole.before, *(cycles for _, cycles in first)), min)
    best = [one for one, before in zip(first, least, strict=False) if one[1] < before]
    assert [one for one in first if one in calls] == best != first


def test_devices_side_by_side_log_what_one_alone_does(module, monkeypatch):
    alone = search_layer(module, "dense", 100)
    ratios = [one.ratio or 1.0 for one in alone.trials]
    # The search ends with the first candidate that is near enough to the bound.
    place = next(place for place, ratio in enumerate(ratios) if ratio < 1)
    near = alone.default_cycles * ratios[place] / alone.bound
    monkeypatch.setattr(layer_search, "NEAR", near)
    ended = search_layer(module, "dense", 100)
    assert ended.timed == place + 1 < len(ratios)
    for count in (1, ended.timed + 1):
        with closing(SharedDevices(["sim"] * count, MACHINE, DEFAULT_MEMORY)) as shared:
            found = search_layer(module, "dense", 100, devices=LayerTrials(shared))
        assert found == ended, "one alone would have ended in the middle of the batch"


class FailingTrials(LayerTrials):
    """Devices whose runs of whole networks end as asked, the first ones first."""

    ends: list[JobVerdict | None]

    def network_cycles(self, module):
        self.shared.share = self.shared_once
        return super().network_cycles(module)

    def shared_once(self, pieces, run):
        if (verdict := self.ends.pop(0) if self.ends else None) is not None:
            return [JobError(verdict, "it ends")]
        return SharedDevices.share(self.shared, pieces, run)


def test_a_network_that_a_device_does_not_run_is_an_outcome(module):
    dense = next(row["name"] for row in module.report["layers"] if "dense" in row["name"])
    changed = {dense: LayerBench(module, dense).default}

    def compile_with(schedules):
        return compile_graph(module.graph, MACHINE, schedules=schedules)

    with closing(SharedDevices(["sim"], MACHINE, DEFAULT_MEMORY)) as shared, Database() as database:
        devices = FailingTrials(shared)
        devices.ends = [JobVerdict.MEMORY]  # its process was killed, which is tried once more
        records = LayerRecords(database, module.graph, MACHINE, DEFAULT_MEMORY, "sim")
        network = NetworkTrials(module, compile_with, devices, records)
        assert network.before == module.report["cycles"]
        devices.ends = [JobVerdict.FAULT]
        assert network.attempt(changed) is None
        (error,) = {row["error"] for row in database.rows()} - {None}
        assert error == "device fault: it ends"
        devices.ends = [JobVerdict.FAULT]
        with pytest.raises(JobError, match="it ends"):
            NetworkTrials(module, compile_with, devices)
        devices.ends = [None, JobVerdict.LOST]
        found = search_network(module, compile_with, trials=4, devices=devices)
    assert found.stopped == "it ends; the same command continues"
    assert found.before == module.report["cycles"]


@pytest.fixture(params=["processes", "dask"])
def executor(request):
    graph = import_model(DIGITS)
    if request.param == "processes":
        workers = LocalWorkers([graph], 2)
        yield workers
        workers.close()
        return
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with executors.import_module("distributed").LocalCluster(**options) as cluster:
        workers = OnDask([graph], cluster.scheduler_address)
        yield workers
        workers.close()


def test_processes_and_dask_log_what_one_process_does(module, executor):
    workers = CandidateWorkers(executor, MACHINE, module.memory)
    given = {layer.name: layer.schedule for layer in module.segments[0].layers}
    for schedules in ({}, given):
        alone, found = (
            search_layer(module, "conv3", 40, workers=one, schedules=schedules)
            for one in (None, workers)
        )
        assert found.timed == 40 > workers.width
        assert found.trials == alone.trials
        assert found == alone


def test_equal_layers_are_timed_once(module, monkeypatch):
    timed, cycles = [], LayerBench.cycles
    monkeypatch.setattr(LayerBench, "cycles", lambda *given: timed.append(given) or cycles(*given))
    records = LayerRecords(Database(), module.graph, MACHINE, DEFAULT_MEMORY)
    first, second = (
        search_layer(module, "dense", 100, records=records, division=division)
        for division in ("one", "two")
    )
    assert first.trials == second.trials
    assert len(timed) == first.timed
    search_layer(module, "conv1", 3, records=records)
    assert len(timed) == first.timed + 3


@pytest.mark.slow
def test_a_killed_run_loses_only_what_was_in_flight(tmp_path):
    command = [
        *(sys.executable, "-m", "tilewright.flows.cli.main", "tune", str(DIGITS)),
        *("--target", "accelerator", "--config", "8x8", "--budget", "12"),
    ]

    def options(name):
        files = str(tmp_path / f"{name}.db"), str(tmp_path / f"{name}.json")
        return ["--database", files[0], "--json", files[1]]

    subprocess.run([*command, *options("whole")], check=True, capture_output=True)
    recorded = 0
    for _ in range(3):
        process = subprocess.Popen([*command, *options("killed")], stdout=subprocess.DEVNULL)
        while process.poll() is None and _count(tmp_path / "killed.db") <= recorded:
            time.sleep(0.01)
        assert process.poll() is None
        process.kill()  # one more outcome is known than when the last process died
        process.wait()
        recorded = _count(tmp_path / "killed.db")
    subprocess.run([*command, *options("killed")], check=True, capture_output=True)
    whole, continued = (json.loads((tmp_path / f"{name}.json").read_text()) for name in NAMES)
    assert continued == whole
    assert _count(tmp_path / "killed.db") == _count(tmp_path / "whole.db")


NAMES = ("whole", "killed")


def _count(path: Path) -> int:
    """The number of outcomes in a database that another process writes."""
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as it,
    ):
        (count,) = it.execute(
            "select count(*) from records where evaluator = ?", (LAYER_TRIAL,)
        ).fetchone()
        return count
    return 0


def test_a_budget_that_is_over_costs_no_more_time(module, monkeypatch):
    now, opened, bench = itertools.count(), [], LayerBench.__init__
    monkeypatch.setattr(
        LayerBench, "__init__", lambda *given: opened.append(given[2]) or bench(*given)
    )
    found = search_network(module, lambda given: module, seconds=3, clock=lambda: next(now))
    named = [layer.name for layer in found.layers]
    assert named == [layer.name for layer in module.segments[0].layers]
    left = [layer.name for layer in found.layers if layer.skipped == "no time was left for it"]
    assert left
    assert not set(left) & set(opened)


def test_recorded_schedules_are_used_for_their_network_machine_and_memory(tmp_path, monkeypatch):
    graph, path = import_model(DIGITS), tmp_path / "records.db"
    plain = compile_graph(graph, MACHINE)
    worse = plain.segments[0].layers[0].schedule.replace(", 8)", ", 4)", 1)
    name = plain.segments[0].layers[0].name
    changed = compile_graph(graph, MACHINE, schedules={name: worse})
    assert changed.report["cycles"] != plain.report["cycles"]
    with Database(path) as database:
        LayerRecords(database, graph, MACHINE, DEFAULT_MEMORY).keep({name: worse}, 9, 8)
    monkeypatch.setenv(RECORDS_VARIABLE, str(path))
    assert compile_graph(graph, MACHINE).report["cycles"] == changed.report["cycles"]
    other = PRESETS["4x4"]
    cycles = compile_graph(graph, other).report["cycles"]
    monkeypatch.undo()
    assert cycles == compile_graph(graph, other).report["cycles"]
    assert compile_graph(graph, MACHINE).report["cycles"] == plain.report["cycles"]


@pytest.mark.parametrize(
    "given",
    [{"conv1": "split(none, y, 3)"}, {"none": "arena()"}, {"conv1": "\x01"}, {"conv1": ""}],
)
def test_recorded_schedules_that_do_not_fit_are_left_out(module, tmp_path, monkeypatch, given):
    graph, path = import_model(DIGITS), tmp_path / "records.db"
    with Database(path) as database:
        LayerRecords(database, graph, MACHINE, DEFAULT_MEMORY).keep(given, 9, 8)
    monkeypatch.setenv(RECORDS_VARIABLE, str(path))
    found = compile_graph(graph, MACHINE, cache=False)
    assert found.report["cycles"] == module.report["cycles"]
    with pytest.raises(TilewrightError):
        compile_graph(graph, MACHINE, schedules=given)


def test_schedules_of_layers_are_exported_and_imported(tmp_path):
    graph, lines = import_model(DIGITS), tmp_path / "lines.jsonl"
    graph = replace(graph, name="two\nlines")
    with Database(tmp_path / "one.db") as database:
        LayerRecords(database, graph, MACHINE, DEFAULT_MEMORY).keep({"conv1": "arena()"}, 9, 8)
        assert KernelRecords(database).export(lines) == 1
        kept = best_texts(database)
    with Database(tmp_path / "two.db") as database:
        records = KernelRecords(database)
        assert records.merge_lines(lines) == 1
        assert records.merge_lines(lines) == 0
        assert best_texts(database) == kept != {}


def test_the_command_says_how_each_layer_ended(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(RECORDS_VARIABLE, "none")
    command = ["tune", str(DIGITS), "--target", "accelerator", "--config", "8x8"]
    assert main([*command, "--database", str(tmp_path / "it.db"), "--budget", "20"]) == 0
    said = capsys.readouterr().out
    assert "not proven: " in said
    assert "network: 4,705 cycles before, " in said


def test_long_names_are_said_briefly():
    path = "net/{0}/BiasAdd/ReadVariableOp/resource;net/{0}/BiasAdd;net/{0}/Conv2D1"
    first, second = (path.format(name) for name in ("conv2d", "conv2d_1"))
    searched = SearchedLayer(first, 400, 390, 380, space=3, timed=1)
    layers = searched, SearchedLayer(second, 9, 9, 9, skipped="it copies")
    chain = TriedChange((f"{first} + {second}",), 390, kept=True)
    found = SearchedNetwork(409, 399, 389, layers, {}, (chain,))
    said = layer_sentences(found)
    assert said[0].startswith("conv2d/Conv2D1: 400 cycles alone")
    assert said[1:3] == [
        "conv2d_1/Conv2D1: left out: it copies",
        "divided into `conv2d + conv2d_1`: 390 cycles of the network, kept",
    ]
    assert not any("ReadVariableOp" in line for line in said)
    records = LayerRecords(Database(None), import_model(DIGITS), MACHINE, DEFAULT_MEMORY)
    assert searched.log(records).title == "conv2d/Conv2D1"

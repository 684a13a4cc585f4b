"""Faults: whatever an evaluator, a worker or the disk does, every machine gets one right record."""

import errno
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import CompileError, ToolError
from tilewright.flows.sweep import Database, Space, child_process, executors, local_workers
from tilewright.flows.sweep.evaluators import SIM, version_of
from tilewright.flows.sweep.executors import Done, InProcess, Job, OnDask
from tilewright.flows.sweep.local_workers import LocalWorkers
from tilewright.flows.sweep.path_limits import PathLimits
from tilewright.flows.sweep.records import LOST, Record
from tilewright.flows.sweep.verdict import verdict
from tilewright.isa.configuration import Configuration
from tilewright.isa.memory_model import MemoryModel

MANY = {
    "lanes": "4x4,4x8,8x8,8x16,16x8,16x16",
    "bus_bits": "32..128",
    "act_depth": "64..512",
    "wgt_depth": "64..512",
    "acc_depth": "32..256",
}
"""A space of 1,152 machines."""

TIMED = {"cycles": 10**6, "macs": 1, "energy_nj": 1, "limits": {}, "layers": []}
"""Figures of a program."""


def raised(problem: BaseException):
    def fail(cycles: int) -> Any:
        raise problem

    return fail


def hang(cycles: int) -> Any:
    """Hang until the time limit, which is now."""
    os.kill(os.getpid(), signal.SIGALRM)
    while True:
        time.sleep(1)


FAULTS = {
    "does not fit": raised(CompileError("does not fit")),
    "unexpected ValueError": raised(ValueError("wrong")),
    "unexpected RecursionError": raised(RecursionError("too deep")),
    f"{LOST}MemoryError": raised(MemoryError()),
    f"{LOST}[Errno {errno.ENOSPC}]": raised(OSError(errno.ENOSPC, "No space left on device")),
    "`sim`: not done after": hang,
    "cycles 7: expected at least": lambda cycles: 7,
    "`sim`: expected a whole number as `cycles`, got `None`": lambda cycles: None,
    "`sim`: expected a whole number as `cycles`, got `-1`": lambda cycles: -1,
    "`sim`: expected a whole number as `cycles`, got `nan`": lambda cycles: float("nan"),
    "`sim`: expected 1 results, got 2": [Record(TIMED)] * 2,
    "`sim`: expected 1 results, got 0": [],
    f"{LOST}KilledWorker": [Record(error=f"{LOST}KilledWorker: it died")],
}
"""Faults by the beginning of the error that must follow: what happens while a machine is compiled,
or what comes back instead of its results."""


@dataclass
class Chaos(InProcess):
    """Injects a fault into every machine but some, while the disk is full now and then."""

    graphs: list
    database: Database
    monkeypatch: pytest.MonkeyPatch
    healthy: int
    """One machine in so many has no fault."""

    def __post_init__(self) -> None:
        super().__init__(self.graphs)
        self.expected: dict[str, str] = {}
        self.count = Counter[str]()

    def wait(self, handles):
        batch = next(iter(handles))
        if batch[0].evaluator != SIM:
            return super().wait([batch])
        (job,) = batch
        number = self.count["jobs"]
        self.count["jobs"] += 1
        pages = self.database._connection.execute("pragma page_count").fetchone()[0]
        limit = pages if number % 40 < 10 else 10**6
        self.database._connection.execute(f"pragma max_page_count = {limit}")
        expected = "" if number % self.healthy == 0 else list(FAULTS)[number % len(FAULTS)]
        self.expected[job.configuration.name] = expected
        fault = FAULTS[expected] if expected else lambda cycles: cycles
        self.count["full"] += bool(self.database._waiting)
        if isinstance(fault, list):
            return [(batch, Done([fault], 0.0))]
        self.monkeypatch.setattr(COMPILE, lambda graph, configuration, **_: module(configuration))
        self.monkeypatch.setattr(
            PATHS, lambda module, memory: PathLimits(fault(module.cycles), {}, ())
        )
        return super().wait([batch])


COMPILE = "tilewright.flows.execution.compile_graph.compile_graph"
PATHS = "tilewright.flows.sweep.path_limits.path_limits"


def module(configuration) -> Any:
    """A module as `sim` needs it, with a number of cycles that no bound forbids."""
    layers = [SimpleNamespace(macs=1)]
    cycles = 10**6 + configuration.act_depth
    segments = [SimpleNamespace(layers=layers, program=[])]
    return SimpleNamespace(segments=segments, report={"instructions": 1}, cycles=cycles)


def test_faults_are_classified_and_none_is_lost_or_doubled(swept, digits, tmp_path, monkeypatch):
    inject(swept, digits, tmp_path, monkeypatch, {**MANY, "lanes": "4x4", "bus_bits": "32"}, 40)


@pytest.mark.slow
def test_a_thousand_faults_are_survived(swept, digits, tmp_path, monkeypatch):
    inject(swept, digits, tmp_path, monkeypatch, MANY, 1000)


def inject(swept, digits, tmp_path, monkeypatch, vary, fewest: int) -> None:
    space = Space.of(vary)
    with Database(tmp_path / "chaos.db") as database, Database() as clean:
        chaos = Chaos([digits.graph], database, monkeypatch, healthy=8)
        outcome = swept(space, database, executor=chaos, exhaustive=True)
        assert sum(map(bool, chaos.expected.values())) >= fewest
        assert chaos.count["full"] > 0, "results had to wait for room"
        assert set(chaos.expected.values()) == {"", *FAULTS}
        for result in outcome.results:
            expected = chaos.expected[result.point.machine.configuration.name]
            assert (result.error or "").startswith(expected)
            assert (result.state == "failed") is bool(expected)
            cycles = 10**6 + result.point.machine.configuration.act_depth
            assert result.cycles == (() if expected else (cycles,))
        database._connection.execute("pragma max_page_count = 1000000")
        database.flush()
        rows = [row for row in database.rows() if row["evaluator"] == SIM]
        machines = [row["configuration_digest"] for row in rows]
        assert len(machines) == len(set(machines)) == len(outcome.results) == chaos.count["jobs"]
        found = Counter(row["error"] is None for row in rows)
        assert found[True] == sum(not expected for expected in chaos.expected.values())

        monkeypatch.setattr(PATHS, lambda module, memory: PathLimits(module.cycles, {}, ()))
        lost = sum(expected.startswith(LOST) for expected in chaos.expected.values())
        assert swept(space, database, exhaustive=True).compiled == lost, "as no machine's fault"
        failed = len(outcome.results) - lost - found[True]
        assert database.forget() == failed
        again = swept(space, database, exhaustive=True)
        assert (again.compiled, again.counts["failed"]) == (failed, 0)
        swept(space, clean, exhaustive=True)
        assert list(database.rows()) == list(clean.rows())


def test_an_evaluator_that_hangs_is_interrupted(swept, digits, monkeypatch):
    def sleep(graph, configuration, memories, program_for):
        if configuration.lanes_in == 8:
            time.sleep(3600)
        return [Record(TIMED) for _ in memories]

    monkeypatch.setitem(executors.RUNGS, SIM, sleep)
    database = Database()
    executor = InProcess([digits.graph], time_limit_s=5)
    outcome = swept({"lanes": "4x4,8x8"}, database, executor=executor, exhaustive=True)
    assert [result.state for result in outcome.results] == ["front", "failed"]
    assert outcome.results[1].error == (
        "`sim`: not done after 5 s; raise `--time-limit`, and add `--retry`"
    )
    (said,) = verdict(outcome)
    assert said.startswith("verdict: lanes=4x4 has the fewest ")
    assert said.endswith("; 1 point failed")
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert swept({"lanes": "4x4,8x8"}, database).compiled == 0, "it would hang again"
    assert database.forget() == 1


POISON = """
import os, signal, time
from pathlib import Path
from tilewright.flows.sweep import executors
from tilewright.flows.sweep.records import Record

def evaluate(graph, configuration, memories, program_for):
    depth, starts = configuration.act_depth, Path(STARTS)
    with starts.open("a") as file:
        print(depth, file=file)
    if depth == 512:
        time.sleep(3600)
    if depth == 2048:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as code in C does
        time.sleep(3600)
    if depth == 1024 or (depth == 4096 and starts.read_text().split().count("4096") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return [Record(TIMED) for _ in memories]

executors.RUNGS["sim"] = evaluate
"""
"""Code that a worker runs first; some machines hang there, or kill the worker."""


@pytest.fixture
def poisoned(digits, tmp_path, monkeypatch):
    """A worker with `POISON`, which writes the depths that it starts to a file."""
    poison = POISON.replace("STARTS", repr(str(tmp_path / "starts"))).replace("TIMED", repr(TIMED))
    poison = poison.replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(child_process, "CODE", poison + child_process.CODE)
    monkeypatch.setattr(local_workers, "GRACE_S", 1)
    executor = LocalWorkers([digits.graph], workers=1, time_limit_s=2)
    yield executor
    executor.close()


@pytest.mark.slow
def test_workers_that_hang_or_die_are_replaced(swept, poisoned, tmp_path):
    database = Database()
    outcome = swept({"act_depth": "256..8192"}, database, executor=poisoned, exhaustive=True)
    errors = {result.point.chosen["act_depth"]: result.error for result in outcome.results}
    assert errors == {
        **dict.fromkeys(("256", "4096", "8192")),
        "512": "`sim`: not done after 2 s; raise `--time-limit`, and add `--retry`",
        **dict.fromkeys(
            ("1024", "2048"), f"{LOST}it killed the process that compiled it, or hung there, twice"
        ),
    }
    starts = Counter((tmp_path / "starts").read_text().split())
    assert starts["1024"] == starts["2048"] == 2
    assert starts["4096"] >= 2
    assert len([row for row in database.rows() if row["evaluator"] == SIM]) == 6


@pytest.mark.slow
def test_a_job_that_kills_workers_takes_no_other_with_it(poisoned):
    """Neither jobs of its batch, nor a batch that waits."""
    memories = (MemoryModel(), MemoryModel(latency_cycles=200))
    killer, *others = (
        Job(SIM, version_of(SIM), 0, Configuration(name=f"{depth}", act_depth=depth), memories)
        for depth in (1024, 256, 8192)
    )
    mixed = poisoned.submit([others[0], killer, others[1]])
    waiting = poisoned.submit([others[1]])
    handles, found = [mixed, waiting], {}
    while handles:
        found |= dict(poisoned.wait(handles))
        handles = [handle for handle in handles if handle not in found]
    fine = [Record(TIMED)] * 2
    first, lost, last = found[mixed].records
    assert (first, last) == (fine, fine)
    assert [str(record.error).startswith(LOST) for record in lost] == [True, True]
    assert found[waiting].records == [fine]


def test_closing_stops_workers_and_what_they_started(digits, monkeypatch):
    """At once, whatever they do."""
    compiler = (
        "import os, subprocess, time; helper = subprocess.Popen(['sleep', '3600']); "
        "os.write({descriptor}, helper.pid.to_bytes(4, 'big')); time.sleep(3600)"
    )
    monkeypatch.setattr(child_process, "CODE", compiler)
    executor = LocalWorkers([digits.graph], workers=1)
    executor.submit([])
    (worker,) = executor._running
    assert worker.connection.poll(60)
    helper = Path(f"/proc/{int.from_bytes(os.read(worker.connection.fileno(), 4), 'big')}/stat")
    executor.close()
    deadline = time.monotonic() + 30
    while _lives(helper) and time.monotonic() < deadline:  # the kernel ends it after the signal
        time.sleep(0.01)
    assert not _lives(helper)


def _lives(status: Path) -> bool:
    """Whether a process is neither gone, nor dead and waiting for a parent that asks."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_workers_of_this_computer_listen_nowhere(digits):
    """No other account can give them work."""
    before = _listening()
    executor = LocalWorkers([digits.graph], workers=2)
    try:
        handles = [executor.submit([]) for _ in range(2)]
        while handles:
            done = dict(executor.wait(handles))
            handles = [handle for handle in handles if handle not in done]
            assert _listening() == before
    finally:
        executor.close()


def _listening() -> set[str]:
    """Sockets of this computer's TCP ports that accept connections."""
    lines = [
        line.split()
        for file in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(file).exists()
        for line in Path(file).read_text().splitlines()[1:]
    ]
    return {words[1] for words in lines if words[3] == "0A"}


@pytest.fixture
def cluster():
    """A Dask cluster without workers."""
    with executors.import_module("distributed").LocalCluster(
        n_workers=0, threads_per_worker=1, dashboard_address=None
    ) as found:
        yield found


def test_a_worker_that_lacks_tilewright_is_named(digits, cluster):
    cluster.scale(1)
    with cluster.get_client() as client:
        client.wait_for_workers(1)
        # As if it was not installed.
        client.run(exec, "import sys; sys.modules['tilewright'] = None")
        (worker,) = client.scheduler_info()["workers"]
        with pytest.raises(ToolError, match=f"^`{worker}`: .* cannot import Tilewright; install"):
            OnDask([digits.graph], scheduler=cluster.scheduler_address)


def test_a_cluster_without_workers_is_not_waited_for_forever(digits, cluster, monkeypatch):
    monkeypatch.setattr(executors, "WITHOUT_WORKERS_S", 1)
    executor = OnDask([digits.graph], scheduler=cluster.scheduler_address)
    try:
        batch = executor.submit(
            [Job(SIM, version_of(SIM), 0, Configuration(name="tiny"), (MemoryModel(),))]
        )
        with pytest.raises(ToolError, match="no worker for 1 s; start workers, then run the sweep"):
            executor.wait([batch])
    finally:
        executor.close()


def test_a_scheduler_with_tls_asks_for_certificates():
    with pytest.raises(ToolError) as refused:
        OnDask([], "tls://127.0.0.1:1")
    assert str(refused.value).startswith(
        "`--scheduler tls://127.0.0.1:1`: expected certificates in Dask's configuration, got none"
    )

"""Several processes: two sweeps share a database, and a killed or interrupted one is resumed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.flows.sweep import Database, Space
from tilewright.flows.sweep.records import OWNER

VARY = {"lanes": "4x4,8x8", "act_depth": "256..1024", "lut_tables": "1,2"}
COMMAND = [
    *(sys.executable, "-m", "tilewright.flows.cli.main", "sweep"),
    *(part for name, values in VARY.items() for part in ("--vary", f"{name}={values}")),
    "--exhaustive",
]
"""A sweep of 12 machines as a command."""


def start(model, database, *options) -> subprocess.Popen:
    """Start the sweep in a process group of its own."""
    return subprocess.Popen(
        [*COMMAND, str(model), "--database", str(database), *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def programs(database) -> int:
    """Results of `sim` in a database."""
    try:
        with sqlite3.connect(database) as connection:
            query = "select count(*) from records where evaluator = 'sim'"
            return connection.execute(query).fetchone()[0]
    except sqlite3.Error:
        return 0


def wait_for(database, count: int) -> None:
    """Wait until a database has so many programs."""
    deadline = time.monotonic() + 120
    while programs(database) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def parent_of(folder: Path) -> int:
    """The parent of a process; 0 if the process is gone."""
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "records.db"
    Database(path).close()
    return path


def test_a_claim_holds_while_its_process_lives(database, monkeypatch):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = OWNER.rpartition(" ")[0]
    with Database(database) as ours:
        monkeypatch.setattr("tilewright.flows.sweep.records.OWNER", f"{host} {other.pid}")
        assert ours.claim("work", 100)
        monkeypatch.setattr("tilewright.flows.sweep.records.OWNER", OWNER)
        assert not ours.claim("work", 100)
        assert ours.claim("other work", 100)
        assert ours.claim("other work", 100), "our own"
        other.kill()
        other.wait()
        assert ours.claim("work", 100)
        ours.release()
        monkeypatch.setattr("tilewright.flows.sweep.records.OWNER", "far-away 1")
        assert ours.claim("work", 0.0)
        monkeypatch.setattr("tilewright.flows.sweep.records.OWNER", OWNER)
        assert ours.claim("work", 100), "a lease ends"


@pytest.mark.slow
def test_two_sweeps_divide_the_work(swept, model, database):
    both = [start(model, database, "--workers", 0) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    counts = [int(text.partition("programs       ")[2].split()[0]) for text in said]
    assert sum(counts) == 12, "nothing is computed twice"
    assert min(counts) >= 2
    fronts = [text.partition("smallest")[2] for text in said]
    assert fronts[0] == fronts[1] != ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_sweep_is_resumed(swept, model, database, workers):
    process = start(model, database, "--workers", workers)
    wait_for(database, 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = programs(database)
    assert 3 <= kept < 12
    with Database(database) as resumed, Database() as fresh:
        again = swept(Space.of(VARY), resumed, exhaustive=True)
        assert (again.compiled, again.reused) == (12 - kept, kept)
        swept(Space.of(VARY), fresh, exhaustive=True)
        sims = [
            [row for row in each.rows() if row["evaluator"] == "sim"] for each in (resumed, fresh)
        ]
        for one, other in zip(*sims, strict=True):
            assert {**one, "network": ""} == {**other, "network": ""}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_leaves_a_database_and_a_page(model, database, tmp_path, workers):
    page = tmp_path / "sweep.html"
    process = start(model, database, "--workers", workers, "-o", page)
    wait_for(database, 2)
    os.killpg(process.pid, signal.SIGINT)
    said, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "error: interrupted\n"
    assert "not reached" in said
    assert "the front" in said
    assert page.stat().st_size > 10**6
    assert 2 <= programs(database) < 12


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(swept, model, database):
    process = start(model, database, "--workers", 2)
    wait_for(database, 2)
    workers = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if parent_of(folder) == process.pid and "local_workers" in (folder / "cmdline").read_text()
    ]
    assert len(workers) == 2
    os.kill(workers[-1], signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert "programs       12 compiled" in said
    assert "failed" not in said
    assert programs(database) == 12

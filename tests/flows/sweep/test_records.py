"""Databases: every result once, shared, merged, and never harmed by a bad file."""

import csv
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest

from tilewright.errors import ToolError, UsageError
from tilewright.flows.sweep.export import check_export, export
from tilewright.flows.sweep.records import (
    Database,
    DatabaseError,
    FullDiskError,
    Record,
    RecordKey,
    configuration_digest,
)
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.settings import memory_text

SLOW = "latency=64,bandwidth=1/4,outstanding=8"


def key(number: int = 0, network: str = "n") -> RecordKey:
    return RecordKey("sim", "v1", network, f"c{number}", "64 1/1 64")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.db"


def test_a_result_is_found_again(path):
    with Database(path) as database:
        database.add([(key(1), Record({"cycles": 7})), (key(2), Record(error="does not fit"))])
    with Database(path) as database:
        found = database.find([key(1), key(2), key(3)])
        assert found == {key(1): Record({"cycles": 7}), key(2): Record(error="does not fit")}
        assert len(database) == 2


def test_a_key_tells_apart_everything_that_a_result_follows_from():
    one = RecordKey("sim", "v1", "n", "c", "m")
    others = (
        RecordKey("bound", "v1", "n", "c", "m"), RecordKey("sim", "v2", "n", "c", "m"),
        RecordKey("sim", "v1", "o", "c", "m"), RecordKey("sim", "v1", "n", "d", "m"),
        RecordKey("sim", "v1", "n", "c", "l"), RecordKey("sim", "v1n", "", "c", "m"),
    )  # fmt: skip
    assert len({one.digest, *(other.digest for other in others)}) == 7
    machine = PRESETS["8x8"]
    assert configuration_digest(machine) == configuration_digest(machine.replace(name="other"))
    assert configuration_digest(machine) != configuration_digest(machine.replace(queue_depth=4))
    assert memory_text(MemoryModel()) != memory_text(MemoryModel(outstanding_bursts=4))


def test_the_first_result_stays_but_replaces_a_failure(path):
    with Database(path) as database:
        database.add([(key(1), Record(error="lost: worker")), (key(2), Record({"cycles": 5}))])
        database.add([(key(1), Record({"cycles": 1})), (key(2), Record({"cycles": 6}))])
        found = database.find([key(1), key(2)])
        assert [record.figures["cycles"] for record in found.values()] == [1, 5]


def test_failures_are_forgotten_by_their_text(path):
    with Database(path) as database:
        database.add([(key(1), Record(error="lost: a")), (key(2), Record(error="does not fit"))])
        database.add([(key(3), Record({"cycles": 5}))])
        assert database.forget("lost: ") == 1
        assert database.forget() == 1
        assert len(database) == 1


def test_databases_merge(tmp_path, path):
    other = tmp_path / "other.db"
    with Database(other) as theirs:
        theirs.name_network("n", "digits")
        theirs.add_configurations([PRESETS["8x8"]])
        theirs.add([(key(number), Record({"cycles": number})) for number in (1, 2, 3)])
    with Database(path) as ours:
        ours.add([(key(1), Record({"cycles": 9})), (key(2), Record(error="lost"))])
        assert ours.merge(other) == 1
        found = ours.find([key(1), key(2), key(3)])
        assert [found[key(n)].figures["cycles"] for n in (1, 2, 3)] == [9, 2, 3]
        assert {row["network"] for row in ours.rows()} == {"digits"}
        assert ours.merge(other) == 0


def test_two_processes_share_a_file(path):
    """Each writes 200 records one by one, half of them the same."""
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from tilewright.flows.sweep.records import Database, RecordKey, Record\n"
        "start = int(sys.argv[2])\n"
        "with Database(Path(sys.argv[1])) as database:\n"
        "    for n in range(start, start + 200):\n"
        "        key = RecordKey('sim', 'v1', 'n', f'c{n}', 'm')\n"
        "        database.add([(key, Record({'cycles': n}))])\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(start)]) for start in (0, 100)
    ]
    assert [process.wait() for process in both] == [0, 0]
    with Database(path) as database:
        assert len(database) == 300
        assert [cycles for cycles, _, _ in database.best("n", 300)] == list(range(300))


def test_a_killed_process_loses_only_what_it_was_writing(path):
    code = (
        "import itertools, sys\nfrom pathlib import Path\n"
        "from tilewright.flows.sweep.records import Database, RecordKey, Record\n"
        "with Database(Path(sys.argv[1])) as database:\n"
        "    for n in itertools.count():\n"
        "        key = RecordKey('sim', 'v1', 'n', f'c{n}', 'm')\n"
        "        database.add([(key, Record({'cycles': n}))])\n"
        "        print(n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    told += [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait()
    with Database(path) as database:
        kept = [cycles for cycles, _, _ in database.best("n", 10**6)]
    assert kept[: len(told)] == told
    assert len(kept) <= len(told) + 1


def test_a_foreign_database_stays_as_it_is(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table songs (name text)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseError) as caught:
        Database(path)
    assert str(caught.value) == (
        f"database `{path}`: expected a database of sweeps, got one of another program, which is "
        "left as it is; choose another file"
    )
    assert path.read_bytes() == before


def test_another_file_is_refused(path):
    path.write_text("lanes,cycles\n" * 100)
    with pytest.raises(DatabaseError, match=r"file is not a database.*choose another file"):
        Database(path)
    assert path.read_text() == "lanes,cycles\n" * 100


def test_a_newer_layout_is_refused(path):
    Database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(DatabaseError, match=r"expected layout 1, got 99, of another version"):
        Database(path)


def test_a_truncated_file_is_damaged(path):
    with Database(path) as database:
        database.add([(key(number), Record({"cycles": number})) for number in range(2000)])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(DatabaseError, match=r"malformed.*the file is damaged"):
        list(Database(path).rows())


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path, path):
    with pytest.raises(DatabaseError, match=r"unable to open.*check that the folder exists"):
        Database(tmp_path / "none" / "records.db")
    with Database(path) as database, pytest.raises(DatabaseError, match=r"found none; check"):
        database.merge(tmp_path / "none.db")


def test_a_locked_file_is_told(path, monkeypatch):
    monkeypatch.setattr("tilewright.flows.sweep.records.BUSY_S", 0.1)
    Database(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(DatabaseError, match=r"locked.*wait for the other process"):
        Database(path)
    other.close()


def test_a_full_disk_loses_nothing_recorded(path):
    with Database(path) as database:
        database.add([(key(0), Record({"cycles": 1}))])
        pages = database._connection.execute("pragma page_count").fetchone()[0]
        database._connection.execute(f"pragma max_page_count = {pages + 2}")
        many = [(key(number), Record({"cycles": number})) for number in range(1, 5000)]
        database.add(many)
        assert len(database) == 1
        assert database.claim("work", 100), "nobody else can have it"
        with pytest.raises(DatabaseError, match=r"full.*make room and .*; what was recorded is"):
            database.flush()
        database._connection.execute("pragma max_page_count = 1000000")
        database.add([(key(5000), Record({"cycles": 5000}))])
        assert len(database) == 5001


def test_a_limit_of_file_sizes_is_a_full_disk(path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Database(path) as database:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            database.add([(key(number), Record({"cycles": number})) for number in range(5000)])
            with pytest.raises(FullDiskError, match="check the disk; what was recorded is kept"):
                database.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert len(database) == 0
        database.flush()
        assert len(database) == 5000


def test_results_that_found_no_room_are_told_at_the_end(path):
    database = Database(path)
    database._connection.execute("pragma max_page_count = 1")
    database.add([(key(number), Record({"cycles": number})) for number in range(5000)])
    with pytest.raises(DatabaseError, match=r"full.*make room"):
        database.__exit__(None)


def test_equal_records_are_exported_as_equal_bytes(tmp_path):
    results = [
        (RecordKey("sim", "v1", "n", configuration_digest(PRESETS[name]), SLOW), record)
        for name, record in (
            ("8x8", Record({"cycles": 5, "macs": 2})), ("4x4", Record(error="does not fit")),
        )
    ]  # fmt: skip
    texts = {".csv": set(), ".jsonl": set(), ".parquet": set()}
    for order in (results, results[::-1]):
        with Database() as database:
            database.name_network("n", "digits")
            database.add_configurations([PRESETS["8x8"], PRESETS["4x4"]])
            database.add(order)
            for suffix, seen in texts.items():
                path = tmp_path / f"all{suffix}"
                assert export(database, path) == 2
                seen.add(path.read_bytes())
    (table,), (lines,), (parquet,) = texts.values()
    assert len(lines.splitlines()) == 2
    header, *rows = (line.split(",") for line in table.decode().splitlines())
    cells = dict(zip(header, next(row for row in rows if "5" in row), strict=True))
    assert (cells["network"], cells["lanes_in"], cells["bandwidth"]) == ("digits", "8", "1/4")
    assert (cells["cycles"], cells["macs"], cells["error"]) == ("5", "2", "")
    read = pyarrow.parquet.read_table(io.BytesIO(parquet))
    assert read.column_names == header
    for line, row in zip(lines.splitlines(), read.to_pylist(), strict=True):
        assert {name: row[name] for name in json.loads(line)} == json.loads(line)
        assert type(row["lanes_in"]) is int
    with (
        pytest.raises(UsageError, match=r"expected a name that ends in .csv, .jsonl or .parquet"),
        Database() as d,
    ):
        export(d, tmp_path / "all.xlsx")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_figure_with_several_values_is_exported_as_text(tmp_path, suffix):
    layers = [["conv1", 5, "GEMM"]]
    found = key(1), Record({"cycles": 5, "layers": layers})
    path = tmp_path / f"all{suffix}"
    with Database() as database:
        database.add([found])
        export(database, path)
    if suffix == ".parquet":
        (row,) = pyarrow.parquet.read_table(path).to_pylist()
    elif suffix == ".csv":
        (row,) = csv.DictReader(io.StringIO(path.read_text()))
    else:
        row = json.loads(path.read_text())
    assert json.loads(row["layers"]) == layers


def test_a_missing_writer_is_told_before_the_sweep(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_export(Path("all.csv"))
    with pytest.raises(ToolError, match=r"PyArrow: not installed, so no Parquet .*ends in .csv$"):
        check_export(Path("all.parquet"))


@pytest.mark.slow
def test_many_records_stay_usable(path):
    """The best of a network in milliseconds."""
    with Database(path) as database:
        for start in range(0, 300_000, 50_000):
            database.add(
                [
                    (key(n, f"n{n % 3}"), Record({"cycles": (n * 7919) % 1_000_003}))
                    for n in range(start, start + 50_000)
                ]
            )
        started = time.perf_counter()
        best = database.best("n1", 10)
        assert time.perf_counter() - started < 0.02
        assert [cycles for cycles, _, _ in best] == sorted(cycles for cycles, _, _ in best)
        started = time.perf_counter()
        assert len(database.find([key(n, f"n{n % 3}") for n in range(1000)])) == 1000
        assert time.perf_counter() - started < 0.5

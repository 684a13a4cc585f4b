"""Databases of strangers: merged and read only if a sweep could have written them."""

import json
import sqlite3
import time
from contextlib import closing

import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.sweep.export import export
from tilewright.flows.sweep.records import Database, DatabaseError, Record, RecordKey
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel, SharedBus
from tilewright.isa.settings import memory_text

KEY = RecordKey("sim", "v1", "n", "c", memory_text(MemoryModel()))

BOMB = """
drop table records;
create view records as with recursive n(i) as (select 1 union all select i + 1 from n)
select i as key, '' as evaluator, '' as version, '' as network, '' as configuration,
'' as memory, 1 as cycles, '{}' as figures, null as error from n;
"""
"""A small file whose table of records does not end."""

TABLES = {
    "view": BOMB,
    "trigger": "create trigger t after insert on records begin delete from records; end",
    "extra table": "create table more (x)",
    "index": "drop index best; create index best on records (lower(error))",
    "name": 'create table "\x1b[31m\n" (x)',
}

ROWS = {
    "update records set key = 'other'": "key: expected `",
    "update records set cycles = 8": "cycles: expected those of the figures, got 8",
    "update records set cycles = 'x'": "cycles: expected those of the figures, got 'x'",
    "update records set figures = '{\"cycles\": NaN}'": "figures: expected JSON, got `NaN is not a",
    "update records set figures = '{\"cycles\": 1e999}'": "got `1e999 is not a finite number`",
    "update records set figures = '[7]'": "figures: expected a JSON object, got list",
    "update records set figures = 'x'": "figures: expected JSON, got `Expecting value",
    "update records set figures = x'00ff'": "figures: expected JSON of at most",
    "update records set figures = cast(x'ff' as text)": "cannot be used, got `Could not decode",
    f"update records set figures = '{'[' * 100_000}'": "brackets nested too deeply",
    f"update records set figures = '{{\"cycles\": {'9' * 400}}}'": "number of more than 64 bits`",
    f"update records set figures = '{{\"cycles\": {'9' * 9_000}}}'": "figures: expected JSON, got",
    "update records set evaluator = 7.5, key = 'k'": "key: expected `",
    "update records set evaluator = x'00'": "`evaluator`: expected text, got bytes",
    "update records set memory = char(27) || '[2J'": (
        "`memory`: expected at most 1,000 printable characters, got '\\x1b[2J'"
    ),
    "update records set memory = printf('%.*c', 2000, 'm')": "`memory`: expected at most 1,000",
    "update records set error = x'00'": "error: expected text, got bytes",
    "update networks set name = char(10)": "`name of a network`: expected at most 1,000 printable",
    "update configurations set parameters = '{}'": "parameters: expected the hash of others",
    "update configurations set parameters = '{\"a\": [1]}'": "JSON object of numbers and words",
    "update configurations set parameters = '['": "parameters: expected JSON, got `Expecting value",
}


@pytest.fixture
def theirs(tmp_path):
    """A database with one record, and what changes it."""
    path = tmp_path / "theirs.db"
    with Database(path) as database:
        database.name_network("n", "digits")
        database.add_configurations([PRESETS["8x8"]])
        database.add([(KEY, Record({"cycles": 7}))])

    def change(statements: str):
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(statements)
        return path

    return change


@pytest.mark.parametrize("kind", TABLES)
def test_other_tables_are_refused_before_they_are_read(theirs, kind):
    with Database() as ours:
        with pytest.raises(DatabaseError) as refused:
            ours.merge(theirs(TABLES[kind]))
        assert "expected the tables of a database of sweeps, got others" in str(refused.value)
        assert str(refused.value).isprintable()
        assert len(ours) == 0


@pytest.mark.parametrize("change", ROWS)
def test_rows_that_no_sweep_writes_are_refused(theirs, tmp_path, change):
    path = theirs(change)
    with Database(tmp_path / "ours.db") as ours:
        with pytest.raises(DatabaseError) as refused:
            ours.merge(path)
        assert ROWS[change] in str(refused.value)
        assert str(refused.value).isprintable()
        assert (len(ours), list(ours.rows())) == (0, []), "nothing of it is taken"


@pytest.mark.parametrize("change", ROWS)
def test_a_strange_database_is_read_or_refused_in_one_sentence(theirs, tmp_path, change):
    """The file that the user names as the sweep's own."""
    said = ""
    try:
        with Database(theirs(change)) as database:
            database.find([KEY])
            database.best("n", 3)
            export(database, tmp_path / "out.csv")
    except DatabaseError as problem:
        said = str(problem)
    assert said.isprintable()


def test_a_damaged_file_is_one_sentence(theirs, capsys):
    path = theirs("vacuum")
    whole = path.read_bytes()
    for place in range(100, len(whole), len(whole) // 50):
        path.write_bytes(whole[:place] + bytes(64) + whole[place + 64 :])
        code = main(["sweep", "--merge", str(path), "--database", str(path.with_name("ours.db"))])
        said = capsys.readouterr().err
        assert code in (0, 1), said
        assert "unexpected" not in said


@pytest.mark.parametrize(
    ("owner", "until"),
    [("other 1", 1e300), ("other 1", "x"), ("no number", 1e12), (b"\0", b"\0")],
)
def test_no_claim_of_a_stranger_lasts(theirs, owner, until):
    path = theirs("")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute(
            "insert into claims values ('work', coalesce(?, 'x'), ?)", (owner, until)
        )
    with Database(path) as database:
        assert database.claim("work", 60)


def test_a_claim_of_a_living_process_lasts(theirs):
    path = theirs("")
    with closing(sqlite3.connect(path)) as connection, connection:
        values = ("work", "another computer 1", time.time() + 60)
        connection.execute("insert into claims values (?, ?, ?)", values)
    with Database(path) as database:
        assert not database.claim("work", 60)


def test_all_properties_of_a_memory_are_exported(tmp_path):
    bus = SharedBus.of_cycles(6, 7, 7, 781)
    memory = MemoryModel(latency_cycles=9, cycles=2, outstanding_bursts=3, bus=bus)
    with Database() as database:
        database.add(
            [(RecordKey("sim", "1", "n", "c", memory_text(memory)), Record({"cycles": 1}))]
        )
        export(database, tmp_path / "out.jsonl")
    row = json.loads((tmp_path / "out.jsonl").read_text())
    names = ("latency", "bandwidth", "outstanding", "shared_bus")
    assert [row[name] for name in names] == [9, "1/2", 3, "6/7/7/781"]

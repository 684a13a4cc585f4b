"""The records of sweeps: a SQLite file that holds each result once, under a hash of its inputs.

The file is in WAL mode. Each result is written in one transaction as soon as it is known, so a
killed process loses only its unfinished work. Several processes may use the same file. A file may
come from a stranger: one with other tables, with views or with triggers is refused, and so is a row
that no sweep has written.
"""

import hashlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...errors import TilewrightError
from ...isa.configuration import Configuration
from ...isa.settings import MEMORY
from ...quoting import is_count, printable
from .record_checks import (
    ImpossibleError,
    check_record,
    check_text,
    error_of,
    figures_of,
    parameters_of,
    schema_of,
)

APPLICATION = 0x7469_6C65
"""SQLite's `application_id` of a database of sweeps."""
LAYOUT = 1
"""SQLite's `user_version`: counts incompatible changes of the tables."""
MAX_LEASE_S = 24 * 60 * 60
"""Seconds that a claim can last."""
BUSY_S = 60
"""Seconds to wait for another process that writes."""
KEYS_A_QUERY = 500
DIGEST_DIGITS = 32

TABLES = """
create table networks (digest text primary key, name text not null) without rowid;
create table configurations (digest text primary key, parameters text not null) without rowid;
create table records (
    key text primary key,
    evaluator text not null,
    version text not null,
    network text not null,
    configuration text not null,
    memory text not null,
    cycles integer,
    figures text not null,
    error text
) without rowid;
create table claims (
    name text primary key, owner text not null, until real not null
) without rowid;
create index best on records (evaluator, network, cycles);
"""


NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
"""Names of SQLite's errors on a full disk; the second with a quota or a limit of file sizes."""

PROGRAM_FOR = " with the program for "
"""Separates two main memories in a key: the one that is timed, and the program's."""

LOST = "lost: "
"""Prefix of errors of work that no suitable worker finished; the next sweep tries it again."""

OWNER = f"{socket.gethostname()} {os.getpid()}"
"""The name of this process in claims."""


def _may_live(owner: str) -> bool:
    """Whether a process may exist; processes of other computers always may."""
    host, _, process = owner.rpartition(" ")
    if host != socket.gethostname():
        return True
    if not 0 < len(process) < 10 or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class DatabaseError(TilewrightError):
    """A database of sweeps cannot be used."""


class FullDiskError(DatabaseError):
    """The disk has no room for the database."""


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The inputs that determine a result.

    Parameters
    ----------
    evaluator, version
        The evaluator that computed the result, and a hash of its source.
    network
        Hash of the network; empty if the result does not depend on one.
    configuration
        Hash of the configuration, see `configuration_digest`.
    memory
        The main memory as `settings.memory_text` writes it, and after `PROGRAM_FOR` the one that
        the program was made for if that is another one; empty if the result depends on neither.
    """

    evaluator: str
    version: str
    network: str
    configuration: str
    memory: str

    @property
    def digest(self) -> str:
        """The primary key of the record."""
        fields = (self.evaluator, self.version, self.network, self.configuration, self.memory)
        return digest_of(json.dumps(fields))


@dataclass(frozen=True, slots=True)
class Record:
    """A result, or the failure to get one.

    Parameters
    ----------
    figures
        Numbers by name; after a failure at most what it was about, such as the chip.
    error
        The reason why there is no result; None if there is one.
    """

    figures: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


def digest_of(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def configuration_digest(configuration: Configuration) -> str:
    """Return the hash of all parameters of a configuration, without its name."""
    return digest_of(json.dumps(configuration.parameters(), sort_keys=True))


def _properties(memory: str) -> dict[str, Any]:
    """Return the properties in the text of a memory; None for those that it lacks."""
    pairs = (part.partition("=") for part in memory.split(","))
    found = {name: value for name, _, value in pairs}
    whole = ("latency", "outstanding")
    numbers = {name: int(found[name]) for name in whole if is_count(found.get(name, ""))}
    return {name: None if name in whole else found.get(name) for name in MEMORY} | numbers


def _location(path: Path) -> str:
    """Return the name by which SQLite opens a file; it would cut the path at a NUL."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise DatabaseError(f"database {str(path)!a}: no file can have this name; correct the path")
    return f"file:{quote(encoded)}"


class Database:
    """The records in a file, or in this process alone.

    While the disk is full, results wait in memory and go to the file as soon as it has room.

    Parameters
    ----------
    path : Path or None
        The file, created if missing; None to keep the records in this process only.
    read_only : bool
        Whether the file must exist, and is left as it is.

    Raises
    ------
    DatabaseError
        If the file is not a database of sweeps, or cannot be read or written.
    """

    def __init__(self, path: Path | None = None, *, read_only: bool = False) -> None:
        self.path = path
        self._waiting: list[tuple[str, list[tuple[Any, ...]]]] = []
        name = _location(path) if path else ":memory:"
        with self._explained():
            self._connection = sqlite3.connect(
                name + "?mode=ro" * read_only, timeout=BUSY_S, isolation_level=None, uri=True
            )
            self._connection.execute("pragma trusted_schema = off")
            self._connection.execute("pragma synchronous = normal")
            try:
                self._open(read_only)
            except BaseException:
                self.close()
                raise

    def _open(self, read_only: bool) -> None:
        run = self._connection.execute
        with nullcontext() if read_only else self._transaction():
            (tables,) = run("select count(*) from sqlite_master").fetchone()
            if not tables and not read_only:
                run(f"pragma application_id = {APPLICATION}")
                run(f"pragma user_version = {LAYOUT}")
                for statement in filter(str.strip, TABLES.split(";")):
                    run(statement)
        (application,) = run("pragma application_id").fetchone()
        (layout,) = run("pragma user_version").fetchone()
        if application != APPLICATION:
            raise DatabaseError(
                f"{self._name}: expected a database of sweeps, got one of another program, "
                "which is left as it is; choose another file"
            )
        if layout != LAYOUT:
            raise DatabaseError(
                f"{self._name}: expected layout {LAYOUT}, got {layout}, of another version of "
                "Tilewright; choose another file"
            )
        if strange := schema_of(self._connection) ^ _schema():
            kind, name, _ = min(strange)
            raise DatabaseError(
                f"{self._name}: expected the tables of a database of sweeps, got others, such as "
                f"the {kind} `{printable(name)}`; choose another file"
            )
        if not read_only:
            run("pragma journal_mode = wal")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    # Results -----------------------------------------------------------------------------------

    def find(self, keys: Iterable[RecordKey]) -> dict[RecordKey, Record]:
        """Return the records that exist for these keys."""
        wanted = {key.digest: key for key in keys}
        digests, found = list(wanted), {}
        with self._explained():
            for start in range(0, len(digests), KEYS_A_QUERY):
                some = digests[start : start + KEYS_A_QUERY]
                marks = ", ".join("?" * len(some))
                rows = self._connection.execute(
                    f"select key, figures, error from records where key in ({marks})", some
                )
                for digest, figures, error in rows:
                    found[wanted[digest]] = Record(figures_of(figures), error_of(error))
        return found

    def add(self, results: Sequence[tuple[RecordKey, Record]]) -> None:
        """Write results in one transaction. They replace failures, but never earlier results."""
        rows = [
            (
                key.digest, key.evaluator, key.version, key.network, key.configuration, key.memory,
                record.figures.get("cycles"), json.dumps(dict(record.figures)), record.error,
            )
            for key, record in results
        ]  # fmt: skip
        self._write(
            "insert into records values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (key) do "
            "update set cycles = excluded.cycles, figures = excluded.figures, "
            "error = excluded.error where records.error is not null",
            rows,
        )

    def flush(self) -> None:
        """Write the results that wait for room on the disk.

        Raises
        ------
        FullDiskError
            If there is still no room.
        """
        if self._waiting:
            with self._explained(), self._transaction():
                for statement, rows in self._waiting:
                    self._connection.executemany(statement, rows)
            self._waiting.clear()

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        self._waiting.append((statement, rows))
        with suppress(FullDiskError):
            self.flush()

    # Claims ------------------------------------------------------------------------------------

    def claim(self, name: str, lease_s: float) -> bool:
        """Claim some work for this process. Return False while another live process has it.

        On a full disk nobody can claim anything, so work may be done twice.

        Parameters
        ----------
        lease_s
            Seconds until the claim expires, on any computer.
        """
        with suppress(FullDiskError), self._explained(), self._transaction():
            found = self._connection.execute(
                "select owner, until from claims where name = ?", (name,)
            ).fetchone()
            if found is not None:
                owner, until = found
                is_time = isinstance(until, float) and time.time() < until
                # No claim lasts longer, whatever the file says.
                if is_time and until <= time.time() + MAX_LEASE_S and _may_live(str(owner)):
                    return owner == OWNER
            self._connection.execute(
                "insert or replace into claims values (?, ?, ?)",
                (name, OWNER, time.time() + lease_s),
            )
        return True

    def release(self) -> None:
        """Give up all claims of this process."""
        with self._explained():
            self._connection.execute("delete from claims where owner = ?", (OWNER,))

    def name_network(self, digest: str, name: str) -> None:
        """Record the name of a network."""
        self._write("insert or ignore into networks values (?, ?)", [(digest, name)])

    def add_configurations(self, configurations: Iterable[Configuration]) -> None:
        """Record the parameters of configurations."""
        rows = [
            (configuration_digest(one), json.dumps(one.parameters(), sort_keys=True))
            for one in configurations
        ]
        self._write("insert or ignore into configurations values (?, ?)", rows)

    def forget(self, failures: str = "") -> int:
        """Remove failures whose text starts with `failures`, and return their number."""
        with self._explained():
            return self._connection.execute(
                "delete from records where substr(error, 1, ?) = ?", (len(failures), failures)
            ).rowcount

    # Reading -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._explained():
            return self._connection.execute("select count(*) from records").fetchone()[0]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all records in the order of their keys, with configuration and network."""
        with self._explained():
            found = self._connection.execute(
                "select key, evaluator, version, networks.name, records.network, memory, "
                "parameters, records.configuration, figures, error from records "
                "left join networks on networks.digest = records.network "
                "left join configurations on configurations.digest = records.configuration "
                "order by key"
            )
            for key, evaluator, version, name, network, memory, parameters, machine, *rest in found:
                timed, _, program_for = check_text("memory", memory).partition(PROGRAM_FOR)
                yield {
                    "key": check_text("key", key),
                    "evaluator": check_text("evaluator", evaluator),
                    "version": check_text("version", version),
                    "network": check_text("network", name or ""),
                    "network_digest": check_text("network", network),
                    "configuration_digest": check_text("configuration", machine),
                    **_properties(timed),
                    "program_for": program_for or None,
                    "parameters": parameters_of(machine, parameters) if parameters else {},
                    "figures": figures_of(rest[0]),
                    "error": error_of(rest[1]),
                }

    def best(self, network: str, count: int, evaluator: str = "sim") -> list[tuple[int, str, str]]:
        """Return the records with the fewest cycles: cycles, configuration's digest, memory."""
        with self._explained():
            return self._connection.execute(
                "select cycles, configuration, memory from records where evaluator = ? and "
                "network = ? and cycles is not null order by cycles limit ?",
                (evaluator, network, count),
            ).fetchall()

    def of_evaluator(self, evaluator: str, network: str = "") -> Iterator[tuple[RecordKey, Record]]:
        """Yield the checked records of an evaluator, perhaps of one network, in a fixed order."""
        with self._explained():
            found = self._connection.execute(
                "select * from records where evaluator = ? and ? in ('', network) order by key",
                (evaluator, network),
            )
            for row in found:
                check_record(row)
                yield RecordKey(*row[1:6]), Record(figures_of(row[7]), error_of(row[8]))

    def names(self) -> dict[str, str]:
        """Return the names of networks by their hashes."""
        return dict(self._rows_of("networks", _check_network))

    def parameters(self) -> dict[str, dict[str, Any]]:
        """Return the parameters of configurations by their hashes."""
        rows = self._rows_of("configurations", lambda row: parameters_of(*row))
        return {digest: parameters_of(digest, text) for digest, text in rows}

    def add_parameters(self, parameters: Mapping[str, int | str]) -> str:
        """Record the parameters of a target that is no configuration, and return their hash."""
        text = json.dumps(dict(parameters), sort_keys=True)
        self._write("insert or ignore into configurations values (?, ?)", [(digest_of(text), text)])
        return digest_of(text)

    def merge_rows(self, rows: Mapping[str, Iterable[Sequence[Any]]]) -> int:
        """Add rows by table, which `check_row` accepts, and return the number of new records."""
        before = len(self)
        with self._explained(), self._transaction():
            for table, marks, _ in _TABLES:
                self._connection.executemany(
                    f"insert into {table} values {marks}", rows.get(table, ())
                )
        return len(self) - before

    def merge(self, other: Path) -> int:
        """Copy the records of another database, and return the number of new ones.

        Results replace failures.

        Raises
        ------
        DatabaseError
            When there is no such database.
        """
        if not os.path.isfile(other):
            raise DatabaseError(f"database `{other}`: expected a file, found none; check the path")
        before = len(self)
        with Database(other, read_only=True) as theirs:
            with theirs._explained():
                theirs._check_pages()
            with self._explained(), self._transaction():
                for table, marks, check in _TABLES:
                    rows = theirs._rows_of(table, check)
                    self._connection.executemany(f"insert into {table} values {marks}", rows)
        return len(self) - before

    def _check_pages(self) -> None:
        """Raise an error if the file is damaged."""
        (found,) = self._connection.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise ImpossibleError(f"pages: expected a whole file, got `{printable(str(found))}`")

    def _rows_of(self, table: str, check: Callable[[Sequence[Any]], object]) -> Iterator[tuple]:
        with self._explained():
            for row in self._connection.execute(f"select * from {table} order by 1"):
                check(row)
                yield row

    # Help --------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"database `{self.path}`" if self.path else "database in memory"

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("begin immediate")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled back already
                self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ImpossibleError as problem:
            raise DatabaseError(
                f"{self._name}: {printable(str(problem))}; the file is damaged, or not made by "
                "`tilewright sweep`: copy it from elsewhere, or choose another one"
            ) from None
        except UnicodeDecodeError:  # even SQLite's message has bytes of the file
            raise DatabaseError(
                f"{self._name}: cannot be used, got names that are not text; {_CURES['malformed']}"
            ) from None
        except sqlite3.Error as problem:
            text = str(problem)
            cure = next((cure for part, cure in _CURES.items() if part in text), "check the file")
            name = getattr(problem, "sqlite_errorname", "")
            kind = FullDiskError if name in NO_ROOM else DatabaseError
            raise kind(f"{self._name}: cannot be used, got `{printable(text)}`; {cure}") from None


@cache
def _schema() -> set[tuple[str, str, str]]:
    """Return what a database has."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return schema_of(connection)


def _check_network(row: Sequence[Any]) -> None:
    check_text("network", row[0])
    check_text("name of a network", row[1])


_TABLES = (
    ("networks", "(?, ?) on conflict do nothing", _check_network),
    ("configurations", "(?, ?) on conflict do nothing", lambda row: parameters_of(*row)),
    (
        "records",
        "(?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (key) do update set cycles = excluded.cycles, "
        "figures = excluded.figures, error = excluded.error where records.error is not null and "
        "excluded.error is null",
        check_record,
    ),
)
"""Tables that are merged, how a row is inserted, and its check."""


def check_row(table: str, row: Sequence[Any]) -> None:
    """Check a row of a table.

    Raises
    ------
    ImpossibleError
        If a database of sweeps cannot have it.
    """
    next(check for name, _, check in _TABLES if name == table)(row)


_CURES = {
    "locked": "wait for the other process, or choose another file",
    "full": "make room and run it again; what was recorded is kept",
    "not a database": "choose another file; this one is left as it is",
    "malformed": "the file is damaged: copy it from elsewhere, or choose another one",
    "unable to open": "check that the folder exists and may be written",
    "readonly": "check the permissions, or choose another file",
    "disk I/O": "check the disk; what was recorded is kept",
}
"""Remedies, by a part of SQLite's message."""

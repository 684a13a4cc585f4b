"""Export of records as CSV, JSON lines and Parquet, sorted by key: equal records, equal bytes."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ...atomic_write import check_output, write_output
from ...errors import ToolError, UsageError, install_command
from ...isa.configuration import PARAMETERS
from ...isa.settings import MEMORY
from ...quoting import csv_cell
from .records import Database

FIRST = ("key", "network", "evaluator", "error", *MEMORY, "program_for")
"""The first columns of a table; parameters and figures follow."""
LAST = ("version", "network_digest", "configuration_digest")


def check_export(path: Path) -> None:
    """Check the name of a file before a long computation.

    Raises
    ------
    UsageError
        When its format is unknown.
    ToolError
        When the library that writes the format is not installed.
    """
    if path.suffix not in FORMATS:
        *others, last = FORMATS
        raise UsageError(
            f"`--export {path}`: expected a name that ends in {', '.join(others)} or {last}; "
            "choose one"
        )
    if path.suffix == ".parquet":
        _pyarrow("pyarrow")
    check_output(path, f"`--export {path}`")


def export(database: Database, path: Path) -> int:
    """Write all records in the format of the file's suffix, and return their number."""
    check_export(path)
    rows = [_flat(row) for row in database.rows()]
    write_output(path, FORMATS[path.suffix](rows), f"`--export {path}`")
    return len(rows)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: row[name] for name in FIRST}
    rest = {name: row[name] for name in LAST}
    figures = {name: _cell(value) for name, value in sorted(row["figures"].items())}
    return {**given, **row["parameters"], **figures, **rest}


def _cell(value: Any) -> Any:
    """Return lists and objects as JSON text, because a cell of a table has one value."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    figures = sorted({name for row in rows for name in row} - {*FIRST, *PARAMETERS, *LAST})
    return [*FIRST, *PARAMETERS, *figures, *LAST]


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    columns = _columns(rows)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: csv_cell(name) for name in columns})
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _as_parquet(rows: list[dict[str, Any]]) -> bytes:
    columns = {name: [row.get(name) for row in rows] for name in _columns(rows)}
    buffer = io.BytesIO()
    _pyarrow("pyarrow.parquet").write_table(_pyarrow("pyarrow").table(columns), buffer)
    return buffer.getvalue()


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ToolError(
            "PyArrow: not installed, so no Parquet file can be written; install it with "
            f"`{install_command('sweep')}`, or choose a name that ends in .csv"
        ) from None


FORMATS: Mapping[str, Callable[[list[dict[str, Any]]], str | bytes]] = {
    ".csv": _as_csv,
    ".jsonl": _as_lines,
    ".parquet": _as_parquet,
}
"""Writers by suffix."""

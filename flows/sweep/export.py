"""Export of records as CSV and JSON lines, sorted by key, so equal records give equal bytes."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...atomic_write import write_output
from ...errors import UsageError
from ...isa.configuration import PARAMETERS
from .records import Database

FIRST = ("key", "network", "evaluator", "error", "latency", "bandwidth", "outstanding")
"""The first columns of a table; parameters and figures follow."""
LAST = ("version", "network_digest", "configuration_digest")


def check_export(path: Path) -> None:
    """Check the name of a file before a long computation.

    Raises
    ------
    UsageError
        When its format is unknown.
    """
    if path.suffix not in FORMATS:
        raise UsageError(
            f"`--export {path}`: expected a name that ends in {' or '.join(FORMATS)}; choose one"
        )


def export(database: Database, path: Path) -> int:
    """Write all records in the format of the file's suffix, and return their number."""
    check_export(path)
    rows = [_flat(row) for row in database.rows()]
    write_output(path, FORMATS[path.suffix](rows), f"`--export {path}`")
    return len(rows)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: row[name] for name in FIRST}
    rest = {name: row[name] for name in LAST}
    return {**given, **row["parameters"], **dict(sorted(row["figures"].items())), **rest}


def _as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _as_csv(rows: list[dict[str, Any]]) -> str:
    figures = sorted({name for row in rows for name in row} - {*FIRST, *PARAMETERS, *LAST})
    text = io.StringIO()
    writer = csv.DictWriter(text, [*FIRST, *PARAMETERS, *figures, *LAST], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


FORMATS: Mapping[str, Callable[[list[dict[str, Any]]], str]] = {
    ".csv": _as_csv,
    ".jsonl": _as_lines,
}
"""Writers by suffix."""

"""Checks of what a database of sweeps says: it may be damaged, or come from a stranger.

A row must be one that `Database` writes: its tables and no views or triggers, texts of bounded
length, finite figures, and a key that follows from the other fields.
"""

import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from ...file_access import parse_json

MAX_TEXT = 1_000
"""Characters of a name, a hash or a memory."""
MAX_ERROR = 100_000
MAX_FIGURES = 1 << 24
"""Characters of all figures of a record."""

DIGEST = re.compile(r"[0-9a-f]{32}")


class ImpossibleError(Exception):
    """The reason why this cannot be in a database of sweeps."""


def schema_of(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return type, name and definition of everything in a database."""
    found = connection.execute("select type, name, sql from sqlite_master").fetchall()
    return {(kind, name, " ".join(str(sql).split())) for kind, name, sql in found if sql}


def check_text(what: str, value: object, most: int = MAX_TEXT) -> str:
    """Return a text; raise an error unless it is one line of printable characters."""
    if not isinstance(value, str):
        raise ImpossibleError(f"`{what}`: expected text, got {type(value).__name__}")
    if len(value) > most or not value.isprintable():
        raise ImpossibleError(
            f"`{what}`: expected at most {most:,} printable characters, got {ascii(value)[:80]}"
        )
    return value


def figures_of(text: object) -> dict[str, Any]:
    """Return the figures of a record.

    Raises
    ------
    ImpossibleError
        If they are not a JSON object, or one is not finite or too large.
    """
    if not isinstance(text, str) or len(text) > MAX_FIGURES:
        raise ImpossibleError(f"figures: expected JSON of at most {MAX_FIGURES:,} characters")
    try:
        figures = parse_json(text)
    except ValueError as problem:
        raise ImpossibleError(f"figures: expected JSON, got `{problem}`") from None
    if not isinstance(figures, dict):
        raise ImpossibleError(f"figures: expected a JSON object, got {type(figures).__name__}")
    for name in figures:
        check_text("name of a figure", name)
    return figures


def error_of(text: object) -> str | None:
    """Return the error of a record, on one line."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ImpossibleError(f"error: expected text, got {type(text).__name__}")
    return text[:MAX_ERROR]


def parameters_of(digest: object, text: object) -> dict[str, Any]:
    """Return the parameters of a configuration, whose digest must be theirs.

    Raises
    ------
    ImpossibleError
        If they are not a JSON object of numbers and words.
    """
    from .records import digest_of

    written = check_text("parameters", text, MAX_FIGURES)
    try:
        found = parse_json(written)
    except ValueError as problem:
        raise ImpossibleError(f"parameters: expected JSON, got `{problem}`") from None
    if not isinstance(found, dict) or not all(
        isinstance(value, int | str) for value in found.values()
    ):
        raise ImpossibleError("parameters: expected a JSON object of numbers and words")
    for name, value in found.items():
        check_text("name of a parameter", name)
        if isinstance(value, str):
            check_text(name, value)
    if digest != digest_of(json.dumps(found, sort_keys=True)):
        raise ImpossibleError("parameters: expected the hash of others")
    return found


def check_record(row: Sequence[Any]) -> None:
    """Check a row of the table of records.

    Raises
    ------
    ImpossibleError
        If no sweep has written it.
    """
    from .records import RecordKey

    key, evaluator, version, network, configuration, memory, cycles, figures, error = row
    names = ("evaluator", "version", "network", "configuration", "memory")
    fields = (evaluator, version, network, configuration, memory)
    made = RecordKey(*(check_text(*each) for each in zip(names, fields, strict=True)))
    if made.digest != key:
        raise ImpossibleError(f"key: expected `{made.digest}`, got {ascii(key)[:40]}")
    if figures_of(figures).get("cycles") != cycles:
        raise ImpossibleError(f"cycles: expected those of the figures, got {ascii(cycles)[:40]}")
    error_of(error)

"""JSON output of results, to a file or to stdout."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ...atomic_write import check_output, write_output
from ...errors import UsageError
from ...file_access import parse_json, read_part


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json [FILE.json]`; `what` describes its content."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE.json",
        help=f"{what} for machines, to stdout or to a file",
    )  # fmt: skip


def check_json(target: str | None) -> None:
    """Reject a file name that may be a model's, and an existing file that is not JSON.

    Raises
    ------
    UsageError
        Before any long computation.
    """
    if target in (None, "-"):
        return
    if not target.endswith(".json"):
        raise UsageError(
            f"`--json {target}`: expected a name that ends in `.json`, or none for stdout; put "
            "MODEL before `--json`"
        )
    path = Path(target)
    check_output(path, f"`--json {target}`")
    try:
        parse_json(read_part(path) or b"{}") if os.path.isfile(path) else None
    except OSError:
        return
    except ValueError:
        raise UsageError(
            f"`--json {target}`: expected a new file or one of JSON, got a file of something else, "
            "which is left as it is; choose another name"
        ) from None


def write_json(target: str, values: Any) -> None:
    """Write JSON to a file, or to stdout if the target is `-`.

    Raises
    ------
    UsageError
        If the file cannot be written, or `check_json` rejects it.
    """
    check_json(target)
    text = json.dumps(values, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    write_output(Path(target), text, f"`--json {target}`")

"""`--records` and `--no-records`: where schedules of the host's kernels come from."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from ...quoting import printable, shell_word
from ...wording import counted
from ..execution.recorded_choices import (
    NO_RECORDS,
    RECORDS_VARIABLE,
    records_path,
    shipped_keys,
)


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add both options."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--records", type=Path, metavar="FILE",
        help="database with the schedules that `tune` found (default: that in the cache)",
    )  # fmt: skip
    group.add_argument(
        "--no-records",
        action="store_true",
        help="ignore the schedules that `tune` found and those shipped with Tilewright",
    )


def choose_records(arguments: argparse.Namespace) -> None:
    """Let this process, and all that it starts, use the records that the user chose.

    Raises
    ------
    UsageError
        If their file does not exist.
    """
    if arguments.no_records:
        os.environ[RECORDS_VARIABLE] = NO_RECORDS
    elif arguments.records is not None:
        if not os.path.isfile(arguments.records):
            raise UsageError(
                f"`--records {arguments.records}`: there is no such file; `tilewright tune "
                f"MODEL --database {shell_word(str(arguments.records))}` makes one"
            )
        os.environ[RECORDS_VARIABLE] = str(arguments.records)


def records_sentence(choices: Mapping[str, str]) -> str:
    """Say where the recorded schedules in use come from; nothing if there are none."""
    shipped = len(choices.keys() & shipped_keys())
    sources = [
        f"{counted(count, 'kernel')} {source}"
        for count, source in (
            (len(choices) - shipped, f"from `{printable(str(records_path()))}`"),
            (shipped, "shipped with Tilewright"),
        )
        if count
    ]
    if not sources:
        return ""
    return f"records: schedules of {' and of '.join(sources)}; `--no-records` ignores them"

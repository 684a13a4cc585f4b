"""Tables on stdout, for commands that import nothing else."""

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

TABLE_COLUMNS = 200
"""More than any table has, so that a narrow terminal wraps lines rather than cutting numbers."""

TERMINAL_COLUMNS = 100
"""Where the terminal's width is not known, as in a pipe."""

GAP = 2
"""Blank columns after each column of a table."""


class _Results(Console):
    """Lets the command line see that the reader of a pipe went away; Rich would exit by itself."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """A console for results; nothing in them is taken for markup."""
    return _Results(file=sys.stdout, width=TABLE_COLUMNS, markup=False, highlight=False)


def terminal_columns() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((TERMINAL_COLUMNS, 0)).columns


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table with its first `left` columns left-aligned, the others right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for index, heading in enumerate(headings):
        if index < left:
            made.add_column(heading, overflow="ellipsis", no_wrap=True)
        else:
            made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made

"""Tables on stdout, for commands that avoid slow imports."""

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...quoting import printable

TABLE_COLUMNS = 200
"""Wider than any table, so that a narrow terminal wraps lines and cuts no numbers."""

TERMINAL_COLUMNS = 100
"""Width if the terminal's is not known, as in a pipe."""

GAP = 2
"""Blank columns after each column of a table."""


class _Results(Console):
    """A console that raises an error if the reader of a pipe closes it; Rich itself would exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """Return a console for results, which does not interpret markup."""
    return _Results(file=sys.stdout, width=TABLE_COLUMNS, markup=False, highlight=False)


def terminal_columns() -> int:
    """Return the number of columns of the terminal."""
    return shutil.get_terminal_size((TERMINAL_COLUMNS, 0)).columns


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """Make a table with its first `left` columns left-aligned, the others right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for index, heading in enumerate(headings):
        if index < left:
            made.add_column(heading, overflow="ellipsis", no_wrap=True)
        else:
            made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made

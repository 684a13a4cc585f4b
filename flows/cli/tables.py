"""Tables on stdout, for commands that avoid slow imports."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...quoting import printable
from .console import say

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


def tell(text: str) -> None:
    """Print sentences as `say` does, but wrapped on a terminal, with the lines below indented.

    A label such as `points         ` or `verdict: ` stays alone on the left.
    """
    room = terminal_columns()
    for line in text.split("\n"):
        if not sys.stdout.isatty() or len(line) <= room:
            say(line)
            continue
        label = re.match(r" +|\w+: +|\S+(?: \S+)* {2,}", line)
        indent = " " * (label.end() if label else 2)
        say(textwrap.fill(
            line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ))  # fmt: skip


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

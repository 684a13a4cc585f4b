"""Tables for notebooks, which show what `_repr_html_` of an object returns."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1
) -> str:
    """Return a table as HTML, its first `left` columns aligned left and the others right.

    Numbers are grouped by thousands, and None is a dash.
    """

    def line(tag: str, cells: Sequence[object]) -> str:
        found = (
            f'<{tag} style="text-align:{"left" if column < left else "right"}">'
            f"{escape(_text(cell))}</{tag}>"
            for column, cell in enumerate(cells)
        )
        return f"<tr>{''.join(found)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead>{line('th', headings)}</thead><tbody>{body}</tbody></table>"
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.3g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)

"""Docstrings and rows to Markdown, for the manual."""

import html
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from textwrap import dedent


def docstring_sections(thing: object) -> dict[str, str]:
    """NumPy-style docstring by section title; the text before the first one under `""`."""
    text = inspect.getdoc(thing) or ""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    return {
        "": parts[0].strip(),
        **dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True)),
    }


def section_entries(section: str) -> list[tuple[str, str]]:
    """`(names, text)` of a Parameters section."""
    pairs = re.findall(r"^(\S.*)\n((?:[ ]+.*\n?)+)", section + "\n", flags=re.MULTILINE)
    return [(names.strip(), " ".join(text.split())) for names, text in pairs]


def ticks(names: str) -> str:
    """Comma-separated names, each in backticks."""
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + " --- |" * len(header)
    for row in rows:
        yield "| " + " | ".join(cell_text(str(cell)) for cell in row) + " |"
    yield ""


def cell_text(text: str) -> str:
    """Escape the bars of a cell; code becomes HTML, since MkDocs shows the backslashes in it."""

    def code(match: re.Match[str]) -> str:
        return f"<code>{html.escape(match[1], quote=False).replace('|', '&#124;')}</code>"

    return re.sub(r"`([^`]*\|[^`]*)`", code, text).replace("|", "\\|")


def paragraphs(text: str) -> Iterator[str]:
    """Lines of indented text; paragraphs are wrapped at 100 columns, the rest is unchanged."""
    for block in dedent(text).strip().split("\n\n"):
        plain = not re.match(r"[|*#]|\s", block)
        yield from (
            textwrap.wrap(block, 100, break_on_hyphens=False) if plain else block.splitlines()
        )
        yield ""

"""Pages whose listings and figures are what their code gives; run this file to write them anew.

`15,918<!-- tilewright boards MODEL: ULX3S-25F.cycles -->` is a figure of the text with the command
that makes it, to which `--json` is added, and its place in the result. A word in a place names a
key, or the entry of a list that has it as a value.
"""

import contextlib
import io
import json
import os
import re
import shlex
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tilewright.flows.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FIGURE = re.compile(r"([\d,.]+)<!-- tilewright ([^>]+): ([\w.-]+) -->")
API_PAGE, OPERATORS_PAGE, SCHEDULES_PAGE, WRITERS_PAGE = (
    ROOT / "docs" / name
    for name in ("api.md", "own-operators.md", "schedules.md", "write-schedules.md")
)
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def refreshed(page: Path) -> str:
    """The page, every `text` block holding what the code blocks since the one before it print.

    The code runs in an empty folder that has nothing but the examples.
    """
    namespace: dict[str, object] = {}
    printed = io.StringIO()

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        if match[1] == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(match[2], str(page), "exec"), namespace)
            return match[0]
        listing, printed = printed.getvalue(), io.StringIO()
        return f"```text\n{listing}```"

    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "examples", "examples")
        return BLOCK.sub(block, page.read_text())


def with_figures(page: Path) -> str:
    """The page with every figure of a command as the command gives it now."""

    def figure(match: re.Match[str]) -> str:
        value = at(result_of(match[2]), match[3])
        return f"{round(value):,}{match[0][len(match[1]) :]}"

    return FIGURE.sub(figure, page.read_text())


@cache
def result_of(command: str) -> Any:
    """What a command prints for machines, in the repository's folder."""
    printed = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        code = main([*shlex.split(command), "--json"])
    if code:
        raise ValueError(f"`tilewright {command}` exits with {code}")
    return json.loads(printed.getvalue())


def at(result: Any, place: str) -> float:
    """The number at a place of a result."""
    for word in place.split("."):
        if isinstance(result, list):
            result = next(entry for entry in result if word in entry.values())
        else:
            result = result[word]
    return result


if __name__ == "__main__":
    for path in (README, API_PAGE, OPERATORS_PAGE, SCHEDULES_PAGE, WRITERS_PAGE):
        path.write_text(refreshed(path))
    for path in PAGES:
        path.write_text(with_figures(path))

"""The listings of the page on schedules are what its code prints.

Run as a program, this file writes them anew.
"""

import contextlib
import io
import re
from pathlib import Path

from tilewright.compiler import te
from tilewright.compiler.te.steps import STEPS

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def refreshed(page: str) -> str:
    """The page, every `text` block holding what the code blocks since the one before it print."""
    namespace: dict[str, object] = {}
    printed = io.StringIO()

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        if match[1] == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(match[2], str(PAGE), "exec"), namespace)
            return match[0]
        listing, printed = printed.getvalue(), io.StringIO()
        return f"```text\n{listing}```"

    return BLOCK.sub(block, page)


def test_the_listings_are_what_the_code_prints():
    page = PAGE.read_text()
    assert refreshed(page) == page


def test_every_step_has_its_place_on_the_page():
    headings = re.findall(r"^### (.*)", PAGE.read_text(), re.MULTILINE)
    assert {name for heading in headings for name in heading.split(", ")} == set(STEPS)


def test_every_step_is_a_method_of_the_same_name():
    assert all(callable(getattr(te.Schedule, name)) for name in STEPS)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))

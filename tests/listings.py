"""Pages whose listings are what their code prints; `python tests/listings.py` writes them anew."""

import contextlib
import io
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
API_PAGE, SCHEDULES_PAGE = ROOT / "docs" / "api.md", ROOT / "docs" / "schedules.md"
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


if __name__ == "__main__":
    for path in (README, API_PAGE, SCHEDULES_PAGE):
        path.write_text(refreshed(path))

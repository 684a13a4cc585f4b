"""Pages of the reference that people write: every error class and exit code is on its page."""

import re

from tilewright import errors
from tilewright.compiler.te.target import ScheduleError

from .listings import PAGES, ROOT

ERRORS = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")


def test_the_page_of_errors_has_every_class():
    named = {
        name for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.TilewrightError)
    }  # fmt: skip
    listed = re.findall(r"^\| `(\w+Error)` \|", ERRORS, re.MULTILINE)
    assert sorted(listed) == sorted({*named, ScheduleError.__name__} - {"TilewrightError"})


def test_the_page_of_errors_has_every_exit_code():
    for found in (errors.UsageError, errors.ToolError):
        row = re.search(rf"^\| +{found.exit_code} \|.*`{found.__name__}`", ERRORS, re.MULTILINE)
        assert row is not None
    assert errors.TilewrightError.exit_code == 1


def test_code_in_tables_has_no_bar_to_escape():
    """GitHub needs the backslash, MkDocs shows it; see `isa.markdown.cell_text`."""
    for page in PAGES:
        rows = re.findall(r"^\|.*", page.read_text("utf-8"), re.MULTILINE)
        assert not [row for row in rows if re.search(r"`[^`]*\\\|[^`]*`", row)], page.name


def test_each_decision_is_in_the_list():
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text("utf-8")
    pages = sorted({page.name for page in folder.glob("*.md")} - {"README.md"})
    assert pages == sorted(re.findall(r"\]\(([\w-]+\.md)\)", listed))

"""Collection: files that are left unread, and the order in which workers take the others."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.compiler.cpu_level import LEVEL_VARIABLE

from .conftest import LONG_PATHS, TESTS, pytest_collection_modifyitems, pytest_ignore_collect

SLOW_AND_QUICK = "@pytest.mark.slow\ndef test_a(): ...\n\ndef test_b(): ...\n"


@pytest.mark.parametrize(
    ("selection", "text", "left"),
    [
        ("", "", False),
        ("slow", SLOW_AND_QUICK, False),
        ("not slow", SLOW_AND_QUICK, False),
        ("slow", "def test_b(): ...", True),
        ("not slow and not browser", "def test_b(): ...", False),
        ("(slow or browser) and not opencl", "pytestmark = pytest.mark.browser", False),
        ("(slow or browser) and not opencl", "pytestmark = pytest.mark.opencl", True),
        ("slow and browser", SLOW_AND_QUICK, True),
    ],
)
def test_files_that_name_no_selected_mark_are_left_unread(selection, text, left, tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(text, "utf-8")
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=selection))
    assert bool(pytest_ignore_collect(path, config)) is left
    assert pytest_ignore_collect(tmp_path, config) is None


def test_a_folder_s_fixtures_bring_their_marks(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text("def test_b(device): ...", "utf-8")
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr="opencl"))
    assert pytest_ignore_collect(path, config) is True
    fixture = '@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.opencl)])'
    (tmp_path / "conftest.py").write_text(fixture, "utf-8")
    assert pytest_ignore_collect(path, config) is None


def test_marks_are_named_in_the_files_whose_tests_have_them():
    """Else `pytest_ignore_collect` could not see them."""
    selected = re.compile(r"mark\.(slow|browser|opencl|processor)\b")
    seen = re.compile(r"test_.*|conftest\.py")
    unseen = [path for path in TESTS.rglob("*.py") if not seen.fullmatch(path.name)]
    assert [path for path in unseen if selected.search(path.read_text("utf-8"))] == []


def test_long_files_exist():
    assert [path for path in LONG_PATHS if not path.is_file()] == []


def test_long_files_come_first(pytestconfig, monkeypatch):
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    long = min(LONG_PATHS)
    paths = (TESTS / "a.py", long, TESTS / "b.py", long)
    items: list[Any] = [SimpleNamespace(path=path) for path in paths]
    pytest_collection_modifyitems(pytestconfig, items)
    assert [item.path for item in items] == [long, long, TESTS / "a.py", TESTS / "b.py"]

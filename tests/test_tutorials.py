"""The tutorials and the gallery: each is followed in an empty folder, and gives what it shows."""

import re
import shlex

import pytest

from tilewright.flows.cli.main import parser

from .listings import PICTURES, ROOT, TUTORIALS, refreshed


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_gives_what_it_shows(page):
    pictures = {path: path.read_bytes() for path in PICTURES.iterdir()}
    assert refreshed(page) == page.read_text(), "run `python -m tests.listings`"
    changed = [path.name for path, data in pictures.items() if path.read_bytes() != data]
    assert not changed, "these pictures are new now: look at them and commit them"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_commands_for_a_board_are_commands(page):
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.splitlines():
            program, *words = shlex.split(line.removeprefix("$ "), comments=True)
            assert program in ("tilewright", "pip")
            if program == "tilewright":
                parser(words).parse_args(words)


def test_each_tutorial_is_in_the_list_of_pages():
    listed = (ROOT / "docs" / "README.md").read_text()
    for page in TUTORIALS:
        assert f"({page.relative_to(ROOT / 'docs')})" in listed


def test_a_listing_that_differs_is_found_out(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr("tests.listings.TUTORIALS", [page])
    page.write_text("```sh\necho 3 cycles in 5 us\n```\n```text\n3  cycles in 70 us\n```\n")
    assert refreshed(page) == page.read_text(), "only a time differs"
    page.write_text("```sh\necho 3 cycles in 5 us\n```\n```text\n4 cycles in 5 us\n```\n")
    assert "3 cycles" in refreshed(page).partition("text")[2]
    page.write_text("```sh\nfalse | cat\n```\n")
    with pytest.raises(ValueError, match="false"):
        refreshed(page)


def test_a_listing_without_code_is_refused_not_emptied(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```text\nan answer\n```\n")
    with pytest.raises(ValueError, match="a `text` block that no code prints"):
        refreshed(page)

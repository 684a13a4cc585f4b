"""The pages about boards say what the files of the boards say."""

import re
import tomllib
from pathlib import Path

import pytest

from tilewright.flows.board.board_schema import SCHEMA, Key
from tilewright.flows.board.known_boards import find_board
from tilewright.flows.cli.board_options import usual_design
from tilewright.flows.cli.main import parser

DOCS = Path(__file__).parents[3] / "docs"
ADD = (DOCS / "add-a-board.md").read_text()
LISTINGS = re.findall(r"```toml\n(.*?)```", ADD, re.DOTALL)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda text: tomllib.loads(text)["name"])
def test_listings_are_boards(listing, tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(listing)
    assert usual_design(find_board(str(path))).clock_hz >= 100e6


def test_the_page_has_every_key():
    table = ADD.partition("## The keys")[2].partition("\n\nA pin")[0]
    found = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)?|\.[a-z_]+)`", table))
    for name, key in SCHEMA.items():
        if isinstance(key, Key):
            assert name in found
        else:
            for inner in key:
                assert f"{name}.{inner}" in found or f".{inner}" in found, inner


def test_the_commands_of_the_page_are_commands(tilewright, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my-board.toml").write_text(tilewright("boards", "--template"))
    blocks = re.findall(r" *```sh\n(.*?)```", ADD, re.DOTALL)
    lines = [line.split() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) == 5
    for program, *words in lines:
        assert program == "tilewright"
        given, *_ = " ".join(words).split(" > ")
        parser(given.split()).parse_args(given.split())
        if words[0] == "boards":
            assert "My-Board" in tilewright(*given.split())

"""The pages about boards say what the files of the boards say."""

import re
import tomllib
from pathlib import Path

import pytest

from tilewright.flows.board.board_schema import SCHEMA, SchemaKey
from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import find_board, known_boards, pin_boards
from tilewright.flows.cli.board_options import usual_design
from tilewright.flows.cli.main import parser

DOCS = Path(__file__).parents[3] / "docs"
ADD = (DOCS / "guide" / "add-a-board.md").read_text()
LISTINGS = re.findall(r"```toml\n(.*?)```", ADD, re.DOTALL)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda text: tomllib.loads(text)["name"])
def test_listings_are_boards(listing, tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(listing)
    board = find_board(str(path))
    assert usual_design(board).clock_hz == pytest.approx(board.clock_mhz * 1e6, rel=0.1)


def rows_of(heading: str) -> dict[str, list[str]]:
    """The rows of a table in the page, by board; `A-1, -2` stands for `A-1` and `A-2`."""
    found: dict[str, list[str]] = {}
    page = (DOCS / "guide" / "boards.md").read_text()
    for line in page.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]:
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        first, *others = re.sub(r" \(.*\)", "", names).split(", ")
        stem = first.rpartition("-")[0]
        for name in [first, *(stem + each if each.startswith("-") else each for each in others)]:
            found[name] = cells
    return found


def test_the_tables_of_boards_are_those_of_the_files():
    pins, zynq = rows_of("| memory | clock | serial port |"), rows_of("| memory port | registers |")
    assert pins.keys() == pin_boards().keys()
    assert pins.keys() | zynq.keys() == known_boards().keys()
    for name, (_, preset, memory, clock, _) in pins.items():
        design = usual_design(known_boards()[name])
        assert isinstance(design, Design)
        assert f"`{design.configuration.name}`" in preset, name
        kib = f"{design.memory_bytes // 1024}"
        assert re.search(rf"\b{kib}\b", memory) or memory == design.memory_sentence, name
        assert f"{design.clock_hz / 1e6:g}" in clock, name
    for name, (_, preset, clock, *_) in zynq.items():
        board = known_boards()[name]
        assert (preset, clock) == (f"`{board.configuration}`", f"{board.clock_mhz:g} MHz")


def test_the_page_has_every_key():
    table = ADD.partition("## The keys")[2].partition("\n\nA pin")[0]
    found = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)?|\.[a-z_]+)`", table))
    for name, key in SCHEMA.items():
        if isinstance(key, SchemaKey):
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

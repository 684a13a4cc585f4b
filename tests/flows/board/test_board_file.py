"""Boards as files: the template builds, every mistake is one clear sentence, names are harmless."""

import json
import os
import re
import tkinter
import tomllib
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import HardwareError, TilewrightError, UsageError
from tilewright.flows.board.board_file import MAX_BYTES, PADS_WITH_REGISTERS
from tilewright.flows.board.board_schema import MAX_LIST, SCHEMA, SchemaKey
from tilewright.flows.board.constraints import ccf, cst, lpf, xdc
from tilewright.flows.board.known_boards import FOLDER, find_board, known_boards, pin_boards
from tilewright.flows.cli.commands.board import machine_of
from tilewright.flows.cli.main import main
from tilewright.flows.synthesis.parts import PARTS, find_part
from tilewright.hardware.soc.board import Board, Pin
from tilewright.hardware.soc.sdram_pads import CELLS
from tilewright.quoting import printable

TEMPLATE = (FOLDER.parent / "template.toml").read_text()


@pytest.fixture
def board_file(tmp_path):
    """Write a board file: the template with some text replaced; return its path."""

    def write(*changes: tuple[str, str], text: str = TEMPLATE) -> Path:
        for before, after in changes:
            assert before in text
            text = text.replace(before, after, 1)
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return write


def test_the_template_describes_a_board_that_builds(tilewright, board_file):
    path = board_file(text=tilewright("boards", "--template"))
    mine, like = find_board(str(path)), pin_boards()["ULX3S-25F"]
    assert isinstance(mine, Board)
    assert lpf(mine) == lpf(like).partition('LOCATE COMP "sdram_clk_0"')[0] + "\n".join(
        line for line in lpf(like).splitlines() if "button" in line or "FREQUENCY" in line
    ) + "\n"  # fmt: skip
    (row,) = json.loads(tilewright("boards", "--board", path, "--json"))
    assert (row["board"], row["memory_bytes"], row["result"]) == ("My-Board", 49152, "bitstream")
    given = Namespace(virtual=str(path), config=None, changes=[], clock=None, sdram=None)
    given.memory_kib = None
    assert machine_of(given).memory_kib == 48


def test_the_template_has_every_key_of_a_board_with_pins():
    given = tomllib.loads(TEMPLATE)
    for name, key in SCHEMA.items():
        if not isinstance(key, SchemaKey) and name in given and name != "memory":
            assert given[name].keys() == key.keys()
    assert SCHEMA.keys() - given.keys() == {"like", "zynq"}


def test_a_board_like_another_one_says_only_what_differs(board_file):
    text = 'like = "ULX3S-85F"\nname = "Mine"\nurl = "https://example.org"\n[pins]\nleds = ["B2"]\n'
    mine, like = find_board(str(board_file(text=text))), known_boards()["ULX3S-85F"]
    assert isinstance(mine, Board)
    assert isinstance(like, Board)
    assert mine.part == like.part
    assert mine.sdram == like.sdram, "of the board that the 85F is like"
    assert (mine.leds, mine.button) == ((Pin("B2"),), None), "a table replaces the other"
    assert like.checked
    assert mine.checked == (), "what was checked on another board"


def test_pins_have_levels_and_resistors(board_file):
    pin = '{ site = "R1", low = true, pull = "UP" }'
    board = find_board(str(board_file(('{ site = "R1", pull = "DOWN" }', pin))))
    assert isinstance(board, Board)
    assert board.button == Pin("R1", low=True, pull="UP")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('name = "My-Board"', "", "`name`: expected letters, digits, `-`, `_` and `.`, at most 40, "
         "such as `My-Board`, got none; add it"),
        ('"My-Board"', '"My Board"', "`name`: expected letters, digits, `-`, `_` and `.`, at most "
         "40, such as `My-Board`, got `'My Board'`; correct it"),
        ('"LFE5U-25F-6BG381C"', '"LFE5U-99F"', "`part`: expected a chip with package and speed "
         f"such as {', '.join(PARTS)}, got `'LFE5U-99F'`; correct it"),
        ("clock_mhz = 100", "clock_mhz = true", "`clock_mhz`: expected a number from 1 to 400, got "
         "`True`; correct it"),
        ("baud = 3_000_000", 'baud = "fast"', "`serial.baud`: expected an integer from 1,200 to "
         "12,000,000, got `'fast'`; correct it"),
        ("baud = 3_000_000", "bauds = 1", "key `'serial.bauds'`: expected one of rx, tx, baud, "
         "adapter; did you mean `baud`?"),
        ('rx = "M1"', 'rx = { pull = "UP" }', "`serial.rx`: expected a pin such as \"G2\" or { "
         'site = "G2", low = true, pull = "UP" }, got a table of 1; correct it'),
        ('rx = "M1"', 'rx = "G2"', "pin `G2`: expected one use, got `oscillator` and `rx`; correct "
         "one of them"),
        ('rx = "M1"', 'rx = "IOL3A"', "pin `IOL3A` of `rx`: expected the name of a pin of "
         r"`LFE5U-25F-6BG381C` (pattern [A-Z]{1,2}\d{1,2}); correct it"),
        ("[oscillator]", "[oscillators]", "key `'oscillators'`: expected one of like, name, part, "
         "preset, clock_mhz, programmer, url, sources, checked, oscillator, serial, pins, memory, "
         "zynq; did you mean `oscillator`?"),
        ("[oscillator]\nmhz = 25\npin = \"G2\"\n", "", "`oscillator`: expected this table for the "
         "chip `LFE5U-25F-6BG381C`, got none; add `[oscillator]`"),
        ("[pins]", "[[pins]]", "`pins`: expected a table, got a list of 1; write it as `[pins]`"),
        ('kind = "block-ram"', 'kind = "sdr-x16"', "`memory.pins.clk`: expected 1 pin for "
         "`sdr-x16`, got 0; correct the list"),
        ('kind = "block-ram"', 'kind = "ddr3"', "`memory.kind`: expected one of block-ram, "
         "sdr-x16, sdr-x32, ddr, got `'ddr3'`; correct it"),
        ('kind = "block-ram"', 'kind = "block-ram"\n[memory.pins]\nclk = "F19"', "`memory.pins`: "
         "expected none for `block-ram`, got a table of 1; name another `kind`, or leave the pins "
         "out"),
        ("= 25\n", "= ", "expected TOML, got Invalid value (at line "),
    ],
)  # fmt: skip
def test_a_mistake_names_file_key_expected_and_got(before, after, message, board_file):
    path = board_file((before, after))
    with pytest.raises(HardwareError) as problem:
        find_board(str(path))
    assert str(problem.value).startswith(f"board file `{path}`: {message}")


INJECTIONS = (
    "a\nb", "a\x1b[2J", "a\u202eb", 'a" b', "a}b{", "[exit]", "$x", "a;b", "../../etc", "/etc/x",
    "-x", "a b", "", "a" * 41, "\u00fc", "a\\b", "a`b", "%s%n", "a#b",
)  # fmt: skip
"""Texts that mean something in Tcl, Verilog, constraints, a shell, a path or a terminal."""


@pytest.mark.parametrize("text", INJECTIONS, ids=ascii)
@pytest.mark.parametrize(
    "line",
    [
        'name = "My-Board"', 'part = "LFE5U-25F-6BG381C"', 'preset = "ecp5-25"', 'rx = "M1"',
        'programmer = "ulx3s"', 'standard = "LVCMOS33"', 'kind = "block-ram"', 'site = "R1"',
        'pull = "DOWN"',
    ],
)  # fmt: skip
def test_no_name_that_is_written_into_other_languages_can_break_out(line, text, board_file):
    if (line, text) == ('pull = "DOWN"', ""):
        return  # no resistor
    key = line.partition(" = ")[0]
    with pytest.raises(HardwareError) as problem:
        find_board(str(board_file((line, f"{key} = {json.dumps(text)}"))))
    assert str(problem.value).isprintable(), "one line"
    assert len(str(problem.value)) < 700


def hostile_boards(text):
    """Boards made in Python, whose pins and standards no schema has seen."""
    board = pin_boards()["ULX3S-25F"]
    return replace(board, oscillator=Pin(text)), replace(board, button=Pin("R1", pull=text))


@pytest.mark.parametrize("text", ["a\nb", 'a" b', "a}b{", "[exit]", "$x", "a;b", "a#b"], ids=ascii)
def test_constraints_do_not_rely_on_the_schema(text):
    for write in lpf, cst, ccf:
        for board in hostile_boards(text):
            with pytest.raises(ValueError, match="expected letters, digits and") as problem:
                write(board)
            assert str(problem.value).isprintable()
    for board in hostile_boards(text):
        calls: list[tuple[str, ...]] = []
        tcl = tkinter.Tcl()
        for name in "set_property", "create_clock":
            tcl.createcommand(name, lambda *words, calls=calls: calls.append(words))
        tcl.createcommand("get_ports", lambda port: port)
        tcl.eval(xdc(board))
        pulls = sum(bool(pin.pull) for pin in board.pins.values())
        assert len(calls) == 2 * len(board.pins) + pulls + 1
        assert any(printable(text) in word for call in calls for word in call)


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2J", "a\u202eb", "", "a" * 161], ids=ascii)
def test_texts_for_people_are_one_printable_line(text, board_file):
    for line in 'adapter = "FT231X, USB port US1"', 'sources = ["the schematic, revision 3.0.8"]':
        key = line.partition(" = ")[0]
        value = json.dumps(text) if key == "adapter" else json.dumps([text])
        with pytest.raises(HardwareError, match=f"{key}`: expected"):
            find_board(str(board_file((line, f"{key} = {value}"))))


@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-1", "10" * 40, "[]", "{}", "1979-05-27", '"x"', "true", "[[[]]]", "1e400"],
)
def test_values_of_a_wrong_type_or_range_are_refused(value, board_file):
    texts = ("name", "programmer", "adapter")
    lines = {
        line.partition(" = ")[0]: line
        for line in TEMPLATE.splitlines()
        if re.match(r"\w+ = [^\[]", line)
    }
    assert len(lines) > 12
    for key, line in lines.items():
        if value == '"x"' and key in texts:
            continue
        with pytest.raises(HardwareError, match=f"{key}`: expected|`x` of `"):
            find_board(str(board_file((line, f"{key} = {value}"))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 5000, "expected TOML, got"),
        ("x = " + "[" * 3000 + "]" * 3000, "expected TOML, got"),
        ("a." * 90 + "a = 1", "key `'a'`: expected one of like"),
        ("a." * 3000 + "a = 1", "got line 1 has more than 100 dots; correct it"),
        ("x = " + "9" * 5000, "expected TOML, got"),
        ("#" * MAX_BYTES + "#", f"expected at most {MAX_BYTES:,} bytes, got more; shorten it"),
        ("\\x00", "expected TOML, got"),
        ("'" + "k" * 50_000 + "' = 1", "key `'kkk"),
        (TEMPLATE.replace('["B2"', "[" + '"B2",' * MAX_LIST + '"B2"'), "`pins.leds`: expected"),
    ],
    ids=["open", "nested", "dotted", "dots", "digits", "huge", "zero", "key", "list"],
)
def test_hostile_files_end_in_one_sentence(text, message, board_file):
    with pytest.raises(HardwareError) as problem:
        find_board(str(board_file(text=text)))
    assert message in str(problem.value)
    assert len(str(problem.value)) < 700


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HardwareError, match="expected TOML, got 'utf-8' codec"):
        find_board(str(path))


def test_paths_that_are_no_files(tmp_path):
    pipe, missing = tmp_path / "pipe.toml", tmp_path / "none.toml"
    os.mkfifo(pipe)
    for path in (missing, tmp_path, pipe, "/dev/zero", "a\0.toml"):
        with pytest.raises(UsageError, match=r"there is no such file|cannot be read"):
            find_board(str(path))


def test_like_takes_names_alone(board_file):
    for name in "../x", "/etc/passwd", "a\nb":
        with pytest.raises(HardwareError, match="`like`: expected the name of a board"):
            find_board(str(board_file(text=f"like = {json.dumps(name)}\n")))
    with pytest.raises(UsageError, match=r"expected one of Arty.*; did you mean `OrangeCrab-25F`"):
        find_board(str(board_file(text='like = "OrangeCrap-25F"\n')))


@pytest.mark.parametrize("command", ["build", "boards", "flash"])
def test_commands_take_files_and_refuse_wrong_ones(command, board_file, capsys):
    path = board_file(("mhz = 25", "mhz = 0"))
    assert main([command, "--board", str(path)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"error: board file `{path}`: `oscillator.mhz`: expected a number from 1 to 500, got `0`; "
        "correct it\n"
    )


def test_messages_name_the_file_of_the_board(board_file, capsys, monkeypatch):
    path = board_file()
    monkeypatch.chdir(path.parent)
    assert main(["flash", "--board", path.name]) == 2
    assert "run `tilewright build --board mine.toml` first" in capsys.readouterr().err
    assert main(["boards", "--board", "mine"]) == 2
    assert "`mine`: unknown (did you mean the file `mine.toml`?); " in capsys.readouterr().err


def test_technologies_with_an_sdram_are_those_that_have_pads():
    assert set(PADS_WITH_REGISTERS) == set(CELLS)


def test_every_part_that_messages_show_is_known():
    for name in PARTS:
        assert find_part(name)
    for board in known_boards().values():
        part = find_part(board.part)
        assert part
        assert part.device.name == board.device


def test_files_of_boards_have_their_names_and_sources():
    for path in FOLDER.glob("*.toml"):
        board = known_boards()[path.stem]
        assert board.sources, "where its facts come from"
        assert board.checked


def test_no_chip_is_unknown_by_accident():
    for name in "LFE5U-25F-9BG381C", "xc7z020", "GW2AR-LV18QN88C8/I7 x", "CCGM1A1\n":
        assert find_part(name) is None


def test_every_error_has_an_exit_code_of_its_layer(board_file):
    with pytest.raises(TilewrightError) as problem:
        find_board(str(board_file(("mhz = 25", "mhz = 0"))))
    assert problem.value.exit_code == 1, "the user's design"

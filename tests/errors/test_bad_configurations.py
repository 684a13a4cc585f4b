"""A configuration that cannot be: one line that says which rule is broken."""

import json

import pytest

from tilewright.flows.cli.main import main


def test_a_broken_rule(fail, model):
    assert fail("run", model, "--set", "act_depth=1000") == (
        2,
        "error: `--set act_depth=1000`: `act_depth` must be a power of two from 8 to "
        "65536, not 1000",
    )


def test_a_file_that_breaks_several_rules(fail, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"lanes_in": 4, "vector_lanes": 8, "token_bits": 1, "bus_bits": 32}))
    assert fail("config", "check", path) == (
        1,
        "error: configuration `mine`: `token_bits` must be from 2 to 8, not 1; `lanes_in` must be "
        "a multiple of vector_lanes (8), not 4; lower `vector_lanes` with it",
    )


def test_the_verdict_for_machines_says_why(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"token_bits": 1}))
    assert main(["config", "check", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "legal": False,
        "reason": "configuration `mine`: `token_bits` must be from 2 to 8, not 1",
    }


def test_a_name_that_is_not_text(fail, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": ["mine"]}))
    assert fail("config", "check", path) == (
        1,
        "error: configuration: expected a `name` of 1 to 1,000 printable characters on one line, "
        "got ['mine']; rename it",
    )


def test_a_file_that_is_not_json(fail, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("lanes_in = 4\n")
    code, said = fail("config", "check", path)
    assert code == 1
    assert said == (
        f"error: configuration `{path}`: not readable as JSON: Expecting value: line 1 column 1 "
        "(char 0)"
    )


@pytest.mark.parametrize(
    ("size", "hint"),
    [("64x64", "`lanes=64x64` is `16x16` in that size"), ("4x5", "lanes are powers of two")],
)
def test_an_unknown_preset(fail, model, size, hint):
    assert fail("run", model, "--config", size) == (
        1,
        f"error: configuration `{size}`: neither a preset (tiny, 4x4, 8x8, 8x16, 16x8, 16x16, "
        "32x32, ecp5-25, transformer-25, ecp5-45, ecp5-85, transformer-85, gowin20, gatemate, "
        "zynq7020, ultra96) nor a file; `tilewright config list` shows the presets; " + hint,
    )


def test_a_change_that_is_none(fail, model):
    assert fail("run", model, "--set", "act_depth") == (
        2,
        "error: `--set act_depth`: expected NAME=VALUE such as `act_depth=4096`, got `act_depth`; "
        "correct it",
    )

"""Help: commands in groups, an example of each, and words that a shell completes."""

import argparse
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.flows.cli.main import COMMANDS, EXAMPLES, GROUPS, main, parser

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


def test_every_command_has_one_group_and_an_example():
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    assert list(EXAMPLES) == list(COMMANDS)


def test_help_lists_the_groups(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for title, commands in GROUPS.items():
        assert f"\n{title}:\n" in said
        for name, text in commands.items():
            assert re.search(rf"^  {name} +{re.escape(text)}$", said, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_is_a_line_that_its_command_takes(command, capsys):
    words = shlex.split(EXAMPLES[command].partition(" > ")[0])[1:]
    assert words[0] == command
    parsed, unknown = parser(words).parse_known_args(words)
    assert not unknown
    assert parsed.command == command
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"example: {EXAMPLES[command]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "options"), [("synth", ("--ledger", "--check")), ("conformance", ("--write",))]
)
def test_options_of_developers_are_taken_but_not_shown(command, options, capsys):
    for option in options:
        assert parser([command]).parse_args([command, option]).command == command
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert not any(option in said for option in options)


def test_bash_completes_commands_and_options(tilewright, tmp_path):
    bash = shutil.which("bash")
    assert bash is not None
    script = tmp_path / "completion.sh"
    script.write_text(tilewright("completion", "bash"))
    ask = (
        f"source {script}; COMP_WORDS=(tilewright run --lat); COMP_CWORD=2; "
        "_shtab_tilewright; echo ${COMPREPLY[@]}; COMP_WORDS=(tilewright swe); COMP_CWORD=1; "
        "COMPREPLY=(); _shtab_tilewright; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run([bash, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--latency", "sweep"]


def test_the_parser_for_completion_has_all_commands():
    whole = parser(complete=True)
    (commands,) = (a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    assert list(commands.choices) == list(COMMANDS)


def _parsers(given: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands and actions."""
    yield given
    for action in given._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)


def test_json_means_the_same_in_all_commands():
    found = [
        (action.nargs, action.const, action.metavar)
        for each in _parsers(parser(complete=True))
        for action in each._actions
        if "--json" in action.option_strings
    ]
    assert len(found) >= 17
    assert set(found) == {("?", "-", "FILE.json")}


def test_json_goes_to_a_file_beside_the_table(tilewright, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tilewright("compile", DIGITS, "--config", "8x8", "-o", "digits.tw")
    for words in (
        ("config", "show", "8x8"), ("what-if", "digits.tw", "--latency", "16"),
        ("inspect", "digits.tw"),
    ):  # fmt: skip
        table = tilewright(*words)
        assert tilewright(*words, "--json", "it.json") == table
        assert json.loads((tmp_path / "it.json").read_text()) == json.loads(
            tilewright(*words, "--json")
        )
    tilewright("config", "show", "8x8", "--json", "mine.json")
    assert "8x8 (8x8 MACs" in tilewright("config", "show", "mine.json")

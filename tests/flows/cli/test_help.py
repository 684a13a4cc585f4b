"""Help: commands in groups, an example of each, and words that a shell completes."""

import argparse
import re
import shlex
import shutil
import subprocess

import pytest

from tilewright.flows.cli.main import COMMANDS, EXAMPLES, GROUPS, main, parser


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

"""An option means one thing in all commands, and each side has one name."""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tilewright.compiler.placement import ACCELERATOR, COST, HOST
from tilewright.errors import UsageError
from tilewright.flows.cli.main import main, parser
from tilewright.flows.cli.placement_options import POLICIES, SIDES
from tilewright.flows.synthesis.devices import DEVICES as CHIPS
from tilewright.runtime.devices import DEVICES, HostDevice
from tilewright.runtime.session import HOST_DEVICE

RUNNING = {"run": [*DEVICES], "report": ["sim", "rtl", "gate"],
           "asm": [name for name in DEVICES if DEVICES[name].has_accelerator]}  # fmt: skip
"""The commands that run programs, and their devices."""

TRYING = ("sweep", "tune")
"""The commands that run many programs, on one or several devices."""

BUILDING = ("config show", "sweep", "synth")
"""Commands that are told a chip."""


def _options(
    given: argparse.ArgumentParser, *command: str
) -> Iterator[tuple[str, argparse.Action]]:
    """The options of a parser's commands and actions."""
    for action in given._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _options(inner, *command, name)
        elif action.option_strings:
            yield " ".join(command), action


OPTIONS = list(_options(parser(complete=True)))


def having(option: str) -> dict[str, argparse.Action]:
    return {command: action for command, action in OPTIONS if option in action.option_strings}


def test_an_option_takes_as_many_values_in_all_commands():
    shapes = defaultdict(lambda: defaultdict(list))
    for command, action in OPTIONS:
        for name in action.option_strings:
            takes = action.nargs is None or action.nargs  # an option may be repeated in some
            shapes[name][takes].append(command)
    assert {name: dict(found) for name, found in shapes.items() if len(found) > 1} == {}


def test_a_device_runs_programs():
    found = having("--device")
    assert {*found} == {*RUNNING, *TRYING}
    for command, action in found.items():
        if command in TRYING:
            assert str(action.help).startswith("what runs the programs "), command
            assert (action.metavar, action.const, action.default) == ("ADDRESS", None, [])
        else:
            assert str(action.help).startswith("what runs the program: "), command
            assert action.metavar == "NAME|ADDRESS"


@pytest.mark.parametrize("command", RUNNING)
def test_a_command_takes_its_devices_and_no_others(command):
    given = parser([command])
    for name in DEVICES:
        words = [command, "file", "--device", name.upper()]
        if name in RUNNING[command]:
            assert given.parse_args(words).device == name
            continue
        with pytest.raises(UsageError, match=f"expected one of {', '.join(RUNNING[command])}, or"):
            given.parse_args(words)
    for other in (*CHIPS, "cpu"):
        with pytest.raises(UsageError, match=rf"`--device {other}`: expected one of "):
            given.parse_args([command, "file", "--device", other])


@pytest.mark.parametrize("command", RUNNING)
def test_only_run_takes_a_gpu_beside_an_accelerator(command):
    given = parser([command])
    for beside in ("SIM+GPU", "sim+gpu:opencl", "tcp://board:5555+gpu?tf32"):
        words = [command, "file", "--device", beside]
        if command == "run":
            assert given.parse_args(words).device == beside.lower()
            continue
        with pytest.raises(UsageError, match=r"runs no steps of the host; give `--\w+ (sim|tcp)"):
            given.parse_args(words)


def test_a_layer_is_shown_searched_or_judged_by_the_same_names():
    found = having("--layer")
    assert sorted(found) == ["evaluate", "inspect", "passes", "tune"]
    for command, action in found.items():
        assert re.search(
            r"name (of the layer )?or (that )?of one of its nodes", str(action.help)
        ), command
        assert action.metavar == "NAME"


def test_commands_that_model_a_board_take_its_machine():
    """`--board` of `sweep`, `agent` and others means another thing, or there is none."""
    for command, action in having("--board").items():
        if action.dest == "modelled_board":
            assert "or that of the board" in str(having("--config")[command].help), command
    for command, action in having("--clock").items():
        assert ("that of the board" in str(action.help)) <= (command in having("--board")), command


def test_a_chip_has_the_resources():
    found = having("--chip")
    assert sorted(found) == sorted(BUILDING)
    for command, action in found.items():
        assert str(action.help).startswith("FPGA, or `asic`, "), command


@pytest.mark.parametrize("words", [("synth",), ("config", "show", "tiny"), ("sweep", "m.onnx")])
def test_a_device_is_no_chip(words, capsys):
    assert main([*words, "--chip", "sim"]) == 2
    assert f"`--chip sim`: expected one of {', '.join(CHIPS)}" in capsys.readouterr().err


def test_placing_gives_a_layer_a_side():
    found = having("--place")
    assert {"run", "report", "compile"} <= {*found}
    assert {action.metavar for action in found.values()} == {"LAYER=SIDE"}
    assert {*having("--place")} == {*having("--placement")}


def test_seeds_count_placements_of_a_chip():
    for command, action in having("--seeds").items():
        assert re.search(r"\bplace\b.* N times", str(action.help)), command


def test_each_side_has_one_name():
    assert SIDES == (ACCELERATOR, HOST)
    assert POLICIES == (ACCELERATOR, COST, HOST)
    assert HostDevice.name == HOST_DEVICE == HOST
    for command, action in OPTIONS:
        text = f"{action.help} {action.metavar} {action.choices}"
        assert not re.search(r"\bcpu\b", text), (command, text)

"""Commands on a board without `--config`: the board says which machine it holds."""

import json

import pytest

from tilewright.flows.cli.main import main
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.known_machines import MACHINES, machine_of, remember_machine

from ...runtime.stub_board import StubBoard, serve_in_background

TINY = PRESETS["tiny"]
OWN = TINY.replace(name="tiny,act_depth=64", act_depth=64)


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """Machines that other tests remember do not count."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "halt.asm"
    path.write_text("halt\n")
    return path


def test_a_board_with_a_preset_needs_no_config(tilewright, program, model):
    with serve_in_background(StubBoard(PRESETS["4x4"])) as server:
        address = server.port.address
        said = json.loads(tilewright("run", model, "--device", address, "--json"))
        assert (said["configuration"]["name"], said["device"]) == ("4x4", address)
        assert tilewright("asm", program, "--device", address).startswith("4x4 (4x4 MACs")


def test_a_machine_that_was_built_here_is_known_by_its_name(own_cache, tilewright, program, capsys):
    with serve_in_background(StubBoard(OWN)) as server:
        address = server.port.address
        assert main(["asm", str(program), "--device", address]) == 1
        assert "got a board with one unknown here" in capsys.readouterr().err
        remember_machine(OWN)
        assert tilewright("asm", program, "--device", address).startswith("tiny,act_depth=64 (2x2")
        assert main(["asm", str(program), "--device", address, "--config", "4x4"]) == 1
        assert "the board's with `--config tiny,act_depth=64`" in capsys.readouterr().err


def test_a_spoilt_file_is_no_machine(own_cache):
    remember_machine(OWN)
    assert machine_of(OWN.hash) == OWN
    path = own_cache / MACHINES / f"{OWN.hash:08x}.json"
    for text in ("{", json.dumps({**OWN.to_dict(), "act_depth": 128}), '{"act_depth": 3}'):
        path.write_text(text)
        assert machine_of(OWN.hash) is None

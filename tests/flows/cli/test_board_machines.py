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


def test_a_tuner_takes_the_machine_of_its_board(tilewright, model, tmp_path):
    with serve_in_background(StubBoard(PRESETS["4x4"])) as server:
        address = server.port.address
        said = json.loads(tilewright(
            "tune", model, "--target", "accelerator", "--device", address, "--layer", "conv1",
            "--budget", 1, "--database", tmp_path / "it.db", "--json",
        ))  # fmt: skip
    assert [layer["layer"] for layer in said["layers"]] == ["conv1"]
    assert {trial["device"] for trial in said["trials"]} == {address}


def test_a_machine_that_was_built_here_is_known_by_its_name(own_cache, tilewright, program, capsys):
    with serve_in_background(StubBoard(OWN)) as server:
        address = server.port.address
        assert main(["asm", str(program), "--device", address]) == 1
        assert "got a board with one unknown here" in capsys.readouterr().err
        remember_machine(OWN)
        assert tilewright("asm", program, "--device", address).startswith("tiny,act_depth=64 (2x2")
        assert main(["asm", str(program), "--device", address, "--config", "4x4"]) == 1
        assert "the board's with `--config tiny,act_depth=64`" in capsys.readouterr().err


@pytest.fixture(scope="module")
def own_board(tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "mine.toml"
    path.write_text(
        'like = "ULX3S-25F"\nname = "Mine"\nurl = "https://example.org"\nclock_mhz = 80\n', "utf-8"
    )
    return path


@pytest.mark.parametrize("name", ["ulx3s-25f", "Colorlight-i5", "mine.toml"])
def test_a_model_runs_as_on_a_board_that_is_not_there(name, tilewright, model, own_board):
    """Machine, memory and clock are those of `boards`, so both commands tell one rate."""
    board = own_board if name == "mine.toml" else name
    (row,) = json.loads(tilewright("boards", model, "--board", board, "--json"))
    ran = json.loads(tilewright("run", model, "--board", board, "--json"))
    assert ran["configuration"]["name"] == row["configuration"]
    assert ran["totals"]["cycles"] == row["cycles"]
    assert ran["speed"]["clock_mhz"] == pytest.approx(row["clock_mhz"])
    assert ran["speed"]["accelerator_ms"] == pytest.approx(1000 / row["per_s"])
    compiled = json.loads(
        tilewright("compile", model, "--board", board, "--json", "-o", own_board.parent / "net.tw")
    )
    assert compiled["cycles"] == row["cycles"]


def test_other_options_win_over_those_of_the_board(tilewright, model):
    found = json.loads(
        tilewright(
            "run", model, "--board", "ULX3S-25F", "--set", "act_depth=512", "--latency", 50,
            "--clock", 25, "--json",
        )
    )  # fmt: skip
    assert found["configuration"]["name"] == "ecp5-25,act_depth=512"
    assert found["memory"]["latency_cycles"] == 50
    assert found["memory"]["bus"]["refresh_interval_cycles"] == 195
    assert found["speed"]["clock_mhz"] == 25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--board", "ULX3S"), "board `ULX3S`: unknown (did you mean "),
        (
            ("--board", "ULX3S-25F", "--device", "host"),
            "`--board`: expected `--device sim`, `rtl` or `gate`, got `host`; it has no effect",
        ),
    ],
)
def test_a_board_that_is_unknown_or_of_no_use_is_refused(options, message, model, capsys):
    assert main(["run", str(model), *options]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize("memory", [(), ("--latency", "50", "--bandwidth", "1/2")])
def test_processors_with_a_core_have_the_memory_that_is_asked_for(memory, model, capsys):
    assert main(["run", str(model), "--board", "PYNQ-Z2", *memory, "--json"]) == 0
    said, noted = capsys.readouterr()
    found = json.loads(said)
    assert found["configuration"]["name"] == "zynq7020"
    assert found["speed"]["clock_mhz"] == 100
    assert found["memory"]["latency_cycles"] == (50 if memory else 64)
    assert ("the memory of its processors has no timing model" in noted) == (not memory)


def test_a_spoilt_file_is_no_machine(own_cache):
    remember_machine(OWN)
    assert machine_of(OWN.hash) == OWN
    path = own_cache / MACHINES / f"{OWN.hash:08x}.json"
    for text in ("{", json.dumps({**OWN.to_dict(), "act_depth": 128}), '{"act_depth": 3}'):
        path.write_text(text)
        assert machine_of(OWN.hash) is None

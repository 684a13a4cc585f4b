"""Times at a clock: of a board, of the command line, or the default."""

import json

from tilewright.isa.configuration import PRESETS

from ...runtime.stub_board import StubBoard, serve_in_background

CONFIGURATION = "4x4"
BOARD_HZ = 54_000_000


def test_times_on_a_board_are_at_its_clock(tilewright, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the report is written there
    board = StubBoard(PRESETS[CONFIGURATION], changes={"CLOCK_HZ": BOARD_HZ})
    artifact = tmp_path / "digits.tw"
    tilewright("compile", model, "-o", artifact, "--config", CONFIGURATION)
    with serve_in_background(board) as server:
        there = ("--device", server.port.address)
        for source, machine in (model, ("--config", CONFIGURATION)), (artifact, ()):
            said = tilewright("run", source, *machine, *there)
            assert " ms on the accelerator at 54 MHz " in said
            chosen = tilewright("run", source, *machine, *there, "--clock", 80)
            assert " ms on the accelerator at 80 MHz " in chosen
        data = json.loads(tilewright("report", model, "--config", CONFIGURATION, *there, "--json"))
    assert data["clock_mhz"] == 54


def test_times_without_a_board_are_at_the_default_clock(tilewright, model):
    said = tilewright("run", model, "--config", CONFIGURATION)
    assert " ms on the accelerator at 100 MHz " in said

"""Bitstreams of every board by the real tools, with a small system in place of the core."""

import json

import pytest

from tilewright.flows.board.bitstream import build, write_bitstream
from tilewright.flows.board.design import Design
from tilewright.hardware.soc import system
from tilewright.hardware.soc.boards import BOARDS
from tilewright.isa.configuration import PRESETS

from ...hardware.echo import Echo

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", BOARDS)
def test_the_tools_accept_chip_package_and_pins(name, tmp_path, monkeypatch):
    monkeypatch.setattr(system, "System", lambda *arguments: Echo())
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    board = BOARDS[name]
    built = build(Design(board, PRESETS[board.configuration]), seeds=1)
    assert built.meets_clock
    assert built.packed["ff"] > 50
    bitstream = write_bitstream(built, tmp_path / "build")
    assert bitstream.stat().st_size > 10_000
    assert json.loads((tmp_path / "build" / "build.json").read_text())["board"] == name

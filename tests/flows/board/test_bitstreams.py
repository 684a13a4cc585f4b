"""Bitstreams by the real tools: a small system for every board, the smallest machine for one."""

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
    monkeypatch.setattr(system, "System", lambda *arguments: Echo(arguments[-1]))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    board = BOARDS[name]
    built = build(Design(board, PRESETS[board.configuration]), seeds=1)
    assert built.meets_clock
    assert built.packed["ff"] > 50
    bitstream = write_bitstream(built, tmp_path / "build")
    assert bitstream.stat().st_size > 10_000
    assert json.loads((tmp_path / "build" / "build.json").read_text())["board"] == name


def test_a_whole_machine_reaches_the_clock_of_its_board(tmp_path):
    design = Design(BOARDS["ULX3S-25F"], PRESETS["tiny"])
    built = build(design, seeds=3)
    assert built.meets_clock
    assert built.best.path[0].name.startswith("system.")
    capacity = design.device.capacity
    assert all(0 < built.packed[name] <= capacity[name] for name in capacity)
    assert built.packed["ram"] * 2048 > design.memory_bytes
    assert write_bitstream(built, tmp_path).stat().st_size > 200_000

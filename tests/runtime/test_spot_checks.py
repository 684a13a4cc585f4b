"""A board that computes wrong results is found out, whatever else it says."""

import re

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.cli.main import main
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.runtime import open_device, spot_checks
from tilewright.runtime.board import BoardDevice, stored_ranges

from .stub_board import StubBoard, serve_in_background

SMALL = PRESETS["tiny"]


class LyingBoard(StubBoard):
    """A board whose results have a wrong bit from some run on, the runs that clear included."""

    def __init__(self, honest_runs: int) -> None:
        super().__init__(SMALL)
        self.honest_runs = honest_runs

    def _start(self):
        before = self.memory.copy()
        super()._start()
        changed = np.flatnonzero(self.memory != before)
        if self.runs > self.honest_runs and changed.size:
            self.memory[changed[0]] ^= 4


class WrongByte(StubBoard):
    """A board with a wrong byte where the programs of `measure` store theirs."""

    def _start(self):
        super()._start()
        window = self.machine.memories[Memory.DRAM]
        if window.size > 4096:
            window[4096] ^= 1


def test_the_first_results_are_compared_before_they_are_returned():
    program, image = random_program(SMALL, 3)
    before = image.copy()
    stored = sum(end - start for start, end in stored_ranges(program, SMALL, image.size))
    with (
        serve_in_background(LyingBoard(0)) as server,
        open_device(server.port.address, SMALL) as board,
        pytest.raises(DeviceError) as wrong,
    ):
        board.run(program, image)
    np.testing.assert_array_equal(image, before)
    found = re.fullmatch(
        rf"device `{re.escape(server.port.address)}`: wrong results, 1 of {stored:,} bytes that a "
        r"program stored differ from those of `sim`, first byte (0x[0-9a-f]+) of the data window "
        r"\(expected 0x(..), got 0x(..)\); do not use what it computed before: build the bitstream "
        "for a lower `--clock` and load it again, or check the board's power supply",
        str(wrong.value),
    )
    assert found
    place, expected, got = (int(text, 16) for text in found.groups())
    with open_device("reference", SMALL) as reference:
        right = reference.run(program, before.copy()).dram
    assert right[place] == expected == got ^ 4


def test_a_board_that_begins_to_lie_is_found_out(monkeypatch):
    monkeypatch.setattr(spot_checks, "SHARE", 1e9)
    program, image = random_program(SMALL, 3)
    program = tuple(program)
    with (
        serve_in_background(LyingBoard(6)) as server,
        open_device(server.port.address, SMALL) as board,
    ):
        for _ in range(3):
            board.run(program, image.copy())
        with pytest.raises(DeviceError, match="wrong results"):
            board.run(program, image.copy())


@pytest.mark.parametrize(("share", "checks"), [(0, 2), (1e9, 6)])
def test_checks_take_a_share_of_the_time(monkeypatch, share, checks):
    monkeypatch.setattr(spot_checks, "SHARE", share)
    with (
        serve_in_background(StubBoard(SMALL)) as server,
        open_device(server.port.address, SMALL) as board,
    ):
        assert isinstance(board, BoardDevice)
        for seed in (1, 2):
            program, image = random_program(SMALL, seed)
            program = tuple(program)
            for _ in range(3):
                board.run(program, image.copy())
        assert board.checked_runs == checks


def test_measure_does_not_believe_a_board_that_is_wrong(capsys):
    with serve_in_background(WrongByte(SMALL)) as server:
        code = main(["measure", server.port.address, "--config", "tiny"])
    assert code == 1
    assert "wrong results, 1 of " in capsys.readouterr().err

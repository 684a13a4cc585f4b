"""Platforms of `amaranth-boards` are boards, or end in one sentence."""

import pkgutil
import sys

import amaranth_boards
import pytest

from tilewright.errors import HardwareError, TilewrightError, ToolError, UsageError
from tilewright.flows.board.known_boards import find_board, pin_boards
from tilewright.flows.cli.board_options import usual_design
from tilewright.hardware.soc.board import Board


@pytest.mark.parametrize(
    "name", ["icepi_zero", "ecpix5.ECPIX585Platform", "ulx3s.ULX3S_45F_Platform"]
)
def test_a_platform_with_a_serial_port_is_a_board(name):
    design = usual_design(find_board(f"amaranth:{name}"))
    assert design.result == "bitstream"
    assert design.memory_sentence.endswith("KiB of block RAM")


def test_pins_are_those_of_the_platform():
    board, known = find_board("amaranth:ulx3s.ULX3S_45F_Platform"), pin_boards()["ULX3S-45F"]
    assert isinstance(board, Board)
    assert (board.rx.site, board.tx.site) == (known.rx.site, known.tx.site)
    assert board.oscillator == known.oscillator
    assert known.part.startswith(board.part)


def test_every_module_is_a_board_or_one_sentence():
    ends = {"board": 0, "sentence": 0}
    for module in pkgutil.iter_modules(amaranth_boards.__path__):
        try:
            usual_design(find_board(f"amaranth:{module.name}"))
            ends["board"] += 1
        except TilewrightError:
            ends["sentence"] += 1
    assert min(ends.values()) > 0


def test_refusals(monkeypatch):
    with pytest.raises(UsageError, match=r"did you mean `icepi_zero`"):
        find_board("amaranth:icepi_zer")
    with pytest.raises(UsageError, match=r"expected one of `amaranth:ulx3s.ULX3S_12F_Platform`"):
        find_board("amaranth:ulx3s")
    with pytest.raises(HardwareError, match="got a differential pair"):
        find_board("amaranth:versa_ecp5")
    with pytest.raises(HardwareError, match="got `iCE40UP5K`; describe the board"):
        find_board("amaranth:icebreaker")
    monkeypatch.setitem(sys.modules, "amaranth_boards", None)
    with pytest.raises(ToolError, match="`amaranth-boards` is missing; install it: "):
        find_board("amaranth:icepi_zero")

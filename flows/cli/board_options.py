"""The design that a user chose for a board: its usual configuration, or another one."""

import argparse
from dataclasses import astuple, replace

from ...errors import UsageError
from ...hardware.soc.board import Board
from ...isa.configuration import PRESETS, Configuration
from ...isa.settings import changed
from ..board.board_file import AnyBoard
from ..board.design import Design
from ..board.known_boards import find_board
from ..board.vivado import ZynqDesign
from .arguments import chosen_configuration
from .console import note

BOARD_HELP = "NAME of one of those that `tilewright boards` lists, or FILE.toml of your own"

SLOW_BAUD = 9600


def wired_board(name: str) -> Board:
    """Return a board whose pins are connected to a system: one with a link to a host.

    Raises
    ------
    UsageError
        For another one.
    """
    board = find_board(name)
    if isinstance(board, Board):
        return board
    raise UsageError(
        f"board `{board.name}`: expected one with a serial port; its processors drive the core, so "
        f"simulate the core with `tilewright run MODEL --config {board.configuration} --device rtl`"
    )


def design_of(board: Board, arguments: argparse.Namespace) -> Design:
    """Return a board's design with `--config`, `--set` and `--clock`, and `--baud` if there is one.

    Raises
    ------
    UsageError
        If the serial port cannot have the rate.
    TilewrightError
        For an illegal configuration, or one that the board has no room for.
    """
    clock_mhz = arguments.clock or board.clock_mhz
    baud = getattr(arguments, "baud", None) or board.baud
    configuration = configuration_of(board.configuration, arguments)
    return Design(replace(board, clock_mhz=clock_mhz, baud=baud), configuration)


def apply_board(name: str, arguments: argparse.Namespace) -> None:
    """Take the machine, memory and clock that no option gives from a board.

    Raises
    ------
    UsageError
        For an unknown board.
    TilewrightError
        For a machine that the board has no room for.
    """
    board = find_board(name)
    configuration = configuration_of(board.configuration, arguments)
    clock_mhz = vars(arguments).get("clock") or board.clock_mhz
    arguments.config = arguments.config or board.configuration
    if not isinstance(board, Board):
        ZynqDesign(board, configuration, clock_mhz)  # or it has no room
        arguments.clock = clock_mhz
        if arguments.latency is None or arguments.bandwidth is None:
            note(
                f"board `{board.name}`: the memory of its processors has no timing model, so times "
                "are those with the default memory where `--latency` and `--bandwidth` say nothing"
            )
        return
    # Nothing is sent, so the clock need not suit a fast serial port.
    slow = replace(board, clock_mhz=clock_mhz, baud=min(board.baud, SLOW_BAUD))
    design = Design(slow, configuration)
    memory, bus = design.memory, design.memory.bus
    for option, text in {
        "clock": design.clock_hz / 1e6,
        "latency": memory.latency_cycles,
        "bandwidth": f"{memory.beats}/{memory.cycles}",
        "outstanding": memory.outstanding_bursts,
        "shared_bus": "none" if bus is None else ",".join(map(str, astuple(bus))),
    }.items():
        if vars(arguments).get(option) is None:
            setattr(arguments, option, text if option == "clock" else str(text))


def usual_design(board: AnyBoard) -> Design | ZynqDesign:
    """Return a board's design with its preset and its clock."""
    configuration = PRESETS[board.configuration]
    if isinstance(board, Board):
        return Design(board, configuration)
    return ZynqDesign(board, configuration, board.clock_mhz)


def configuration_of(usual: str, arguments: argparse.Namespace) -> Configuration:
    """Return a board's usual preset, or the one of `--config`, with the changes of `--set`.

    Raises
    ------
    TilewrightError
        For an illegal configuration.
    """
    chosen = chosen_configuration(arguments) if arguments.config else None
    return chosen or changed(PRESETS[usual], arguments.changes)

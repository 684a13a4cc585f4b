"""The design that a user chose for a board: its usual configuration, or another one."""

import argparse
from dataclasses import replace

from ...hardware.soc.boards import Board
from ...isa.configuration import PRESETS, Configuration
from ...isa.settings import changed
from ..board.design import Design
from .arguments import chosen_configuration


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


def configuration_of(usual: str, arguments: argparse.Namespace) -> Configuration:
    """Return a board's usual preset, or the one of `--config`, with the changes of `--set`.

    Raises
    ------
    TilewrightError
        For an illegal configuration.
    """
    chosen = chosen_configuration(arguments) if arguments.config else None
    return chosen or changed(PRESETS[usual], arguments.changes)

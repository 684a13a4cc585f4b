"""Constraints of a board, as the placers read them: sites, electrical standards, the oscillator."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...hardware.soc.board import Board
from ...hardware.technology import Technology


def lpf(board: Board) -> str:
    """Return the constraints for an ECP5, in the form of Lattice's preferences."""
    lines = []
    for port, pin in board.pins.items():
        options = f" PULLMODE={pin.pull}" if pin.pull else ""
        options += " SLEWRATE=FAST DRIVE=4" if pin.fast else ""
        lines.append(f'LOCATE COMP "{port}" SITE "{pin.site}";')
        lines.append(f'IOBUF PORT "{port}" IO_TYPE={board.standard}{options};')
    lines.append(f'FREQUENCY PORT "oscillator" {board.oscillator_hz / 1e6:g} MHZ;')
    return "\n".join(lines) + "\n"


def ccf(board: Board) -> str:
    """Return the constraints for a GateMate; its placer is told the clock apart from them.

    The standard of a pin is that of its bank, which the board's supply decides.
    """
    lines = []
    for port, pin in board.pins.items():
        pull = f" | PULL{pin.pull}=true" if pin.pull else ""
        lines.append(f'NET "{port}" Loc = "{pin.site}"{pull};')
    return "\n".join(lines) + "\n"


def cst(board: Board) -> str:
    """Return the constraints for a Gowin chip; its placer is told the clock apart from them."""
    lines = []
    for port, pin in board.pins.items():
        pull = f" PULL_MODE={pin.pull}" if pin.pull else ""
        lines.append(f'IO_LOC "{port}" {pin.site};')
        lines.append(f'IO_PORT "{port}" IO_TYPE={board.standard}{pull};')
    return "\n".join(lines) + "\n"


CONSTRAINTS: Mapping[Technology, tuple[str, Callable[[Board], str]]] = MappingProxyType(
    {
        Technology.ECP5: ("pins.lpf", lpf),
        Technology.GOWIN: ("pins.cst", cst),
        Technology.GATEMATE: ("pins.ccf", ccf),
    }
)
"""The file that the placer's arguments name, and the function that writes it, by technology."""

"""Constraints of a board, as the placers read them: sites, electrical standards, the oscillator."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...hardware.soc.board import Board
from ...hardware.technology import Technology
from ...quoting import plain_word, tcl_word


def lpf(board: Board) -> str:
    """Return the constraints for an ECP5, in the form of Lattice's preferences."""
    lines = []
    for port, pin in board.pins.items():
        options = f" PULLMODE={plain_word(pin.pull)}" if pin.pull else ""
        options += " SLEWRATE=FAST DRIVE=4" if pin.fast else ""
        lines.append(f'LOCATE COMP "{port}" SITE "{plain_word(pin.site)}";')
        lines.append(f'IOBUF PORT "{port}" IO_TYPE={plain_word(board.standard)}{options};')
    lines.append(f'FREQUENCY PORT "oscillator" {board.oscillator_hz / 1e6:g} MHZ;')
    return "\n".join(lines) + "\n"


def ccf(board: Board) -> str:
    """Return the constraints for a GateMate; its placer is told the clock apart from them.

    The standard of a pin is that of its bank, which the board's supply decides.
    """
    lines = []
    for port, pin in board.pins.items():
        pull = f" | PULL{plain_word(pin.pull)}=true" if pin.pull else ""
        lines.append(f'NET "{port}" Loc = "{plain_word(pin.site)}"{pull};')
    return "\n".join(lines) + "\n"


def cst(board: Board) -> str:
    """Return the constraints for a Gowin chip; its placer is told the clock apart from them."""
    lines = []
    for port, pin in board.pins.items():
        pull = f" PULL_MODE={plain_word(pin.pull)}" if pin.pull else ""
        lines.append(f'IO_LOC "{port}" {plain_word(pin.site)};')
        lines.append(f'IO_PORT "{port}" IO_TYPE={plain_word(board.standard)}{pull};')
    return "\n".join(lines) + "\n"


def xdc(board: Board) -> str:
    """Return the constraints for a Xilinx chip, as Vivado reads them."""
    lines = []
    for port, pin in board.pins.items():
        properties = {"PACKAGE_PIN": pin.site, "IOSTANDARD": board.standard}
        if pin.pull:
            properties["PULLTYPE"] = "PULL" + pin.pull
        for name, value in properties.items():
            lines.append(f"set_property {name} {tcl_word(value)} [get_ports {port}]")
    period_ns = 1e9 / board.oscillator_hz
    lines.append(f"create_clock -name oscillator -period {period_ns:.3f} [get_ports oscillator]")
    return "\n".join(lines) + "\n"


CONSTRAINTS: Mapping[Technology, tuple[str, Callable[[Board], str]]] = MappingProxyType(
    {
        Technology.ECP5: ("pins.lpf", lpf),
        Technology.GOWIN: ("pins.cst", cst),
        Technology.GATEMATE: ("pins.ccf", ccf),
        Technology.XILINX7: ("pins.xdc", xdc),
    }
)
"""The file that the placer's arguments name, and the function that writes it, by technology."""

"""The top level on a board whose main memory has a controller of the chip's vendor.

The controller makes the clock and the reset. It is connected to the memory port outside of this
module, in the vendor's tool.
"""

from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ..axi import read_port, write_port
from .board import Board
from .board_top import add_link_and_lights, port_names
from .system import System

PREFIX = "m_axi_"


class ExternalTop(wiring.Component):
    """A system connected to the pins of a board, with its memory port.

    Parameters
    ----------
    board : Board
        With `ddr`.
    system : System
        With external memory.
    divisor : int
        Cycles of a bit of the serial port.

    Members
    -------
    clk, rst : In(1)
        The controller's clock, and its reset, which is active high.
    m_axi_*
        An AXI4 master without identifiers.

    The others are the pins of the board, by the names in `Board.pins`, without the oscillator.
    """

    def __init__(self, board: Board, system: System, divisor: int):
        self.board, self.system, self.divisor = board, system, divisor
        ports = {name: way for name, way in port_names(board).items() if name != "oscillator"}
        memory = {
            f"{PREFIX}{name}": member
            for signature in _memory_port(system)
            for name, member in signature.members.items()
        }
        super().__init__({"clk": In(1), "rst": In(1), **ports, **memory})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = ClockDomain("sync")
        m.submodules.system = system = self.system
        m.d.comb += ClockSignal().eq(self.clk)
        pressed = self.button ^ self.board.button.low if self.board.button else 0
        m.submodules.reset = ResetSynchronizer(self.rst | pressed)
        for port, signature in zip((system.read, system.write), _memory_port(system), strict=True):
            for name, member in signature.members.items():
                outside, inside = getattr(self, f"{PREFIX}{name}"), getattr(port, name)
                to_outside = member.flow is Out
                m.d.comb += outside.eq(inside) if to_outside else inside.eq(outside)
        add_link_and_lights(m, self, self.board, system, self.divisor)
        return m


def _memory_port(system: System) -> tuple[wiring.Signature, wiring.Signature]:
    return read_port(system.configuration), write_port(system.configuration)

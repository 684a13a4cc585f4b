"""The top level on a board: a system with clock, reset, serial port and LEDs."""

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from .board import Board
from .pll import Pll, PllSettings
from .sdram_pads import CLOCK_LEAD_NS, BoardSdramPads
from .system import System
from .uart import Uart

INPUTS = ("oscillator", "rx", "button")
"""Pins that a board may have and that the design reads."""


class BoardTop(wiring.Component):
    """A system connected to the pins of a board.

    Its ports have the names in `Board.pins`. With `Board.sdram`, the system has that SDRAM.

    The system is reset until the PLL is locked, and while the button is pressed.

    Parameters
    ----------
    board : Board
    system : System
    settings : PllSettings
        They make the clock of the system.
    divisor : int
        Cycles of a bit of the serial port.
    """

    def __init__(self, board: Board, system: System, settings: PllSettings, divisor: int):
        self.board, self.system = board, system
        self.settings, self.divisor = settings, divisor
        super().__init__(port_names(board))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = ClockDomain("sync")
        m.submodules.pll = pll = Pll(self.settings, CLOCK_LEAD_NS)
        m.submodules.system = system = self.system
        m.d.comb += [pll.oscillator.eq(self.oscillator), ClockSignal().eq(pll.clock)]
        pressed = self.button ^ self.board.button.low if self.board.button else 0
        m.submodules.reset = ResetSynchronizer(~pll.locked | pressed)
        if self.board.sdram:
            m.submodules.sdram = pads = BoardSdramPads(self.board.sdram)
            wiring.connect(m, system.sdram, pads.controller)
            m.d.comb += pads.clock.eq(pll.ahead)
            for name, width in pads.outputs.items():
                for bit in range(width):
                    port = getattr(self, f"sdram_{name}_{bit}")
                    m.d.comb += port.eq(getattr(pads, name)[bit])
        add_link_and_lights(m, self, self.board, system, self.divisor)
        return m


def port_names(board: Board) -> dict[str, wiring.Member]:
    """Return the ports of a top level; data pins of an SDRAM are those of its pads."""
    names = [name for name in board.pins if not name.startswith("sdram_dq_")]
    return {name: In(1) if name in INPUTS else Out(1) for name in names}


def add_link_and_lights(
    m: Module, top: wiring.Component, board: Board, system: System, divisor: int
) -> None:
    """Connect a system to the serial port, the LEDs and the constant pins of a top level."""
    m.submodules.uart = uart = Uart(divisor)
    m.d.comb += [uart.rx.eq(top.rx), top.tx.eq(uart.tx)]
    wiring.connect(m, uart.received, system.received)
    wiring.connect(m, system.sent, uart.sent)
    # The last bit flashes about once a second.
    beats = Signal((system.clock_hz - 1).bit_length())
    m.d.sync += beats.eq(beats + 1)
    shown = Cat(beats[-1], system.busy, system.linked, system.ended)
    for index, pin in enumerate(board.leds):
        m.d.comb += getattr(top, f"led_{index}").eq(shown[index] ^ pin.low)
    for index, pin in enumerate(board.high):
        m.d.comb += getattr(top, f"high_{index}").eq(not pin.low)

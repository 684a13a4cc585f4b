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

    Its ports have the names in `Board.pins`. With `Board.memory`, the system has that SDRAM.

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
        ports = [name for name in board.pins if not name.startswith("sdram_dq_")]
        super().__init__({name: In(1) if name in INPUTS else Out(1) for name in ports})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = ClockDomain("sync")
        m.submodules.pll = pll = Pll(self.settings, CLOCK_LEAD_NS)
        m.submodules.system = system = self.system
        m.submodules.uart = uart = Uart(self.divisor)
        m.d.comb += [
            pll.oscillator.eq(self.oscillator),
            ClockSignal().eq(pll.clock),
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
        ]
        wiring.connect(m, uart.received, system.received)
        wiring.connect(m, system.sent, uart.sent)
        pressed = self.button ^ self.board.button.low if self.board.button else 0
        m.submodules.reset = ResetSynchronizer(~pll.locked | pressed)
        if self.board.memory:
            m.submodules.sdram = pads = BoardSdramPads(self.board.memory)
            wiring.connect(m, system.sdram, pads.controller)
            m.d.comb += pads.clock.eq(pll.ahead)
            for name, width in pads.outputs.items():
                for bit in range(width):
                    port = getattr(self, f"sdram_{name}_{bit}")
                    m.d.comb += port.eq(getattr(pads, name)[bit])

        # The last bit flashes about once a second.
        beats = Signal((system.clock_hz - 1).bit_length())
        m.d.sync += beats.eq(beats + 1)
        shown = Cat(beats[-1], system.busy, system.linked, system.ended)
        for index, pin in enumerate(self.board.leds):
            m.d.comb += getattr(self, f"led_{index}").eq(shown[index] ^ pin.low)
        for index, pin in enumerate(self.board.high):
            m.d.comb += getattr(self, f"high_{index}").eq(not pin.low)
        return m

"""The pads of an SDRAM: a register at each one, and the clock of the chip.

With a register in the pad itself, all signals leave at the same time, wherever the logic is placed.
They change at the edges of the system's clock. The SDRAM's clock is `CLOCK_LEAD_NS` ahead of it,
which leaves time before and after each edge at both ends of the wires.
"""

from amaranth.hdl import IOPort, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.sdram import Sdram
from ..cells import ecp5, gowin
from ..technology import Technology
from .board import BoardSdram
from .sdram_pins import sdram_pins

CELLS = {Technology.ECP5: ecp5, Technology.GOWIN: gowin}
"""The module with the cells of each technology whose pads have registers."""

CLOCK_LEAD_NS = 3.0
"""By how much the SDRAM's clock is ahead of the system's.

A chip holds its data for at least 2.5 ns after an edge, and the next word is there 5.4 ns after it.
Assuming 2 to 3.5 ns to an ECP5's pad and at most 1.5 ns from it, a word arrives 2.6 ns before the
edge that takes it at 100 MHz, and stays for 1.5 ns after it. An SDRAM needs its inputs for up to 1
ns after its edge. A Gowin's PLL rounds the lead to a sixteenth of a cycle: at 54 MHz, it is 3.5 ns.
These times were checked neither by a tool nor on a board.
"""


class SdramPads(wiring.Component):
    """Registers at the pads, for simulation.

    Parameters
    ----------
    sdram : Sdram

    Members
    -------
    controller : In(sdram_pins)
    chip : Out(sdram_pins)
    """

    def __init__(self, sdram: Sdram):
        super().__init__({"controller": In(sdram_pins(sdram)), "chip": Out(sdram_pins(sdram))})

    def elaborate(self, platform) -> Module:
        m = Module()
        for name, member in self.chip.signature.members.items():
            inside, outside = getattr(self.controller, name), getattr(self.chip, name)
            m.d.sync += outside.eq(inside) if member.flow is Out else inside.eq(outside)
        return m


class BoardSdramPads(wiring.Component):
    """Registers in the pads of a chip; its technology is one of `CELLS`.

    Parameters
    ----------
    board : BoardSdram

    Members
    -------
    controller : In(sdram_pins)
    clock : In(1)
        The SDRAM's clock.
    The board's output signals : Out
        With the names and widths of `BoardSdram.sites`; `dq` is not among them.

    Attributes
    ----------
    dq : list of IOPort
        The data pins.
    """

    def __init__(self, board: BoardSdram):
        widths = {name: len(sites) for name, sites in board.sites.items()}
        self.dq = [IOPort(1, name=f"sdram_dq_{bit}") for bit in range(widths.pop("dq"))]
        self.outputs = widths
        members = {name: Out(width) for name, width in widths.items()}
        super().__init__(
            {"controller": In(sdram_pins(board.chip)), "clock": In(1), **members},
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        cells, pins = CELLS[platform], self.controller
        values = {
            "cke": pins.cke,
            "cs_n": pins.cs_n,
            "ras_n": pins.command[2],
            "cas_n": pins.command[1],
            "we_n": pins.command[0],
            "ba": pins.bank,
            "a": pins.address,
            "dqm": pins.mask,
        }
        m.submodules.clk = cells.forwarded_clock(self.clock, self.clk)
        for name in self.outputs:
            if name != "clk":
                for bit, output in enumerate(getattr(self, name)):
                    m.submodules[f"{name}_{bit}"] = cells.pad_register(values[name][bit], output)
        for bit, port in enumerate(self.dq):
            m.submodules[f"dq_{bit}"] = pad = cells.BidirectionalPad(port)
            m.d.comb += [
                pad.output.eq(pins.written[bit]),
                pad.drives.eq(pins.drives),
                pins.read[bit].eq(pad.input),
            ]
        return m

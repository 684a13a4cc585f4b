"""Cells of Cologne Chip's GateMate: block RAM.

The modes follow Cologne Chip's UG1001. The chip has no multipliers: Yosys builds them from logic
cells, and nextpnr-himbaechel places them with the data of Project Peppercorn.
"""

from typing import ClassVar

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

from ..blocks import BLOCK_20K, BlockShape
from . import interfaces

PORT_BITS = 20
"""Data pins of one of the two ports; words of 40 bits take both."""

ROW_BITS, COLUMN_BITS = 9, 5
"""Parts of an address of a single bit; a pin without use lies above each of them."""


class BlockRam(interfaces.BlockRam):
    """One CC_BRAM_20K: port A writes, port B reads; words of 40 bits take the data pins of both."""

    SHAPE: ClassVar[BlockShape] = BLOCK_20K

    def elaborate(self, platform) -> Module:
        m = Module()
        both = self.width > PORT_BITS
        written, masks = Signal(2 * PORT_BITS), Signal(2 * PORT_BITS)
        read = [Signal(PORT_BITS, name=f"read_{port}") for port in "ab"]
        m.d.comb += [
            written.eq(self.write_data),
            masks.eq(Cat(bit.replicate(self.lane_bits) for bit in self.write_enable)),
            self.read_data.eq(Cat(read) if both else read[1]),
        ]
        m.submodules.cell = Instance(
            "CC_BRAM_20K",
            p_RAM_MODE="SDP" if both else "TDP",
            p_A_WR_WIDTH=self.width,
            p_A_RD_WIDTH=0,
            p_B_WR_WIDTH=0,
            p_B_RD_WIDTH=self.width,
            p_A_DO_REG=Const(both, 1),
            p_B_DO_REG=Const(1),
            i_A_CLK=ClockSignal(),
            i_A_EN=self.write,
            i_A_WE=Const(1),
            i_A_ADDR=self._pins(self.write_address),
            i_A_DI=written[:PORT_BITS],
            i_A_BM=masks[:PORT_BITS],
            o_A_DO=read[0],
            i_B_CLK=ClockSignal(),
            i_B_EN=self.read_enable,
            i_B_WE=Const(0),
            i_B_ADDR=self._pins(self.read_address),
            i_B_DI=written[PORT_BITS:],
            i_B_BM=masks[PORT_BITS:],
            o_B_DO=read[1],
        )
        return m

    def _pins(self, address: Value) -> Value:
        """Return the pins of an address; those of the bits within a word are 0."""
        bits = Cat(Const(0, ROW_BITS + COLUMN_BITS - self.address_bits), address)
        return Value.cast(Cat(Const(0, 1), bits[:COLUMN_BITS], Const(0, 1), bits[COLUMN_BITS:]))

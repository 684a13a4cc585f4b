"""Cells of the Gowin GW2A: multipliers and block RAM.

The modes follow Gowin's UG287 (DSP) and UG285 (memory). Yosys passes the cells on,
nextpnr-himbaechel places them with the data of the Apicula project.
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

MULTIPLIER_BITS = 18
NARROW_MULTIPLIER_BITS = 9
"""Operands of half a block; one of 18 bits takes as much of the chip as two of these."""
ELEMENT_BITS = 8

BLOCK_WIDTHS = {512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1}
"""Bits of a word of a block RAM, by its depth."""
BLOCK_LANE_BITS = 9
"""Bits that one write-enable bit covers, in words of that many bits or more."""


class BlockMultiplier(wiring.Component):
    """One MULT9X9 or MULT18X18 with all of its registers: operands, pipeline, product.

    Latency three cycles; one product per cycle; never stalls. The registers have no reset.

    Parameters
    ----------
    bits : int
        Width of both operands, 9 or 18.
    left_signed, right_signed : bool
        How the operands are read.
    left_register : bool
        Whether `left` has a register; otherwise it comes from one outside.

    Members
    -------
    left, right : In(bits)
    product : Out(2 * bits)
    """

    def __init__(
        self, bits: int, left_signed: bool, right_signed: bool, *, left_register: bool = True
    ):
        assert bits in (NARROW_MULTIPLIER_BITS, MULTIPLIER_BITS)
        self.bits, self.left_register = bits, left_register
        self.left_signed, self.right_signed = left_signed, right_signed
        super().__init__({"left": In(bits), "right": In(bits), "product": Out(2 * bits)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.cell = Instance(
            f"MULT{self.bits}X{self.bits}",
            p_AREG=Const(self.left_register, 1),
            p_BREG=Const(1),
            p_PIPE_REG=Const(1),
            p_OUT_REG=Const(1),
            # The signs are constant, so they need no registers.
            p_ASIGN_REG=Const(0),
            p_BSIGN_REG=Const(0),
            p_SOA_REG=Const(0),
            p_MULT_RESET_MODE="SYNC",
            i_A=self.left,
            i_B=self.right,
            i_SIA=Const(0, self.bits),
            i_SIB=Const(0, self.bits),
            i_ASIGN=Const(self.left_signed, 1),
            i_BSIGN=Const(self.right_signed, 1),
            i_ASEL=Const(0),
            i_BSEL=Const(0),
            i_CE=Const(1),
            i_CLK=ClockSignal(),
            i_RESET=Const(0),
            o_DOUT=self.product,
        )
        return m


class HeldPair(wiring.Component):
    """Two MULT9X9 that multiply int8 by int8; the left operands stay until replaced.

    Latency three cycles; never stalls. The registers have no reset. All registers of a cell share
    one clock enable, so those of the left operands lie outside.

    Members
    -------
    left, right : In(int8)[2]
    load_left : In(1)
        The registers of `left` hold their values without it.
    products : Out(signed(16))[2]
    """

    left: In(signed(ELEMENT_BITS)).array(2)
    right: In(signed(ELEMENT_BITS)).array(2)
    load_left: In(1)
    products: Out(signed(2 * ELEMENT_BITS)).array(2)

    def elaborate(self, platform) -> Module:
        m = Module()
        for side in range(2):
            held = Signal(signed(ELEMENT_BITS), name=f"held_{side}", reset_less=True)
            with m.If(self.load_left):
                m.d.sync += held.eq(self.left[side])
            cell = BlockMultiplier(NARROW_MULTIPLIER_BITS, True, True, left_register=False)
            m.submodules[f"product_{side}"] = cell
            operands = [Signal(signed(NARROW_MULTIPLIER_BITS), name=f"{n}_{side}") for n in "ab"]
            m.d.comb += [
                operands[0].eq(held),
                operands[1].eq(self.right[side]),
                cell.left.eq(operands[0]),
                cell.right.eq(operands[1]),
                self.products[side].eq(cell.product),
            ]
        return m


class BlockRam(wiring.Component):
    """One SDPX9B or SDPB: one write port, one read port with its output register; zero at power-up.

    Read data follow their address by two cycles and hold until the data of the next read. A word
    that is read in the cycle in which it is written is undefined.

    Parameters
    ----------
    depth : int
        Words, one of `BLOCK_WIDTHS`, which gives their width.

    Members
    -------
    read_enable, read_address, read_data
    write : In(1)
        Write the lanes that `write_enable` names.
    write_enable : In(one bit per lane)
    write_address, write_data

    Attributes
    ----------
    lanes, lane_bits : int
        Parts of a word with a write-enable bit each, and their width. Words of at most 9 bits have
        one.
    """

    def __init__(self, depth: int):
        self.width = BLOCK_WIDTHS[depth]
        self.lane_bits = min(self.width, BLOCK_LANE_BITS)
        self.lanes = self.width // self.lane_bits
        self.address_bits = (depth - 1).bit_length()
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(self.address_bits),
                "read_data": Out(self.width),
                "write": In(1),
                "write_enable": In(self.lanes),
                "write_address": In(self.address_bits),
                "write_data": In(self.width),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        unused = 14 - self.address_bits
        # The lowest address bits that a wide word does not need are its byte enables.
        enables = self.write_enable if self.lanes > 1 else Const(0, 0)
        write = self.write if self.lanes > 1 else self.write & self.write_enable
        # Cells with a parity bit in every byte have names of their own.
        cell, pins = ("SDPX9B", 36) if self.width >= BLOCK_LANE_BITS else ("SDPB", 32)
        output = Signal(pins)
        m.d.comb += self.read_data.eq(output)
        m.submodules.cell = Instance(
            cell,
            p_READ_MODE=Const(1),
            p_BIT_WIDTH_0=self.width,
            p_BIT_WIDTH_1=self.width,
            p_BLK_SEL_0=Const(0, 3),
            p_BLK_SEL_1=Const(0, 3),
            p_RESET_MODE="SYNC",
            i_CLKA=ClockSignal(),
            i_CEA=write,
            i_RESETA=Const(0),
            i_ADA=Cat(enables, Const(0, unused - len(enables)), self.write_address),
            i_DI=Cat(self.write_data, Const(0, pins - self.width)),
            i_BLKSELA=Const(0, 3),
            i_CLKB=ClockSignal(),
            i_CEB=self.read_enable,
            i_OCE=Const(1),
            i_RESETB=Const(0),
            i_ADB=Cat(Const(0, unused), self.read_address),
            i_BLKSELB=Const(0, 3),
            o_DO=output,
        )
        return m

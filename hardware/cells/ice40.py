"""Cells of the Lattice iCE40 UltraPlus: multiplier and block RAM.

The modes follow Lattice's FPGA-TN-02007 (DSP) and FPGA-TN-02002 (memory). Yosys has models of these
cells in all modes (`share/ice40/cells_sim.v`). The large RAMs of the chip, SB_SPRAM256KA, are
not used: they have one port, but one unit may read a bank while another one writes it.
"""

from typing import ClassVar

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..blocks import BLOCK_4K, BlockShape
from . import interfaces
from .interfaces import ELEMENT_BITS

MULTIPLIER_BITS = 16

_ADD_NOTHING = {
    f"p_{half}{name}": Const(value, bits)
    for half in ("TOP", "BOT")
    for name, value, bits in (
        ("OUTPUT_SELECT", 1, 2),
        ("ADDSUB_LOWERINPUT", 1, 2),
        ("ADDSUB_UPPERINPUT", 1, 1),
        ("ADDSUB_CARRYSELECT", 0, 2),
    )
}
"""The output register takes the product of 8 by 8 bits plus the input C or D, which is 0."""


class BlockMultiplier(wiring.Component):
    """One SB_MAC16 as a multiplier of 16 bits with all of its registers.

    Latency three cycles; one product per cycle; never stalls. The registers have no reset.

    Parameters
    ----------
    left_signed, right_signed : bool
        How the operands are read.

    Members
    -------
    left, right : In(16)
    product : Out(32)
    """

    def __init__(self, left_signed: bool, right_signed: bool):
        self.left_signed, self.right_signed = left_signed, right_signed
        super().__init__(
            {
                "left": In(MULTIPLIER_BITS),
                "right": In(MULTIPLIER_BITS),
                "product": Out(2 * MULTIPLIER_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.cell = Instance(
            "SB_MAC16",
            p_A_REG=Const(1),
            p_B_REG=Const(1),
            p_A_SIGNED=Const(self.left_signed, 1),
            p_B_SIGNED=Const(self.right_signed, 1),
            p_TOP_8x8_MULT_REG=Const(1),
            p_BOT_8x8_MULT_REG=Const(1),
            p_PIPELINE_16x16_MULT_REG1=Const(1),
            p_PIPELINE_16x16_MULT_REG2=Const(1),
            p_TOPOUTPUT_SELECT=Const(3, 2),
            p_BOTOUTPUT_SELECT=Const(3, 2),
            i_A=self.left,
            i_B=self.right,
            o_O=self.product,
            **_controls(),
        )
        return m


class HeldPair(interfaces.HeldPair):
    """One SB_MAC16 in its mode of two multipliers."""

    def elaborate(self, platform) -> Module:
        m = Module()
        output = Signal(4 * ELEMENT_BITS)
        m.submodules.cell = Instance(
            "SB_MAC16",
            p_MODE_8x8=Const(1),
            p_A_REG=Const(1),
            p_B_REG=Const(1),
            p_A_SIGNED=Const(1),
            p_B_SIGNED=Const(1),
            p_TOP_8x8_MULT_REG=Const(1),
            p_BOT_8x8_MULT_REG=Const(1),
            **_ADD_NOTHING,
            i_A=Cat(self.left),
            i_B=Cat(self.right),
            o_O=output,
            **_controls(hold_left=~self.load_left),
        )
        m.d.comb += Cat(self.products).eq(output)
        return m


def _controls(hold_left: object = None) -> dict[str, object]:
    """Return the clock, the clock enable and the constant inputs."""
    zeros = ("BHOLD", "CHOLD", "DHOLD", "CI", "ACCUMCI", "SIGNEXTIN")
    halves = ("IRST", "ORST", "OLOAD", "ADDSUB", "OHOLD")
    names = [*zeros, *(name + half for name in halves for half in ("TOP", "BOT"))]
    return {
        **{f"i_{name}": Const(0) for name in names},
        "i_AHOLD": Const(0) if hold_left is None else hold_left,
        "i_C": Const(0, MULTIPLIER_BITS),
        "i_D": Const(0, MULTIPLIER_BITS),
        "i_CLK": ClockSignal(),
        "i_CE": Const(1),
    }


class BlockRam(interfaces.BlockRam):
    """One SB_RAM40_4K and a register behind it."""

    SHAPE: ClassVar[BlockShape] = BLOCK_4K

    def elaborate(self, platform) -> Module:
        m = Module()
        # A narrow word uses some of the 16 pins, at equal distances.
        mode = self.address_bits - 8
        first, distance = ((0, 1), (0, 2), (1, 4), (3, 8))[mode]
        pins = [first + distance * bit for bit in range(self.width)]
        written, output = Signal(16), Signal(16)
        m.d.comb += [written[pin].eq(bit) for pin, bit in zip(pins, self.write_data, strict=True)]
        m.d.sync += self.read_data.eq(Cat(output[pin] for pin in pins))
        wide = self.lanes > 1
        keeps = Cat((~bit).replicate(self.lane_bits) for bit in self.write_enable)
        m.submodules.cell = Instance(
            "SB_RAM40_4K",
            p_READ_MODE=mode,
            p_WRITE_MODE=mode,
            i_RCLK=ClockSignal(),
            i_RCLKE=self.read_enable,
            i_RE=Const(1),
            i_RADDR=Cat(self.read_address, Const(0, 11 - self.address_bits)),
            o_RDATA=output,
            i_WCLK=ClockSignal(),
            i_WCLKE=self.write if wide else self.write & self.write_enable,
            i_WE=Const(1),
            i_WADDR=Cat(self.write_address, Const(0, 11 - self.address_bits)),
            i_MASK=keeps if wide else Const(0, 16),
            i_WDATA=written,
        )
        return m


class LongMultiplier(wiring.Component):
    """Multiply up to 18 by up to 16 bits: one SB_MAC16, and logic for the two highest bits.

    Latency three cycles; one product per cycle; never stalls. The registers have no reset.

    Parameters
    ----------
    left_bits : int
        17 or 18.
    right_bits : int
        At most 16.
    left_signed, right_signed : bool
        How the operands are read.

    Members
    -------
    left : In(left_bits)
    right : In(right_bits)
    product : Out(left_bits + right_bits)
    """

    def __init__(self, left_bits: int, right_bits: int, left_signed: bool, right_signed: bool):
        self.left_signed, self.right_signed = left_signed, right_signed
        super().__init__(
            {
                "left": In(left_bits),
                "right": In(right_bits),
                "product": Out(left_bits + right_bits),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.low = low = BlockMultiplier(False, self.right_signed)
        right = self.right.as_signed() if self.right_signed else self.right
        m.d.comb += [low.left.eq(self.left[:MULTIPLIER_BITS]), low.right.eq(right)]
        # The highest bits select a multiple of the right operand: 0 to 3, or 0, 1, -2, -1 (signed).
        top = Signal(len(self.left) - MULTIPLIER_BITS, reset_less=True)
        operand = Signal(right.shape(), reset_less=True)
        shape = signed(len(self.right) + 3)
        high, late = (Signal(shape, name=name, reset_less=True) for name in ("high", "late"))
        bits = [Mux(bit, operand << place, 0) for place, bit in enumerate(top)]
        upper = -bits[-1] if self.left_signed else bits[-1]
        m.d.sync += [
            top.eq(self.left[MULTIPLIER_BITS:]),
            operand.eq(right),
            high.eq(upper + sum(bits[:-1])),
            late.eq(high),
        ]
        product = low.product.as_signed() if self.right_signed else low.product
        m.d.comb += self.product.eq(product + (late << MULTIPLIER_BITS))
        return m

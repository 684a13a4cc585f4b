"""Cells of the Gowin GW2A: multipliers, block RAM and pads.

The modes follow Gowin's UG287 (DSP), UG285 (memory) and UG289 (pads). Yosys passes the cells on,
nextpnr-himbaechel places them with the data of the Apicula project.
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from . import interfaces
from .interfaces import ELEMENT_BITS

MULTIPLIER_BITS = 18
NARROW_MULTIPLIER_BITS = 9
"""Width of the narrow multiplier's operands; two of these take the place of a wide one."""

_WITH_REGISTERS = {"a_IOBFF": 1}
"""Attribute of a pad. It makes nextpnr move the registers beside the pad into the pad."""


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
        Whether the cell registers `left`; if not, the user must.

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


class HeldPair(interfaces.HeldPair):
    """Two MULT9X9.

    All registers of a cell share one clock enable, so those of the left operands lie outside.
    """

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


class BlockRam(interfaces.BlockRam):
    """One SDPX9B, or one SDPB for words of fewer than 9 bits."""

    def elaborate(self, platform) -> Module:
        m = Module()
        unused = 14 - self.address_bits
        # The lowest address bits that a wide word does not need are its byte enables.
        enables = self.write_enable if self.lanes > 1 else Const(0, 0)
        write = self.write if self.lanes > 1 else self.write & self.write_enable
        # The cell with a parity bit in every byte has another name.
        cell, pins = ("SDPX9B", 36) if self.width >= self.SHAPE.lane_bits else ("SDPB", 32)
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


def pad_register(value: Value, output: Value) -> Module:
    """Return a register in the pad of an output; 0 at power-up."""
    m = Module()
    held = Signal()
    m.submodules.register = _register(value, held)
    m.submodules.pad = Instance("OBUF", **_WITH_REGISTERS, i_I=held, o_O=output)
    return m


def forwarded_clock(clock: Value, output: Value) -> Instance:
    """Return the double-rate register that puts a clock on a pad."""
    return Instance("ODDR", i_CLK=clock, i_D0=Const(1), i_D1=Const(0), i_TX=Const(0), o_Q0=output)


class BidirectionalPad(interfaces.BidirectionalPad):
    """An IOBUF cell with its registers."""

    def elaborate(self, platform) -> Module:
        m = Module()
        driven, released, found = Signal(), Signal(), Signal()
        m.submodules.driven = _register(self.output, driven)
        m.submodules.released = _register(~self.drives, released)
        m.submodules.found = _register(found, self.input)
        m.submodules.pad = Instance(
            "IOBUF", **_WITH_REGISTERS, i_I=driven, i_OEN=released, o_O=found, io_IO=self.port
        )
        return m


def _register(value: Value, output: Value) -> Instance:
    return Instance("DFF", i_CLK=ClockSignal(), i_D=value, o_Q=output)

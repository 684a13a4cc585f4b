"""Commands and pins of an SDR SDRAM, between controller, pads and chip."""

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.sdram import Sdram

PRECHARGE_ALL = 10
"""Bit of the address that closes all banks."""


class SdramCommand(IntEnum):
    """A command, as the pins RAS#, CAS# and WE#, from bit 2 to bit 0."""

    MODE = 0b000
    REFRESH = 0b001
    PRECHARGE = 0b010
    ACTIVATE = 0b011
    WRITE = 0b100
    READ = 0b101
    STOP = 0b110
    NOTHING = 0b111


def sdram_pins(sdram: Sdram) -> wiring.Signature:
    """Pins of an SDRAM without its clock, seen from the controller.

    Commands and written words are taken at the edge that ends a cycle. At the chip, the word that a
    read asks for is taken at the edge `cas_cycles` later; at the controller, `PAD_CYCLES` later.
    """
    return wiring.Signature(
        {
            "cke": Out(1),
            "cs_n": Out(1, init=1),
            "command": Out(3, init=SdramCommand.NOTHING),
            "bank": Out(sdram.bank_bits),
            "address": Out(max(sdram.row_bits, sdram.column_bits + 1, PRECHARGE_ALL + 1)),
            "mask": Out(sdram.data_bits // 8, init=(1 << sdram.data_bits // 8) - 1),
            "written": Out(sdram.data_bits),
            "drives": Out(1),
            "read": In(sdram.data_bits),
        }
    )

"""The machine's only description of memory: a dual-port RAM with one read and one write port.

FPGA block RAMs have this form, output register included. A technology with its own primitive needs
to replace only this module.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..errors import HardwareError
from .technology import Technology


class Ram(wiring.Component):
    """Read one word and write one word per cycle; contents are zero at power-up.

    Read data appear `READ_LATENCY` cycles after the address and hold until the data of the next
    read arrive. A word that is read in the cycle in which it is written is undefined: no program
    may do that.

    A simulator spends time on every write-enable bit in every cycle. For simulation, a masked write
    is therefore one write of the whole word.

    Parameters
    ----------
    depth : int
        Words.
    width : int
        Bits of a word.
    granularity : int or None
        Bits of a word that one write-enable bit covers; None for the whole word.

    Members
    -------
    read_enable, read_address, read_data
    write_enable : In(one bit per granule)
    write_address, write_data

    Raises
    ------
    HardwareError
        If `granularity` does not divide `width`.
    """

    def __init__(self, depth: int, width: int, granularity: int | None = None):
        self.depth, self.width = depth, width
        self.granularity = width if granularity is None else granularity
        if width % self.granularity:
            raise HardwareError(
                f"RAM of {width}-bit words: `granularity` must divide the width, "
                f"not `{self.granularity}` bits"
            )
        address_bits = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(address_bits),
                "read_data": Out(width),
                "write_enable": In(width // self.granularity),
                "write_address": In(address_bits),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ram = ram = memory.Memory(shape=self.width, depth=self.depth, init=[])
        read = ram.read_port()
        fetched = Signal()
        data = Signal(self.width, reset_less=True)
        m.d.comb += [
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
            self.read_data.eq(data),
        ]
        m.d.sync += fetched.eq(self.read_enable)
        with m.If(fetched):
            m.d.sync += data.eq(read.data)

        if platform is Technology.SIMULATION and self.granularity < self.width:
            write = ram.write_port()
            kept = ram.read_port(domain="comb")
            mask = Cat(bit.replicate(self.granularity) for bit in self.write_enable)
            m.d.comb += [
                kept.addr.eq(self.write_address),
                write.en.eq(self.write_enable.any()),
                write.data.eq((kept.data & ~mask) | (self.write_data & mask)),
            ]
        else:
            write = ram.write_port(granularity=self.granularity)
            m.d.comb += [write.en.eq(self.write_enable), write.data.eq(self.write_data)]
        m.d.comb += write.addr.eq(self.write_address)
        return m

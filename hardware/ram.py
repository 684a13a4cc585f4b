"""The machine's only description of memory: a dual-port RAM with one read and one write port.

FPGA block RAMs have this form, including the output register. For some technologies, the blocks are
instantiated, which avoids the logic that synthesis tools add for collisions.
"""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..errors import HardwareError
from .blocks import SHALLOW
from .cells import ecp5, gatemate, gowin, ice40, xilinx
from .cells.interfaces import BlockRam
from .technology import Technology

BLOCKS: dict[Technology, type[BlockRam]] = {
    Technology.ECP5: ecp5.BlockRam,
    Technology.GOWIN: gowin.BlockRam,
    Technology.ICE40: ice40.BlockRam,
    Technology.XILINX7: xilinx.BlockRam,
    Technology.ULTRASCALE: xilinx.BlockRam,
    Technology.GATEMATE: gatemate.BlockRam,
}

SPLIT = {Technology.CYCLONE5}
"""Technologies whose tools infer no block RAM with an enable for each byte."""

LOGIC_RAMS = {Technology.ECP5, Technology.XILINX7, Technology.ULTRASCALE}
"""Technologies that use RAMs made of logic cells."""


class Ram(wiring.Component):
    """Read one word and write one word per cycle; contents are zero at power-up.

    Read data appear `RAM_CYCLES` cycles after the address and hold until the data of the next
    read arrive. A word that is read in the cycle in which it is written is undefined: no program
    may do that.

    For simulation, a masked write is one write of the whole word, because a simulator spends time
    on every write-enable bit in every cycle.

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
    write : In(1)
        Write the granules that `write_enable` names; high if unconnected.
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
                "write": In(1, init=1),
                "write_enable": In(width // self.granularity),
                "write_address": In(address_bits),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform in LOGIC_RAMS and self.depth <= SHALLOW:
            self._describe_shallow(m)
        elif platform in BLOCKS and self.depth <= BLOCKS[platform].SHAPE.deepest:
            self._instantiate(m, BLOCKS[platform])
        elif platform in SPLIT and self.granularity < self.width:
            self._split(m)
        else:
            self._describe(m, platform)
        return m

    def _describe(self, m: Module, platform) -> None:
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
                write.en.eq(self.write & self.write_enable.any()),
                write.data.eq((kept.data & ~mask) | (self.write_data & mask)),
            ]
        else:
            write = ram.write_port(granularity=self.granularity)
            m.d.comb += [write.en.eq(self._enables()), write.data.eq(self.write_data)]
        m.d.comb += write.addr.eq(self.write_address)

    def _split(self, m: Module) -> None:
        """Build it from a RAM for each granule."""
        for place, enable in enumerate(self._enables()):
            m.submodules[f"granule_{place}"] = part = Ram(self.depth, self.granularity)
            bits = slice(place * self.granularity, (place + 1) * self.granularity)
            m.d.comb += [
                part.read_enable.eq(self.read_enable),
                part.read_address.eq(self.read_address),
                self.read_data[bits].eq(part.read_data),
                part.write_enable.eq(enable),
                part.write_address.eq(self.write_address),
                part.write_data.eq(self.write_data[bits]),
            ]

    def _enables(self) -> Value:
        return self.write_enable & self.write.replicate(len(self.write_enable))

    def _describe_shallow(self, m: Module) -> None:
        """Describe an asynchronous read, as logic cells have, followed by two registers."""
        m.submodules.ram = ram = memory.Memory(
            shape=self.width, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
        )
        read = ram.read_port(domain="comb")
        write = ram.write_port(granularity=self.granularity)
        fetched = Signal(self.width, reset_less=True)
        data = Signal(self.width, reset_less=True)
        with m.If(self.read_enable):
            m.d.sync += fetched.eq(read.data)
        m.d.sync += data.eq(fetched)
        m.d.comb += [
            read.addr.eq(self.read_address),
            self.read_data.eq(data),
            write.en.eq(self._enables()),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]

    def _instantiate(self, m: Module, block_type: type[BlockRam]) -> None:
        """Fill the lanes of blocks that are at least as deep as the RAM, granule by granule."""
        depth = block_type.SHAPE.depth_for(self.depth)
        lanes: list[tuple[Value, Value, Value]] = []
        _, lane_bits = block_type.SHAPE.lanes(depth)
        for granule, enable in enumerate(self.write_enable):
            low = granule * self.granularity
            high = low + self.granularity
            for start in range(low, high, lane_bits):
                bits = slice(start, min(start + lane_bits, high))
                lanes.append((enable, self.write_data[bits], self.read_data[bits]))
        index = 0
        while lanes:
            block = block_type(depth)
            m.submodules[f"block_{index}"] = block
            held, lanes = lanes[: block.lanes], lanes[block.lanes :]
            index += 1
            m.d.comb += [
                block.read_enable.eq(self.read_enable),
                block.read_address.eq(self.read_address),
                block.write_address.eq(self.write_address),
                block.write.eq(self.write),
                block.write_enable.eq(Cat(enable for enable, _, _ in held)),
            ]
            for lane, (_, written, read) in enumerate(held):
                place = slice(lane * lane_bits, lane * lane_bits + len(written))
                m.d.comb += [
                    block.write_data[place].eq(written),
                    read.eq(block.read_data[place]),
                ]

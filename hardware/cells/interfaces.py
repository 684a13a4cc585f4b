"""Ports and behaviour of cells that several technologies have."""

from abc import ABC, abstractmethod
from typing import ClassVar

from amaranth.hdl import Instance, IOPort, Module, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..blocks import BLOCK_18K, BlockShape

ELEMENT_BITS = 8


class BlockRam(wiring.Component, ABC):
    """One block RAM: one write port, one read port with its output register; zero at power-up.

    Read data follow their address by two cycles and hold until the data of the next read. A word
    that is read in the cycle in which it is written is undefined.

    Parameters
    ----------
    depth : int
        Words, one of `SHAPE.widths`, which gives their width.

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
        Parts of a word with a write-enable bit each, and their width.
    """

    SHAPE: ClassVar[BlockShape] = BLOCK_18K

    def __init__(self, depth: int):
        self.width = self.SHAPE.widths[depth]
        self.lanes, self.lane_bits = self.SHAPE.lanes(depth)
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

    @abstractmethod
    def elaborate(self, platform) -> Module: ...


class Copies(wiring.Component, ABC):
    """Registers that all hold one bit, each a cell; Yosys would merge described registers.

    A net with few loads is short, so each copy drives its own part of the loads.

    Parameters
    ----------
    count : int
        Number of registers.

    Members
    -------
    value : In(1)
    copies : Out(count)
        The value of the cycle before.
    """

    def __init__(self, count: int):
        super().__init__({"value": In(1), "copies": Out(count)})

    def elaborate(self, platform) -> Module:
        m = Module()
        for index, copy in enumerate(Value.cast(self.copies)):
            m.submodules[f"copy_{index}"] = self.register(copy)
        return m

    @abstractmethod
    def register(self, copy: Value) -> Instance:
        """Return the register that holds `value` and drives `copy`."""


class HeldPair(wiring.Component, ABC):
    """Two multipliers of int8 by int8; the left operands stay until replaced.

    Latency three cycles; never stalls. The registers have no reset.

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

    @abstractmethod
    def elaborate(self, platform) -> Module: ...


class BidirectionalPad(wiring.Component, ABC):
    """A pad with registers for input, output and direction.

    Parameters
    ----------
    port : IOPort
        One pin.

    Members
    -------
    output : In(1)
    drives : In(1)
        Whether the pin is driven.
    input : Out(1)
    """

    output: In(1)
    drives: In(1)
    input: Out(1)

    def __init__(self, port: IOPort):
        self.port = port
        super().__init__()

    @abstractmethod
    def elaborate(self, platform) -> Module: ...

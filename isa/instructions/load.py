"""LOAD: byte runs from main memory, or of one constant byte, into a scratchpad."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import IsaError
from ..configuration import PARAMETERS, Configuration, Memory
from ..fields import Field
from .common import Instruction, Operand, Role, Unit, local_bits
from .loops import Loop

DESTINATIONS = (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT)
"""Scratchpads that LOAD fills, in the order of the destination code."""

FLAGS = {"unpack": "packed_weights", "transpose": "transposed_weights"}
"""Flags of a LOAD into WGT, and the option of the machine that each one requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Instruction):
    """Copy `length` bytes from `memory` to `local`, once per iteration of the loops.

    Runs may overlap in memory (windows of a first layer) and start at any byte on either side. With
    `fill`, `value` is written and memory is not read; this makes padding.

    With `unpack`, a run is one or more weight tiles of 4 bits. Each is a row of `lanes_out`
    unsigned factors and `lanes_in` rows of `lanes_out` signed weights, two to a byte, the first in
    the low half. WGT gets each weight times the factor of its column.

    With `transpose`, the bytes of a run go to one lane of successive rows of WGT.

    Parameters
    ----------
    destination
        Scratchpad: ACT, WGT, PARAM or LUT.
    fill, value
        Write this byte (0 to 255) instead of reading memory.
    unpack
        Unpack weight tiles into WGT; requires `packed_weights`. `length` and `local` are then whole
        tiles, and `memory` whole packed rows, or whole beats if these are shorter.
    transpose
        Write a column of WGT; requires `transposed_weights`.
    length
        Bytes of a run in memory, or of a fill.
    memory, local
        Byte offset in main memory, byte address in the scratchpad.
    loops
        Strides `(memory, local)` in bytes.
    """

    unit: ClassVar[Unit] = Unit.LOAD
    opcode: ClassVar[int] = 1
    mnemonic: ClassVar[str] = "load"
    law: ClassVar[str] = (
        "destination[local + 0..length) = fill ? value : DRAM[memory + 0..length)\n"
        "unpack: WGT[tile, i, o] = int4(packed[tile, 1 + i, o]) * uint4(packed[tile, 0, o])\n"
        "transpose: WGT[local + lanes_out * (0..length)) = DRAM[memory + 0..length)"
    )
    time: ClassVar[str] = (
        "one piece per cycle once its beat has arrived; a piece is the part of a beat that falls "
        "in one row of the scratchpad, or in one row of a packed tile, and a byte with "
        "`transpose`; complete `PLACING_CYCLES` after the last piece"
    )
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("memory", reads=True),
        Operand("local", writes=True),
    )
    roles: ClassVar[dict[str, Role]] = {"memory": Role.SOURCE, "local": Role.DESTINATION}
    forgotten: ClassVar[tuple[str, ...]] = ("value",)
    places: ClassVar[dict[str, dict[Memory, dict[str, Any]]]] = {
        "memory": {Memory.DRAM: {}},
        "local": {memory: {"destination": memory} for memory in DESTINATIONS},
    }
    nests: ClassVar[dict[str, tuple[str, ...]]] = {"loops": ("memory", "local")}

    destination: Memory
    fill: bool = False
    value: int = 0
    unpack: bool = False
    transpose: bool = False
    length: int
    memory: int = 0
    local: int
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        super(Load, self).__post_init__()
        destination = Memory(self.destination)
        if destination not in DESTINATIONS:
            raise IsaError(f"load: `destination` cannot be {destination.name}")
        object.__setattr__(self, "destination", destination)
        if self.fill:
            object.__setattr__(self, "memory", 0)
            loops = tuple(Loop(loop.extent, (0, loop.strides[1])) for loop in self.loops)
            object.__setattr__(self, "loops", loops)

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """Destination code, fill flag and byte, flags of the machine's options, run length."""
        given = (name for name, option in FLAGS.items() if getattr(configuration, option) != "none")
        return (
            Field("destination", 2),
            Field("fill", 1),
            Field("value", 8),
            *(Field(name, 1) for name in given),
            Field("length", local_bits(configuration), offset=1),
        )

    def values(self, configuration: Configuration) -> dict[str, int]:
        """Value of every field of the layout.

        Raises
        ------
        IsaError
            When there are too many loops, or the machine lacks an option.
        """
        for name, option in FLAGS.items():
            if getattr(self, name) and getattr(configuration, option) == "none":
                raise IsaError(
                    f"configuration `{configuration.name}` cannot {name} weights (`{option}` is "
                    f"none); leave out `{name}` or set `{option}` to "
                    f"{PARAMETERS[option].choices[-1]}"
                )
        return super(Load, self).values(configuration)

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Memory offsets have `address_bits` bits; local addresses cover the largest scratchpad."""
        return configuration.address_bits if operand == "memory" else local_bits(configuration)

    @classmethod
    def levels(cls, nest: str, configuration: Configuration) -> int:
        """`dma_loops` levels."""
        return configuration.dma_loops

    def takes_effect(self, name: str) -> bool:
        """`value` matters only in a fill."""
        return name != "value" or self.fill

    def run_bytes(self, operand: str, configuration: Configuration) -> int:
        """A run; in WGT, the tiles that it unpacks to, or the rows in whose lane it lies."""
        if self.transpose and operand == "local":
            return (self.length - 1) * configuration.lanes_out + 1
        if self.unpack and operand == "local":
            return self.length // configuration.packed_tile_bytes * configuration.tile_bytes
        return self.length

    def active(self, operand: Operand) -> bool:
        """A fill does not read memory."""
        return not (self.fill and operand.name == "memory")

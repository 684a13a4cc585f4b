"""STORE: byte runs from ACT or ACC to main memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import IsaError
from ..configuration import Configuration, Memory
from ..fields import Field
from .common import Instruction, Operand, Role, Unit, local_bits
from .loops import Loop

SOURCES = (Memory.ACT, Memory.ACC)
"""Scratchpads that STORE reads, in the order of the source code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Instruction):
    """Copy `length` bytes from `local` to `memory`, once per iteration of the loops.

    Parameters
    ----------
    source
        Scratchpad: ACT, or ACC for 32-bit results (little endian).
    length
        Bytes of a run.
    local, memory
        Byte address in the scratchpad, byte offset in main memory.
    loops
        Strides `(local, memory)` in bytes.
    """

    unit: ClassVar[Unit] = Unit.STORE
    opcode: ClassVar[int] = 4
    mnemonic: ClassVar[str] = "store"
    law: ClassVar[str] = "DRAM[memory + 0..length) = source[local + 0..length)"
    time: ClassVar[str] = (
        "one piece per cycle; a piece is the part of a beat that falls in one row of the "
        "scratchpad; complete one cycle after main memory's last response"
    )
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("local", reads=True),
        Operand("memory", writes=True),
    )
    roles: ClassVar[dict[str, Role]] = {"local": Role.SOURCE, "memory": Role.DESTINATION}
    places: ClassVar[dict[str, dict[Memory, dict[str, Any]]]] = {
        "memory": {Memory.DRAM: {}},
        "local": {memory: {"source": memory} for memory in SOURCES},
    }
    nests: ClassVar[dict[str, tuple[str, ...]]] = {"loops": ("local", "memory")}

    source: Memory
    length: int
    local: int
    memory: int
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        super(Store, self).__post_init__()
        source = Memory(self.source)
        if source not in SOURCES:
            raise IsaError(f"store: `source` cannot be {source.name}")
        object.__setattr__(self, "source", source)

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """Source code and run length."""
        return (Field("source", 1), Field("length", local_bits(configuration), offset=1))

    def values(self, configuration: Configuration) -> dict[str, int]:
        """The source as its one-bit code."""
        values = super(Store, self).values(configuration)
        return {**values, "source": SOURCES.index(self.source)}

    @classmethod
    def from_values(cls, values, configuration: Configuration) -> Instruction:
        """The one-bit code back to a scratchpad."""
        values = {**values, "source": SOURCES[values["source"]]}
        return super(Store, cls).from_values(values, configuration)

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Memory offsets have `address_bits` bits; local addresses cover the largest scratchpad."""
        return configuration.address_bits if operand == "memory" else local_bits(configuration)

    @classmethod
    def levels(cls, nest: str, configuration: Configuration) -> int:
        """`dma_loops` levels."""
        return configuration.dma_loops

    def run_bytes(self, operand: str, configuration: Configuration) -> int:
        """A run."""
        return self.length

"""A device: what runs a program, behind one interface, and what a run gives."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from ..errors import DeviceError
from ..isa.configuration import Configuration, Memory
from ..isa.encoding import decode_program, encode_program
from ..isa.instructions import Instruction
from ..sim.memory_model import MemoryModel

Program = bytes | Sequence[Instruction]
"""Instruction words, or instructions."""


class LoadedProgram:
    """A program in both forms, each made when it is first asked for and then kept.

    Parameters
    ----------
    program
        Words or instructions.
    """

    def __init__(self, program: bytes | tuple[Instruction, ...], configuration: Configuration):
        self.program, self.configuration = program, configuration

    @cached_property
    def words(self) -> bytes:
        """Instruction words."""
        if isinstance(self.program, bytes):
            return self.program
        return encode_program(self.program, self.configuration)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Decoded instructions."""
        if isinstance(self.program, bytes):
            return decode_program(self.program, self.configuration)
        return self.program


_load_words = lru_cache(maxsize=16)(LoadedProgram)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run of a program gave.

    Parameters
    ----------
    device
        Name of the device.
    dram
        The data window after the run: the array that was given.
    cycles
        From start to done; None where the device knows no time.
    exact
        Whether cycles, spans and counters are the hardware's; False where random stalls are left
        out.
    spans
        int64[instructions, 2]: cycles in which each instruction started and retired, -1 for HALT;
        None where the device knows no time.
    counters
        Performance counters by register name, as far as the device knows them.
    """

    device: str
    dram: np.ndarray
    cycles: int | None = None
    exact: bool = False
    spans: np.ndarray | None = None
    counters: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        time = "no time" if self.cycles is None else f"{self.cycles:,} cycles"
        return f"<Result of `{self.device}`: {time}, {self.dram.size:,} bytes of data>"


class Device(ABC):
    """Something that runs programs of one configuration.

    Every run starts from zeroed scratchpads. A device may be used for any number of runs and is
    closed by leaving a `with` block.
    """

    name: str

    def __init__(self, configuration: Configuration, memory: MemoryModel) -> None:
        self.configuration = configuration
        self.memory = memory
        self._loaded = LoadedProgram((), configuration)

    def __repr__(self) -> str:
        return f"<Device `{self.name}` of `{self.configuration.name:.60}`>"

    def run(self, program: Program, dram: np.ndarray) -> Result:
        """Run a program to its HALT.

        Parameters
        ----------
        program
            Instruction words or instructions; legal by the checker.
        dram
            uint8[bytes]: the data window with constants and inputs. Changed in place.

        Raises
        ------
        DeviceError
            When the data window is not such an array, or the device fails.
        """
        if dram.dtype != np.uint8 or dram.ndim != 1 or not dram.flags.c_contiguous:
            raise DeviceError(
                f"{self.name}: data window: expected contiguous uint8[bytes], "
                f"got {dram.dtype}{list(dram.shape)}"
            )
        if not dram.flags.writeable:
            raise DeviceError(f"{self.name}: data window: the array is read-only; pass a copy")
        return self._run(self._load(program), dram)

    def _load(self, program: Program) -> LoadedProgram:
        """A program run again is not encoded or decoded again."""
        if isinstance(program, bytes | bytearray | memoryview):
            return _load_words(bytes(program), self.configuration)
        instructions = tuple(program)
        if self._loaded.program is not instructions:
            self._loaded = LoadedProgram(instructions, self.configuration)
        return self._loaded

    @abstractmethod
    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        """Run a program on a data window that has been checked."""

    @abstractmethod
    def scratchpads(self) -> dict[Memory, np.ndarray]:
        """Contents of every scratchpad after the last run, uint8[bytes]."""

    def close(self) -> None:
        """Give back what the device holds; the simulators in Python hold nothing."""
        return

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_) -> None:
        self.close()

"""Interface of all devices, and the result of a run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeviceError
from ..isa.configuration import Configuration, Memory
from ..isa.encoding import decode_program, encode_program
from ..isa.instructions import Instruction
from ..isa.memory_model import MemoryModel

if TYPE_CHECKING:
    from ..compiler.module import Module
    from .benchmark import Benchmark
    from .host import HostSide
    from .profile import HostRun

Program = bytes | Sequence[Instruction]
"""A program, as encoded or decoded instructions."""


class OtherConfigurationError(DeviceError):
    """A board holds another machine than it was opened as; `found` is its hash."""

    def __init__(self, text: str, found: int) -> None:
        super().__init__(text)
        self.found = found


class LoadedProgram:
    """A program in both forms, encoded and decoded; each is made on first use and kept.

    Parameters
    ----------
    program : bytes or tuple
        Encoded or decoded.
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
    """The result of running a program.

    Parameters
    ----------
    device : str
        Name of the device.
    dram : ndarray
        The data window after the run; the same array that was passed in.
    cycles : int or None
        Cycles from start to done; None if the device does not measure time.
    exact : bool
        Whether cycles, spans and counters equal those of the hardware; False if random stalls are
        ignored.
    spans : ndarray or None
        int64[instructions, 2]: cycles in which each instruction started and retired, -1 for HALT;
        None if the device does not measure time.
    counters : dict
        The device's performance counters, by register name.
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


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The repetitions that time a run; see `benchmark.benchmark`."""

    number: int
    repeat: int
    min_repeat_ms: float
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A run of a whole network elsewhere.

    Parameters
    ----------
    outputs : dict
        By name.
    values : dict
        Values of all steps, if they were asked for.
    host : HostRun
    benchmark : Benchmark or None
        The times of repeated runs there, if they were asked for.
    """

    outputs: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    host: "HostRun"
    benchmark: "Benchmark | None" = None


class Device(ABC):
    """A device that runs programs of one configuration.

    Every run starts from zeroed scratchpads. A device may run any number of programs. Leaving its
    `with` block closes it.
    """

    name: str
    options: tuple[str, ...] = ()
    """Names of the options that `open_device` takes."""

    tolerance = 2.0**-12
    """Largest difference of a float kernel from its definition, relative to the largest magnitude
    of its output. Sums in another order, Winograd convolutions and approximated functions stay well
    below it."""

    has_accelerator = True
    """False for a device that runs no programs, but networks without segments."""

    gpu: "Device | None" = None
    """The GPU that runs the host's steps, which is closed with this device; None for this
    processor."""

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
        program : Program
            Encoded or decoded; it must pass the checker.
        dram : ndarray
            uint8[bytes]: the data window with constants and inputs, which the run changes.

        Raises
        ------
        DeviceError
            If the data window is not of this form, or the device fails.
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
        """Return the program in both forms, which are kept for the next run."""
        if isinstance(program, bytes | bytearray | memoryview):
            return _load_words(bytes(program), self.configuration)
        instructions = tuple(program)
        if self._loaded.program is not instructions:
            self._loaded = LoadedProgram(instructions, self.configuration)
        return self._loaded

    @abstractmethod
    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        """Run a program on a checked data window."""

    @abstractmethod
    def scratchpads(self) -> dict[Memory, np.ndarray]:
        """Return the contents of every scratchpad after the last run, uint8[bytes]."""

    def host_side(self, module: "Module", **options: Any) -> "HostSide":
        """Return the host's steps of a module, with options as of `HostSide`, ready to run."""
        # Imported here: devices without a network need no host.
        from .host import HostSide

        return self.gpu.host_side(module, **options) if self.gpu else HostSide(module, **options)

    def close(self) -> None:
        """Free the device's resources."""
        self._close()
        if self.gpu:
            self.gpu.close()

    def _close(self) -> None:
        """Free what the device itself holds."""
        return

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class NetworkDevice(Device):
    """A processor of another machine, which runs whole networks."""

    has_accelerator = False

    @abstractmethod
    def run_network(
        self,
        module: "Module",
        inputs: Mapping[str, np.ndarray],
        *,
        keep_all: bool = False,
        timing: Repetitions | None = None,
    ) -> NetworkRun:
        """Run a network without segments on inputs that fit it; repeatedly with a timing."""

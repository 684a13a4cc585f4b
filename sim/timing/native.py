"""The compiled timing model: a program is decoded once and timed under any number of settings."""

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from ...isa import durations
from ...isa.configuration import Configuration
from ...isa.encoding import encode_program
from ...isa.instructions import Instruction
from ...isa.instructions.load import DESTINATIONS
from ...isa.instructions.store import SOURCES
from ...isa.memory_model import MemoryModel, bus_values
from ..decode import decode_words, headers
from ..native import NATIVE_FLAGS, build_native
from .fetch import Fetch
from .transfers import COLUMNS, fill_beat_bytes


@cache
def library() -> ctypes.CDLL:
    """The compiled model, and the weaver of tokens.

    Raises
    ------
    ToolError
        Without a compiler.
    """
    folder = Path(__file__).parent
    names = (
        *("engine.cpp", "engine.h", "bus.h", "issuer.h", "ports.h", "program.h"),
        "weave.cpp",
    )
    sources = [folder / name for name in (*names, "../decode.h", "../vector_kind.h")]
    flags = (*NATIVE_FLAGS, "-fvisibility-inlines-hidden", "-fno-semantic-interposition")
    return _load(str(build_native("timing", sources, flags, generated=headers())))


def build_in_background() -> None:
    """Compile the model in a thread. If that fails, `library` reports the error when called."""
    ThreadPoolExecutor(1).submit(library)


@cache
def _load(path: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(path)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("open", pointer, (pointer, number, number)),
        ("close", None, (pointer,)),
        ("run", number, (pointer, pointer, pointer)),
        ("sweep", None, (pointer, pointer, number, pointer, number)),
    ):
        function = getattr(loaded, f"tilewright_timing_{name}")
        function.restype, function.argtypes = result, arguments
    loaded.tilewright_weave.restype = number
    return loaded


@cache
def _machine(configuration: Configuration) -> tuple[int, ...]:
    """The configuration's fields of a setting, in the order of `program.h`."""
    fetch = Fetch(configuration, 0)
    return (
        fetch.word_beats,
        fetch.burst_beats,
        fetch.buffer_beats,
        _log2(configuration.bus_bytes),
        configuration.burst_bytes,
        _log2(fill_beat_bytes(configuration)),
        *(_log2(configuration.row_bytes(memory)) for memory in (*DESTINATIONS, *SOURCES)),
        configuration.queue_depth,
        durations.commands_in_flight(configuration),
        configuration.outstanding_bursts,
        durations.tile_cycles(configuration),
        durations.gemm_tail_cycles(configuration),
    )


def _log2(power: int) -> int:
    return power.bit_length() - 1


def setting(configuration: Configuration, memory: MemoryModel) -> tuple[int, ...]:
    """Machine and memory in the format of the compiled model."""
    return *_machine(configuration), *_memory(memory)


def _memory(memory: MemoryModel) -> tuple[int, ...]:
    """The memory's fields of a setting; they come last."""
    return (
        memory.latency_cycles,
        memory.beats,
        memory.cycles,
        memory.outstanding_bursts,
        *bus_values(memory),
    )


class TimedProgram:
    """A decoded program with matched tokens, ready to be timed.

    Parameters
    ----------
    program
        Instructions, or their words, of a program that the checker accepts.
    configuration
        The machine that it is encoded for.

    Raises
    ------
    ToolError
        Without a compiler.
    """

    def __init__(
        self, program: Sequence[Instruction] | bytes, configuration: Configuration
    ) -> None:
        self._handle = None
        code = program if isinstance(program, bytes) else encode_program(program, configuration)
        self.configuration = configuration
        self._library = library()
        self._rows = decode_words(code, configuration)
        self._chosen: tuple[MemoryModel, Configuration | None] | None = None
        self._handle = self._library.tilewright_timing_open(
            self._rows.ctypes.data, len(self._rows), configuration.token_limit
        )

    def __del__(self) -> None:
        if self._handle is not None:
            self._library.tilewright_timing_close(self._handle)

    def __len__(self) -> int:
        return len(self._rows)

    def run(
        self, memory: MemoryModel, machine: Configuration | None = None
    ) -> tuple[int, np.ndarray]:
        """Time the program.

        Parameters
        ----------
        memory
            Main memory; its stalls are ignored.
        machine
            Another machine that runs the same words.

        Returns
        -------
        cycles
            From start to done.
        times
            int64[instructions, columns], by `COLUMNS`.
        """
        times = np.empty((len(self._rows), len(COLUMNS)), dtype=np.int64)
        cycles = self._library.tilewright_timing_run(
            self._handle, self._setting_of(memory, machine), times.ctypes.data
        )
        return cycles, times

    def _setting_of(self, memory: MemoryModel, machine: Configuration | None) -> int:
        """Address of the setting; the last one is cached, since runs in a row often share it."""
        if self._chosen is None or self._chosen[0] is not memory or self._chosen[1] is not machine:
            self._chosen = memory, machine
            chosen = setting(machine or self.configuration, memory)
            self._setting = np.array(chosen, dtype=np.int64)
            self._setting_address = self._setting.ctypes.data
        return self._setting_address

    def sweep(
        self, settings: Sequence[tuple[Configuration, MemoryModel]], threads: int | None = None
    ) -> np.ndarray:
        """Cycles under many settings, int64[settings]; uses all processors by default."""
        table = np.array([setting(*each) for each in settings], dtype=np.int64)
        cycles = np.zeros(len(settings), dtype=np.int64)
        threads = threads or len(os.sched_getaffinity(0))
        self._library.tilewright_timing_sweep(
            self._handle, table.ctypes.data, len(settings), cycles.ctypes.data, threads
        )
        return cycles

"""The C++ harness behind ctypes: one instance of a core, its clock, host port and memory."""

import ctypes
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..errors import DeviceError
from ..isa.instructions import Unit
from ..isa.memory_model import MemoryModel, bus_values
from ..isa.registers import OFFSETS

INTERRUPTED, SILENT, VIOLATED = 1, 2, 3
"""Reason why `Harness.run` ended before its budget."""


class _Array(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("bits", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
    )


class Harness:
    """One instance of a core in a shared library made by `toolchain.build_library`.

    Parameters
    ----------
    library
        Path of the library.
    memory
        Behaviour of main memory.
    """

    def __init__(self, library: Path, memory: MemoryModel) -> None:
        self._library = _load(library)
        self._handle = self._library.tw_create()
        self.set_memory(memory)

    def close(self) -> None:
        """Free the instance."""
        if self._handle:
            self._library.tw_destroy(self._handle)
            self._handle = None

    def set_memory(self, memory: MemoryModel) -> None:
        """Change the memory's behaviour and restart its random draws."""
        self.memory = memory
        values = (
            memory.latency_cycles,
            memory.beats,
            memory.cycles,
            memory.outstanding_bursts,
            round(memory.stall_probability * 4096),
            memory.seed,
            *bus_values(memory),
        )
        self._library.tw_set_timing(self._handle, (ctypes.c_uint64 * len(values))(*values))

    def reset(self) -> None:
        """Pulse the reset input."""
        self._library.tw_reset(self._handle)

    def map(self, index: int, base: int, data: np.ndarray, *, writable: bool) -> None:
        """Put an array (uint8[bytes], kept alive by the caller) at an address of main memory."""
        self._library.tw_map(
            self._handle, index, base, data.size, data.ctypes.data_as(ctypes.c_void_p), writable
        )

    def set_fault(self, base: int, size: int) -> None:
        """Answer accesses to these addresses with an error; size 0 for none."""
        self._library.tw_set_fault(self._handle, base, size)

    def write(self, register: str, value: int) -> None:
        """Write a register by name.

        Raises
        ------
        DeviceError
            When the core does not answer.
        """
        if not self._library.tw_write_register(self._handle, OFFSETS[register], value):
            raise DeviceError(f"rtl: the core does not answer a write of register `{register}`")

    def read(self, register: str) -> int:
        """Read a register by name.

        Raises
        ------
        DeviceError
            When the core does not answer.
        """
        value = ctypes.c_uint32()
        offset = OFFSETS[register]
        if not self._library.tw_read_register(self._handle, offset, ctypes.byref(value)):
            raise DeviceError(f"rtl: the core does not answer a read of register `{register}`")
        return value.value

    def start(self) -> None:
        """Write the start bit; cycles and events count from here."""
        if not self._library.tw_start(self._handle):
            raise DeviceError("rtl: the core does not answer a write of register `CONTROL`")

    def run(self, budget: int, silence_cycles: int) -> int:
        """Run at most `budget` cycles; 0 if all have passed, else the reason for the end."""
        return self._library.tw_run(self._handle, budget, silence_cycles)

    @property
    def cycles(self) -> int:
        """Cycles since the start."""
        return self._library.tw_cycles(self._handle)

    @property
    def violation(self) -> str:
        """The first rule of the memory port broken since the start, or an empty string."""
        return self._library.tw_violation(self._handle).decode()

    def beats(self) -> tuple[int, int]:
        """Read and write beats since the creation of the instance."""
        return self._library.tw_beats(self._handle, 0), self._library.tw_beats(self._handle, 1)

    def events(self, unit: Unit, *, retirements: bool) -> np.ndarray:
        """Cycles at which instructions of a unit started or retired, int64[count]."""
        line = 2 * unit + retirements
        count = self._library.tw_event_count(self._handle, line)
        if not count:
            return np.zeros(0, dtype=np.int64)
        data = self._library.tw_events(self._handle, line)
        return np.ctypeslib.as_array(data, (count,)).astype(np.int64)

    def arrays(self) -> dict[str, tuple[np.ndarray, int]]:
        """The RAMs inside the core: name to uint8[rows, stride] (a view) and bits of a row."""
        found = {}
        for index in range(self._library.tw_array_count(self._handle)):
            array = self._library.tw_array(self._handle, index).contents
            pointer = ctypes.cast(array.data, ctypes.POINTER(ctypes.c_uint8))
            view = np.ctypeslib.as_array(pointer, (array.rows, array.stride))
            found[array.name.decode()] = view, array.bits
        return found

    def open_trace(self, path: Path) -> None:
        """Write an FST waveform from now on.

        Raises
        ------
        DeviceError
            When the library was built without.
        """
        if not self._library.tw_open_trace(self._handle, str(path).encode()):
            raise DeviceError("rtl: this library was built without waveforms")

    def close_trace(self) -> None:
        """Finish the waveform."""
        self._library.tw_close_trace(self._handle)


@lru_cache(maxsize=32)
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, number = ctypes.c_void_p, ctypes.c_uint64
    text, integer, word = ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32
    signatures = {
        "tw_create": (handle, ()),
        "tw_destroy": (None, (handle,)),
        "tw_reset": (None, (handle,)),
        "tw_set_timing": (None, (handle, ctypes.POINTER(number))),
        "tw_map": (None, (handle, integer, number, number, ctypes.c_void_p, integer)),
        "tw_set_fault": (None, (handle, number, number)),
        "tw_write_register": (integer, (handle, word, word)),
        "tw_read_register": (integer, (handle, word, ctypes.POINTER(word))),
        "tw_start": (integer, (handle,)),
        "tw_run": (integer, (handle, number, number)),
        "tw_cycles": (number, (handle,)),
        "tw_beats": (number, (handle, integer)),
        "tw_violation": (text, (handle,)),
        "tw_event_count": (number, (handle, integer)),
        "tw_events": (ctypes.POINTER(number), (handle, integer)),
        "tw_array_count": (integer, (handle,)),
        "tw_array": (ctypes.POINTER(_Array), (handle, integer)),
        "tw_open_trace": (integer, (handle, text)),
        "tw_close_trace": (None, (handle,)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library

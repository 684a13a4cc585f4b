"""The Verilated system on chip behind a link of bytes."""

import ctypes
from functools import lru_cache
from pathlib import Path

from ..errors import DeviceError
from ..isa.configuration import Configuration
from ..isa.sdram import Sdram
from .hardware_sources import keep_verilog
from .verilate import build_library, runtime_in_background

TOP = "board"
"""Top module of the generated Verilog."""

SENT_BYTES = 1 << 16
"""Most bytes that are taken from the board at a time."""


def build_board(
    configuration: Configuration,
    memory_bytes: int,
    clock_hz: int,
    divisor: int | None = None,
    sdram: Sdram | None = None,
) -> Path:
    """The shared library of a system on chip; built unless it is in the cache.

    Parameters
    ----------
    memory_bytes, clock_hz
        As in `hardware.soc.system.System`.
    divisor
        Cycles of a bit of the serial port in between; None for a link of a byte per cycle.
    sdram
        Main memory; block RAM without it.

    Raises
    ------
    HardwareError
        If the memory is too large, or not whole pages, or does not fit the configuration.
    ToolError
        When Verilator or the compiler is missing or fails.
    """
    label = f"the board of configuration `{configuration.name}`"

    def generate() -> str:
        # Imported here: a cached board needs no hardware description language.
        from ..hardware.soc.simulated_ram import VERILOG
        from ..hardware.soc.system import System, SystemWithChip, WiredSystem
        from ..hardware.verilog import convert

        system = System(configuration, memory_bytes, clock_hz, sdram=sdram)
        whole = SystemWithChip(system) if sdram else system
        top = whole if divisor is None else WiredSystem(whole, divisor)
        return convert(top, TOP) + VERILOG

    with runtime_in_background(traced=False):
        choices = TOP, memory_bytes, clock_hz, divisor, str(sdram)
        verilog = keep_verilog(configuration, choices, label, generate)
    return build_library(verilog, TOP, {}, label, harness="board.cpp")


class VirtualBoard:
    """A board in a simulator: bytes in, cycles, bytes out.

    Parameters
    ----------
    configuration, memory_bytes, clock_hz, divisor, sdram
        As in `build_board`.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory_bytes: int,
        clock_hz: int,
        divisor: int | None = None,
        sdram: Sdram | None = None,
    ) -> None:
        self.configuration, self.memory_bytes = configuration, memory_bytes
        self._library = _load(build_board(configuration, memory_bytes, clock_hz, divisor, sdram))
        self._handle = self._library.tw_create()
        self._sent = (ctypes.c_uint8 * SENT_BYTES)()

    def close(self) -> None:
        """Free the simulator."""
        if self._handle:
            self._library.tw_destroy(self._handle)
            self._handle = None

    def reset(self) -> None:
        """Pulse the reset input; main memory keeps its contents."""
        self._library.tw_reset(self._handle)

    @property
    def busy(self) -> bool:
        """Whether it runs a program, executes a request or sends an answer."""
        return bool(self._library.tw_busy(self._handle))

    @property
    def cycles(self) -> int:
        """Cycles simulated since the creation."""
        return self._library.tw_cycles(self._handle)

    def run(self, received: bytes, budget: int) -> tuple[int, bytes]:
        """Simulate at most `budget` cycles.

        It ends earlier when the board has sent bytes and pauses, or has nothing to do.

        Parameters
        ----------
        received
            Bytes from the host.

        Returns
        -------
        The number of these bytes that the board took, and the bytes that it sent.

        Raises
        ------
        DeviceError
            If the controller broke a rule of the SDRAM.
        """
        taken, produced = ctypes.c_uint64(), ctypes.c_uint64()
        self._library.tw_run(
            self._handle,
            budget,
            received,
            len(received),
            ctypes.byref(taken),
            self._sent,
            SENT_BYTES,
            ctypes.byref(produced),
        )
        if violation := self._library.tw_violation(self._handle):
            from ..hardware.soc.sdram_chip import SENTENCES, Violation

            raise DeviceError(f"virtual board: SDRAM: {SENTENCES[Violation(violation)]}")
        return taken.value, bytes(memoryview(self._sent)[: produced.value])


@lru_cache(maxsize=8)
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, number = ctypes.c_void_p, ctypes.c_uint64
    counted, data = ctypes.POINTER(number), ctypes.POINTER(ctypes.c_uint8)
    signatures = {
        "tw_create": (handle, ()),
        "tw_destroy": (None, (handle,)),
        "tw_reset": (None, (handle,)),
        "tw_busy": (ctypes.c_int, (handle,)),
        "tw_cycles": (number, (handle,)),
        "tw_violation": (ctypes.c_int, (handle,)),
        "tw_run": (
            None,
            (handle, number, ctypes.c_char_p, number, counted, data, number, counted),
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library

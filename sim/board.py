"""The Verilated system on chip behind a link of bytes."""

import ctypes
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..errors import DeviceError, ToolError
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
    *,
    soft_cpu: bool = False,
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
    soft_cpu
        Whether a soft CPU drives the core, in place of the host.

    Raises
    ------
    HardwareError
        If the memory is too large, or not whole pages, or does not fit the configuration.
    ToolError
        When Verilator, the compiler or the soft CPU's package is missing, or a tool fails.
    """
    label = f"the board of configuration `{configuration.name}`{', with a CPU' * soft_cpu}"
    cpu_verilog = _picorv32() if soft_cpu else ""

    def generate() -> str:
        # Imported here: a cached board needs no hardware description language.
        from ..hardware.soc.simulated_ram import VERILOG
        from ..hardware.soc.soft_cpu import SoftCpu
        from ..hardware.soc.system import System, SystemWithChip, WiredSystem
        from ..hardware.verilog import convert

        cpu = SoftCpu(configuration) if soft_cpu else None
        system = System(configuration, memory_bytes, clock_hz, sdram=sdram, cpu=cpu)
        whole = SystemWithChip(system) if sdram else system
        top = whole if divisor is None else WiredSystem(whole, divisor)
        return convert(top, TOP) + VERILOG

    with runtime_in_background(traced=False):
        choices = TOP, memory_bytes, clock_hz, divisor, str(sdram), soft_cpu
        verilog = keep_verilog(configuration, choices, label, generate)
    return build_library(verilog + cpu_verilog, TOP, {}, label, harness="board.cpp")


def _picorv32() -> str:
    """Return the Verilog of the soft CPU, from a package."""
    try:
        return (files("pythondata_cpu_picorv32") / "verilog" / "picorv32.v").read_text("utf-8")
    except ModuleNotFoundError:
        raise ToolError(
            "soft CPU: expected the Verilog of PicoRV32, got no package with it; "
            "`pip install pythondata-cpu-picorv32`"
        ) from None


class VirtualBoard:
    """A board in a simulator: bytes in, cycles, bytes out.

    Parameters
    ----------
    configuration, memory_bytes, clock_hz, divisor, sdram
        As in `build_board`.
    program
        Machine code for a soft CPU in place of the host, as in `hardware.soc.soft_cpu.SoftCpu`; the
        bytes of the link are the program's.

    Raises
    ------
    HardwareError
        If the program does not fit, or as `build_board`.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory_bytes: int,
        clock_hz: int,
        divisor: int | None = None,
        sdram: Sdram | None = None,
        *,
        program: bytes | None = None,
    ) -> None:
        self.configuration, self.memory_bytes = configuration, memory_bytes
        if program is not None:
            # Imported here: other cached boards need no hardware description language.
            from ..hardware.soc.soft_cpu import check_size

            check_size(program)
        library = build_board(
            configuration, memory_bytes, clock_hz, divisor, sdram, soft_cpu=program is not None
        )
        self._library = _load(library)
        self._program = program
        self._cycles_before = 0
        self._create()
        self._sent = (ctypes.c_uint8 * SENT_BYTES)()

    def _create(self) -> None:
        self._handle = self._library.tw_create()
        if self._program is not None:
            from ..hardware.soc.soft_cpu import ARRAY

            array = ARRAY.encode()
            self._library.tw_load(self._handle, array, self._program, len(self._program))

    def clear(self) -> None:
        """Cut the power for a moment: nothing is left in memory, scratchpads and registers."""
        self._cycles_before = self.cycles
        self.close()
        self._create()

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
        return self._cycles_before + self._library.tw_cycles(self._handle)

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
        "tw_load": (None, (handle, ctypes.c_char_p, ctypes.c_char_p, number)),
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

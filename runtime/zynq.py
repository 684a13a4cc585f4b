"""Drive the core of a Zynq board from the board's own Linux, through mapped memory: `zynq://`.

The core reaches main memory through ports that do not see the processor's caches. So the driver
flushes what it has written, and invalidates what it is about to read.
"""

import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from typing_extensions import override

from ..errors import DeviceError
from ..isa.link import BOARD_OFFSETS, LINK_MAGIC, LINK_VERSION, Command
from ..isa.memory_model import MemoryModel
from ..isa.registers import OFFSETS, REGISTER_SPACE_BYTES
from ..quoting import is_count
from .board import BoardDevice
from .link import Connection

WORD_BYTES = 4

USUAL_BUFFER_MIB = 64
"""Size of the buffer that pynq allocates; u-dma-buf has a size of its own."""

CORE = "core"
"""Name of the accelerator in the block design."""

BASES = (OFFSETS["PROGRAM_BASE"], OFFSETS["DATA_BASE"])
"""Registers that hold addresses."""

SYSFS = Path("/sys/class/u-dma-buf")

FOR_DEVICE, FOR_CPU = "sync_for_device", "sync_for_cpu"
"""Files of u-dma-buf that flush and invalidate."""


class MappedCore(ABC):
    """A core's registers and a contiguous part of main memory, mapped into this process.

    Parameters
    ----------
    registers
        Reads and writes registers by index, 32 bits at a time.
    memory : ndarray
        uint8[bytes]: the buffer, as the processor sees it.
    memory_base : int
        Byte address of the buffer, as the core sees it.
    clock_hz : int
        The core's clock; 0 if it is unknown.
    """

    def __init__(self, registers: Any, memory: np.ndarray, memory_base: int, clock_hz: int = 0):
        self.registers, self.memory = registers, memory
        self.memory_base, self.clock_hz = memory_base, clock_hz

    @abstractmethod
    def flush(self, start: int, end: int) -> None:
        """Write bytes `start` to `end` of the buffer from the caches to memory."""

    @abstractmethod
    def invalidate(self, start: int, end: int) -> None:
        """Drop bytes `start` to `end` of the buffer from the caches."""

    def close(self) -> None:
        """Unmap both."""
        self.registers = self.memory = np.empty(0, np.uint8)


class PynqCore(MappedCore):
    """A core in a bitstream that pynq loads, with a buffer of pynq's.

    Parameters
    ----------
    bitstream : str
        Path of the bitstream; its hand-off file (`.hwh`) lies beside it.
    buffer_bytes : int
    name : str
        Of the device, for messages.
    """

    def __init__(self, bitstream: str, buffer_bytes: int, name: str) -> None:
        try:
            import pynq  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise DeviceError(
                f"device `{name}`: a bitstream is loaded by `pynq`, which is not installed; run "
                "this on the board, in an environment with pynq, or load the bitstream by other "
                "means and use `zynq:///dev/uio0?buffer=/dev/udmabuf0`"
            ) from None
        if not os.path.isfile(bitstream):
            raise DeviceError(f"device `{name}`: there is no `{bitstream}`; correct the path")
        try:
            found = pynq.Overlay(bitstream).ip_dict[CORE]
            registers = pynq.MMIO(found["phys_addr"], REGISTER_SPACE_BYTES).array
            self._buffer = pynq.allocate(buffer_bytes, np.uint8)
            clock_hz = round(pynq.Clocks.fclk0_mhz * 1e6)
        except KeyError:
            raise DeviceError(
                f"device `{name}`: `{bitstream}` has no block `{CORE}`; load a bitstream of a "
                "project that `tilewright build` wrote"
            ) from None
        except (OSError, RuntimeError) as problem:
            raise DeviceError(
                f"device `{name}`: pynq cannot load `{bitstream}` and allocate "
                f"{buffer_bytes >> 20} MiB ({problem}); run as root, with the `.hwh` file beside "
                "the bitstream, or ask for a smaller buffer"
            ) from None
        base = self._buffer.device_address
        super().__init__(registers, self._buffer.view(np.ndarray), base, clock_hz)

    @override
    def flush(self, start: int, end: int) -> None:
        self._buffer[start:end].flush()

    @override
    def invalidate(self, start: int, end: int) -> None:
        self._buffer[start:end].invalidate()

    def close(self) -> None:
        """Unmap both, and free the buffer."""
        super().close()
        self._buffer.freebuffer()


class UioCore(MappedCore):
    """A core behind a UIO device, with a buffer from u-dma-buf.

    Parameters
    ----------
    uio, buffer : str
        Paths of the devices.
    name : str
        Of the device, for messages.
    """

    def __init__(self, uio: str, buffer: str, name: str) -> None:
        self._facts = SYSFS / Path(buffer).name
        try:
            size = int((self._facts / "size").read_text("utf-8"))
            base = int((self._facts / "phys_addr").read_text("utf-8"), 16)
            registers = _mapped(uio, mmap.PAGESIZE)
            memory = _mapped(buffer, size)
        except (OSError, ValueError) as problem:
            raise DeviceError(
                f"device `{name}`: `{uio}` and `{buffer}` cannot be mapped ({problem}); expected a "
                "UIO device for the core's registers and one of u-dma-buf; see `ls /dev/uio* "
                "/dev/udmabuf*`, and run as root"
            ) from None
        super().__init__(np.frombuffer(registers, np.uint32), np.frombuffer(memory, np.uint8), base)

    @override
    def flush(self, start: int, end: int) -> None:
        self._sync(FOR_DEVICE, start, end)

    @override
    def invalidate(self, start: int, end: int) -> None:
        self._sync(FOR_CPU, start, end)

    def _sync(self, what: str, start: int, end: int) -> None:
        values = {"sync_offset": start, "sync_size": end - start, "sync_direction": 0, what: 1}
        for file, value in values.items():
            (self._facts / file).write_text(str(value), "utf-8")


def _mapped(path: str, size: int) -> mmap.mmap:
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def open_core(name: str) -> MappedCore:
    """Map what an address names: a bitstream for pynq, or `/dev/uioN` and a buffer.

    Raises
    ------
    DeviceError
        If the address is malformed, or something cannot be mapped.
    """
    try:
        parts = urlsplit(name)
    except ValueError:
        parts = urlsplit("")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    uio = parts.path.startswith("/dev/")
    buffer = options.pop("buffer", "/dev/udmabuf0" if uio else str(USUAL_BUFFER_MIB))
    right = buffer.startswith("/dev/") if uio else is_count(buffer) and int(buffer)
    if options or parts.netloc or not parts.path or not right:
        raise DeviceError(
            f"device `{name}`: expected `zynq:///PATH/BOARD.bit?buffer=MIB` or "
            "`zynq:///dev/uio0?buffer=/dev/udmabuf0`; correct the address"
        )
    if uio:
        return UioCore(parts.path, buffer, name)
    return PynqCore(parts.path, int(buffer) << 20, name)


class MappedLink(Connection):
    """A mapped core in place of a link: the same reads and writes, without a wire in between."""

    def __init__(self, core: MappedCore) -> None:
        self.core = core
        # Main memory has no latency of its own: the model's usual one stands for it.
        self._board = dict.fromkeys(BOARD_OFFSETS.values(), 0) | {
            BOARD_OFFSETS["LINK_ID"]: LINK_MAGIC,
            BOARD_OFFSETS["LINK_VERSION"]: LINK_VERSION,
            BOARD_OFFSETS["MEMORY_BYTES"]: core.memory.size,
            BOARD_OFFSETS["MEMORY_LATENCY"]: MemoryModel().latency_cycles,
            BOARD_OFFSETS["CLOCK_HZ"]: core.clock_hz,
        }

    @override
    def read(self, command: Command, address: int, length: int) -> bytes:
        if command == Command.READ_MEMORY:
            self.core.invalidate(address, address + length)
            return self.core.memory[address : address + length].tobytes()
        # One register at a time: a longer access is not what AXI4-Lite expects.
        places = range(address, address + length, WORD_BYTES)
        return np.array([self._register(place) for place in places], "<u4").tobytes()

    def _register(self, place: int) -> int:
        if place >= REGISTER_SPACE_BYTES:
            return self._board[place]
        return int(self.core.registers[place // WORD_BYTES])

    @override
    def write_memory(self, address: int, data: bytes) -> None:
        end = address + len(data)
        self.core.memory[address:end] = np.frombuffer(data, np.uint8)
        self.core.flush(address, end)

    def write_register(self, address: int, value: int) -> None:
        """See `Connection.write_register`; addresses in memory count from the buffer's first."""
        if address >= REGISTER_SPACE_BYTES:
            self._board[address] = value
            return
        base = self.core.memory_base if address in BASES else 0
        self.core.registers[address // WORD_BYTES] = value + base

    @override
    def write_once(self, address: int, value: int) -> bool:
        self.write_register(address, value)
        return True

    @override
    def close(self) -> None:
        self.core.close()


class ZynqDevice(BoardDevice):
    """A Zynq board on which this process runs; its name is its address.

    Cycles and counters are those of the hardware. The time of main memory is not modelled, so
    starts and retirements of instructions are unknown. Parameters and errors are those of
    `BoardDevice`.
    """

    # Linux and other ports use the memory too.
    longest_run = 20

    def _connect(self) -> MappedLink:
        core = open_core(self._address)
        reach, end = 1 << self.configuration.address_bits, core.memory_base + core.memory.size
        if end > reach:
            core.close()
            raise DeviceError(
                f"device `{self.name}`: the buffer ends at {end:#x}, but `address_bits` = "
                f"{self.configuration.address_bits} reaches {reach:#x}; reserve it at a lower "
                "address, or raise `address_bits` and build the bitstream again"
            )
        return MappedLink(core)
